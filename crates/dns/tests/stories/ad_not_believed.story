# AD from an upstream that is not believed is nobody's (RFC 4035, section 4.9.3).

client 1 asks www.example A ad do
upstream 1 gets www.example A do
upstream 1 answers NOERROR ad
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 2 asks www.example A ad do
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
