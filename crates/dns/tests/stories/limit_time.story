# No question is in flight for longer than the operator says.
server question-max 700 ms

client 1 asks www.example A edns 1232
upstream 1 gets www.example A
after 300 ms
upstream 1 gets www.example A
after 399 ms
after 1 ms
client 1 gets SERVFAIL
  ede 22
nothing is in flight
