# What comes after the end of a question is nobody's: it is neither told nor kept.

client 1 asks www.example A
upstream 1 gets www.example A
after 300 ms
upstream 1 gets www.example A
after 600 ms
upstream 1 gets www.example A
after 1200 ms
upstream 1 gets www.example A
after 2900 ms
client 1 gets SERVFAIL
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 2 asks www.example A edns 1232
client 2 gets SERVFAIL
  ede 22
  ede 13
nothing is in flight
