# Who asks for an alias gets it, and not what it leads to (RFC 1034, section 3.6.2).

client 1 asks www.example CNAME
upstream 1 gets www.example CNAME
upstream 1 answers NOERROR
  answer www.example 300 CNAME cdn.example
  answer cdn.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 CNAME cdn.example
