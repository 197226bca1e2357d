# An alias whose end does not exist is told with its code, and kept no longer than either (RFC 2308, section 2.1).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NXDOMAIN
  answer www.example 40 CNAME gone.example
  authority example 3600 SOA ns.example hostmaster.example 1 7200 900 1209600 900
client 1 gets NXDOMAIN
  answer www.example 40 CNAME gone.example
  authority example 900 SOA ns.example hostmaster.example 1 7200 900 1209600 900
after 30 s
client 1 asks www.example A
client 1 gets NXDOMAIN
  answer www.example 10 CNAME gone.example
  authority example 870 SOA ns.example hostmaster.example 1 7200 900 1209600 900
after 10 s
client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 40 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 40 A 192.0.2.1
