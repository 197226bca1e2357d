# A packet with another ID is no answer: the right one is waited for (RFC 5452, section 9.1).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR wrong id
  answer www.example 300 A 192.0.2.66
upstream 1 answers NXDOMAIN wrong id
upstream 1 answers SERVFAIL wrong id
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 2 asks www.example A
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
