# Aliases come in their order, whatever the upstream's (RFC 1034, section 3.6.2; many clients take them so).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer c.example 300 A 192.0.2.1
  answer b.example 300 CNAME c.example
  answer www.example 300 CNAME b.example
client 1 gets NOERROR
  answer www.example 300 CNAME b.example
  answer b.example 300 CNAME c.example
  answer c.example 300 A 192.0.2.1
