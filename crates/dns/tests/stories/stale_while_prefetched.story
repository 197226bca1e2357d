# An answer that ends while it is fetched anew is held all the same for those who come then (RFC 8767, section 5).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
after 59 s
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 1 A 192.0.2.1
upstream 1 gets www.example A          # fetched before its end
after 1000 ms                          # its end; nobody has answered
upstream 1 gets www.example A
upstream 1 gets www.example A
upstream 1 gets www.example A
client 2 asks www.example A edns 1232
after 800 ms
client 2 gets NOERROR
  answer www.example 30 A 192.0.2.1
  ede 3
upstream 1 answers SERVFAIL to packet 2
upstream 1 answers SERVFAIL to packet 3
upstream 1 answers SERVFAIL to packet 4
upstream 1 answers SERVFAIL to packet 5
nothing is in flight
