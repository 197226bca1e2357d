# A probe's answer is an answer like any.
zone . upstream 1 2

client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 is unreachable
upstream 2 gets a.example A
upstream 2 answers NOERROR
  answer a.example 600 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 600 A 192.0.2.1
after 1 s
client 1 asks b.example A
upstream 1 gets b.example A
upstream 2 gets b.example A
upstream 1 answers NOERROR
  answer b.example 600 A 192.0.2.2
client 1 gets NOERROR
  answer b.example 600 A 192.0.2.2
upstream 2 answers NOERROR
  answer b.example 600 A 192.0.2.3
nothing is in flight
