# Where a packet cannot even be sent, another upstream is asked; where none can be, the client is told at once.
zone . upstream 1 2

upstream 1 is out of reach
client 1 asks www.example A
upstream 2 gets www.example A
upstream 2 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1

upstream 2 is out of reach
client 1 asks other.example A edns 1232
client 1 gets SERVFAIL
  ede 22
nothing is in flight

upstream 1 is within reach
upstream 2 is within reach
after 5 s
client 1 asks other.example A
upstream 1 gets other.example A        # each is tried again in its time
upstream 2 gets other.example A
upstream 2 answers NOERROR
  answer other.example 60 A 192.0.2.2
client 1 gets NOERROR
  answer other.example 60 A 192.0.2.2
