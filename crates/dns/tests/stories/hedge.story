# Where the first upstream takes longer than it nearly always does, a second one is asked beside it, and the first answer of
# either is told.
server hedges yes
zone . upstream 1 2
client 1 asks a.example A
upstream 1 gets a.example A
after 300 ms
upstream 2 gets a.example A
upstream 2 answers NOERROR
  answer a.example 60 A 192.0.2.2
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.2
upstream 1 answers NOERROR
  answer a.example 60 A 192.0.2.1
nothing is in flight
