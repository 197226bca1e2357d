# A server that fails may leave the question out; one that has an answer may not (RFC 5452, section 9.1).

client 1 asks www.example A edns 1232
upstream 1 gets www.example A
upstream 1 answers NOERROR without question
  answer www.example 300 A 192.0.2.66
upstream 1 answers NXDOMAIN without question
upstream 1 answers SERVFAIL without question
client 1 gets SERVFAIL
  ede 0
nothing is in flight
