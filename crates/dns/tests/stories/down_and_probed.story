# An upstream that is down is asked the same as another every now and then, nobody waiting for it, and is up with its first
# answer.
zone . upstream 1 2

client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 is unreachable
upstream 2 gets a.example A
after 10 ms
upstream 2 answers NOERROR
  answer a.example 600 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 600 A 192.0.2.1
after 900 ms
client 1 asks b.example A
upstream 2 gets b.example A
upstream 2 answers NOERROR
  answer b.example 600 A 192.0.2.1
client 1 gets NOERROR
  answer b.example 600 A 192.0.2.1

after 200 ms
client 1 asks c.example A
upstream 1 gets c.example A            # the probe
upstream 2 gets c.example A
upstream 1 answers SERVFAIL            # it is there; that it failed is nobody's trouble
upstream 2 answers NOERROR
  answer c.example 600 A 192.0.2.1
client 1 gets NOERROR
  answer c.example 600 A 192.0.2.1

client 1 asks d.example A              # up, and faster
upstream 1 gets d.example A
upstream 1 answers NOERROR
  answer d.example 600 A 192.0.2.1
client 1 gets NOERROR
  answer d.example 600 A 192.0.2.1
nothing is in flight
