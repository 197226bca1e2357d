# A failure is remembered for some seconds, for its question alone; who asks then hears so (RFC 9520, section 3.2; extended
# error 13: RFC 8914).

client 1 asks bad.example A edns 1232
upstream 1 gets bad.example A
upstream 1 answers SERVFAIL
  ede 9
client 1 gets SERVFAIL
  ede 9

client 2 asks BAD.example A edns 1232
client 2 gets SERVFAIL
  ede 9
  ede 13
client 2 asks bad.example A
client 2 gets SERVFAIL
client 2 asks bad.example A cd                       # who checks by himself may have better luck
upstream 1 gets bad.example A cd
upstream 1 answers NOERROR
  answer bad.example 300 A 192.0.2.1
client 2 gets NOERROR
  answer bad.example 300 A 192.0.2.1
client 2 asks bad.example AAAA
upstream 1 gets bad.example AAAA
upstream 1 answers NOERROR
  answer bad.example 300 AAAA 2001:db8::1
client 2 gets NOERROR
  answer bad.example 300 AAAA 2001:db8::1

after 4 s
client 3 asks bad.example A edns 1232
client 3 gets SERVFAIL
  ede 9
  ede 13
after 1 s
client 3 asks bad.example A
upstream 1 gets bad.example A
upstream 1 answers NOERROR
  answer bad.example 300 A 192.0.2.1
client 3 gets NOERROR
  answer bad.example 300 A 192.0.2.1
