# An upstream that is believed is asked with AD, and its AD is passed on to those who asked for it with AD or DO
# (RFC 6840, sections 5.7 and 5.8).
server believes-ad yes

client 1 asks www.example A
upstream 1 gets www.example A ad
client 2 asks www.example A ad
upstream 1 answers NOERROR ad
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 2 gets NOERROR ad
  answer www.example 300 A 192.0.2.1
client 3 asks www.example A ad
client 3 gets NOERROR ad
  answer www.example 300 A 192.0.2.1
client 4 asks www.example A
client 4 gets NOERROR
  answer www.example 300 A 192.0.2.1

client 5 asks www.example A do
upstream 1 gets www.example A ad do
upstream 1 answers NOERROR ad
  answer www.example 300 A 192.0.2.1
client 5 gets NOERROR ad
  answer www.example 300 A 192.0.2.1

client 6 asks plain.example A ad
upstream 1 gets plain.example A ad
upstream 1 answers NOERROR             # it did not validate this
  answer plain.example 300 A 192.0.2.1
client 6 gets NOERROR
  answer plain.example 300 A 192.0.2.1
