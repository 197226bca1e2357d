# That a name has nothing of a type is kept for that type, as its SOA says (RFC 2308, sections 2.2 and 5).

client 1 asks www.example AAAA
upstream 1 gets www.example AAAA
upstream 1 answers NOERROR
  authority example 120 SOA ns.example hostmaster.example 1 7200 900 1209600 900
client 1 gets NOERROR
  authority example 120 SOA ns.example hostmaster.example 1 7200 900 1209600 900
after 100 s
client 2 asks www.example AAAA
client 2 gets NOERROR
  authority example 20 SOA ns.example hostmaster.example 1 7200 900 1209600 900

client 2 asks www.example A            # another type
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
