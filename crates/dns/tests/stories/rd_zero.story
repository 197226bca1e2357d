# Who does not desire recursion asks what others asked for: refused (RFC 1034, section 4.3.1, leaves it open; the cache of
# others is their business).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1

client 2 asks www.example A no-rd edns 1232
client 2 gets REFUSED
  ede 20
client 2 asks other.example A no-rd
client 2 gets REFUSED
