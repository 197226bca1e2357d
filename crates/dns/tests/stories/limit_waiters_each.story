# Only so many wait for one question; the next gets SERVFAIL at once.
server waiters-each 2

client 1 asks www.example A
upstream 1 gets www.example A
client 2 asks www.example A
client 3 asks www.example A edns 1232
client 3 gets SERVFAIL
  ede 0
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
client 2 gets NOERROR
  answer www.example 60 A 192.0.2.1
client 3 asks www.example A
client 3 gets NOERROR
  answer www.example 60 A 192.0.2.1
