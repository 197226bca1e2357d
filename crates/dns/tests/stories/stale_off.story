# Who does not want answers past their end gets none (RFC 8767, section 5).
server stale 0 s

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
after 60 s
client 2 asks www.example A
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
client 2 gets SERVFAIL
