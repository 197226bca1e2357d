# An answer of no use that comes late does not end a question for which another upstream is waited for.
zone . upstream 1 2

client 1 asks www.example A
upstream 1 gets www.example A
after 300 ms
upstream 2 gets www.example A
upstream 1 answers NOERROR
upstream 2 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight
