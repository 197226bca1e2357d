# Sets before the one that does not fit are kept; to leave out additional records is no truncation (RFC 2181, section 9).
server minimal no

client 1 asks www.example A over tcp
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 CNAME cdn.example
  answer times 40 cdn.example 300 A 192.0.2.%
client 1 gets NOERROR
  answer www.example 300 CNAME cdn.example
  answer times 40 cdn.example 300 A 192.0.2.%
client 2 asks www.example A
client 2 gets NOERROR tc
  answer www.example 300 CNAME cdn.example

client 1 asks mail.example MX over tcp
upstream 1 gets mail.example MX
upstream 1 answers NOERROR
  answer mail.example 300 MX 10 mx.example
  additional times 40 mx.example 300 A 192.0.2.%
client 1 gets NOERROR
  answer mail.example 300 MX 10 mx.example
  additional times 40 mx.example 300 A 192.0.2.%
client 2 asks mail.example MX
client 2 gets NOERROR
  answer mail.example 300 MX 10 mx.example
