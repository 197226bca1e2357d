# What is kept answers one type (RFC 1035, section 3.2.2).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1

client 1 asks www.example AAAA
upstream 1 gets www.example AAAA
upstream 1 answers NOERROR
  answer www.example 300 AAAA 2001:db8::1
client 1 gets NOERROR
  answer www.example 300 AAAA 2001:db8::1

client 1 asks www.example TYPE65280    # any type that has data, known or not (RFC 3597)
upstream 1 gets www.example TYPE65280
upstream 1 answers NOERROR
  authority example 60 SOA ns.example hostmaster.example 1 7200 900 1209600 60
client 1 gets NOERROR
  authority example 60 SOA ns.example hostmaster.example 1 7200 900 1209600 60
