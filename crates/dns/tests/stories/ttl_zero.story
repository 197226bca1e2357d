# A TTL of 0 is for those who wait, and not kept (RFC 1035, section 3.2.1).

client 1 asks now.example A
client 2 asks now.example A
upstream 1 gets now.example A
upstream 1 answers NOERROR
  answer now.example 0 A 192.0.2.1
client 1 gets NOERROR
  answer now.example 0 A 192.0.2.1
client 2 gets NOERROR
  answer now.example 0 A 192.0.2.1

client 3 asks now.example A
upstream 1 gets now.example A
upstream 1 answers NOERROR
  answer now.example 0 A 192.0.2.2
client 3 gets NOERROR
  answer now.example 0 A 192.0.2.2
