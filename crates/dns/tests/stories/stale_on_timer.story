# Where upstreams take longer than 1.8 s, those who wait get what is held past its end; the question goes on, and its answer
# replaces that (RFC 8767, section 5).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1

after 60 s
client 2 asks www.example A edns 1232
upstream 1 gets www.example A
after 50 ms                            # it was fast till now
upstream 1 gets www.example A
client 3 asks www.example A
after 100 ms
upstream 1 gets www.example A
after 200 ms
upstream 1 gets www.example A
after 1449 ms
after 1 ms
client 2 gets NOERROR
  answer www.example 30 A 192.0.2.1
  ede 3
client 3 gets NOERROR
  answer www.example 30 A 192.0.2.1
client 4 asks www.example A            # while it goes on, nobody waits any more
client 4 gets NOERROR
  answer www.example 30 A 192.0.2.1
after 1 s
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.2
nothing is in flight
client 5 asks www.example A
client 5 gets NOERROR
  answer www.example 60 A 192.0.2.2
