# A packet about another name, type or class is no answer, nor is one that is a query or has no question (RFC 5452,
# section 9.1).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR about evil.example A
  answer evil.example 300 A 192.0.2.66
upstream 1 answers NOERROR about www.example AAAA
  answer www.example 300 AAAA 2001:db8::66
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1

client 1 asks other.example A
upstream 1 gets other.example A
upstream 1 answers NOERROR class CH
  answer other.example 300 A 192.0.2.66
upstream 1 answers NOERROR as a query
  answer other.example 300 A 192.0.2.66
upstream 1 answers NOERROR
  answer other.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer other.example 300 A 192.0.2.1
