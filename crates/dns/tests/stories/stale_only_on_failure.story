# As long as an upstream answers, nobody gets what is past its end (RFC 8767, section 4).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
after 60 s
client 2 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NXDOMAIN
  authority example 60 SOA ns.example hostmaster.example 1 7200 900 1209600 60
client 2 gets NXDOMAIN
  authority example 60 SOA ns.example hostmaster.example 1 7200 900 1209600 60
