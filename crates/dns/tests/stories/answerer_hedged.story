# Of two upstreams that are parts of this process, the second is asked where the first takes longer than it does nearly always,
# and the first of their answers is taken.
server hedges yes
zone . answerer 1 2

client 1 asks a.example A
upstream 1 gets a.example A over tcp ad
after 200 ms
upstream 2 gets a.example A over tcp ad
upstream 2 answers NOERROR over tcp
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1
upstream 1 is told to stop
nothing is in flight
