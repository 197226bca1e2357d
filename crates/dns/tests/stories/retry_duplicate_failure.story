# The same failure twice is one failure: networks double packets.
zone . upstream 1 2

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers SERVFAIL 2 times
upstream 2 gets www.example A
upstream 1 answers SERVFAIL
upstream 2 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight
