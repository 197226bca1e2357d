# An answer that is asked for in the last tenth of its life is fetched anew while it is still served (as unbound's prefetch).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 100 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 100 A 192.0.2.1

after 90 s
client 1 asks www.example A            # ten seconds left: not yet
client 1 gets NOERROR
  answer www.example 10 A 192.0.2.1
after 1 s
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 9 A 192.0.2.1
upstream 1 gets www.example A
client 2 asks www.example A            # it is being fetched
client 2 gets NOERROR
  answer www.example 9 A 192.0.2.1
upstream 1 answers NOERROR
  answer www.example 100 A 192.0.2.2
client 2 asks www.example A
client 2 gets NOERROR
  answer www.example 100 A 192.0.2.2
nothing is in flight
