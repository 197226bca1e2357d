# Aliases that run in a circle are a failure, and no other upstream is asked (RFC 1034, section 5.2.2).
zone . upstream 1 2

client 1 asks www.example A edns 1232
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 CNAME b.example
  answer b.example 300 CNAME www.example
client 1 gets SERVFAIL
  ede 0
client 2 asks www.example A edns 1232
client 2 gets SERVFAIL
  ede 0
  ede 13
nothing is in flight
