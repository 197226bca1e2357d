# Only so many wait for all questions together; the next gets SERVFAIL at once, and nobody is asked for it.
server waiters 2

client 1 asks a.example A
upstream 1 gets a.example A
client 2 asks b.example A
upstream 1 gets b.example A
client 3 asks c.example A edns 1232
client 3 gets SERVFAIL
  ede 0
client 4 asks a.example A
client 4 gets SERVFAIL
after 1 ms
upstream 1 answers NOERROR to a.example A
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1
client 3 asks c.example A
upstream 1 gets c.example A
upstream 1 answers NOERROR to c.example A
  answer c.example 60 A 192.0.2.3
client 3 gets NOERROR
  answer c.example 60 A 192.0.2.3
upstream 1 answers NOERROR to b.example A
  answer b.example 60 A 192.0.2.2
client 2 gets NOERROR
  answer b.example 60 A 192.0.2.2
nothing is in flight
