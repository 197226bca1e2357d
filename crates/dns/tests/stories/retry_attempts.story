# A question is asked no oftener than the operator says (RFC 9520, section 3.1).
server attempts 2
zone . upstream 1 2 3

client 1 asks www.example A edns 1232
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
upstream 2 gets www.example A
upstream 2 answers SERVFAIL
client 1 gets SERVFAIL
  ede 0
nothing is in flight
