# Of an answer past its end, records whose own time is not over keep what is left of it (RFC 8767, section 4).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 1000 CNAME cdn.example
  answer cdn.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 1000 CNAME cdn.example
  answer cdn.example 60 A 192.0.2.1
after 100 s
client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
client 1 gets NOERROR
  answer www.example 900 CNAME cdn.example
  answer cdn.example 30 A 192.0.2.1
