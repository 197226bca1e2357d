# What an upstream has replaced is not served any more, also where what replaced it may not be kept.

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
after 60 s
client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 0 A 192.0.2.2
client 1 gets NOERROR
  answer www.example 0 A 192.0.2.2
client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
client 1 gets SERVFAIL
