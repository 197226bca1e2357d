# What is held past its end is of use only for so long (RFC 8767, section 5: one to three days; here an hour).
server stale 3600 s

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
after 3658 s
client 2 asks www.example A edns 1232
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
client 2 gets NOERROR
  answer www.example 30 A 192.0.2.1
  ede 3
after 30 s
client 2 asks www.example A edns 1232
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
client 2 gets SERVFAIL
  ede 0
