# What an upstream said of its failure is told where the others say nothing (extended errors: RFC 8914).
zone . upstream 1 2
server attempts 2

client 1 asks www.example A edns 1232
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
  ede 6
upstream 2 gets www.example A
after 5 s
client 1 gets SERVFAIL
  ede 6
nothing is in flight
