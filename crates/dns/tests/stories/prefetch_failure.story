# Where fetching anew fails, what is held is served to its end, and the upstream is left alone for some seconds (RFC 9520).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 100 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 100 A 192.0.2.1
after 91 s
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 9 A 192.0.2.1
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 9 A 192.0.2.1
after 5 s
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 4 A 192.0.2.1
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 100 A 192.0.2.2
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 100 A 192.0.2.2
