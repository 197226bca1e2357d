# Asked again without EDNS, an upstream has as much time as before.

client 1 asks www.example A
upstream 1 gets www.example A
after 290 ms
upstream 1 answers FORMERR no-edns
upstream 1 gets www.example A no-edns
after 100 ms
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight
