# The answer to any of the packets that asked a question is taken, not only to the last.

client 1 asks www.example A
upstream 1 gets www.example A
after 300 ms
upstream 1 gets www.example A
upstream 1 answers NOERROR to packet 1
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight
