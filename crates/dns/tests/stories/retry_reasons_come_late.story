# A reason that comes late, while another upstream is waited for, is told where that one says nothing (RFC 8914).
zone . upstream 1 2
server attempts 2

client 1 asks www.example A edns 1232
upstream 1 gets www.example A
after 300 ms
upstream 2 gets www.example A
upstream 1 answers SERVFAIL
  ede 9
after 5 s
client 1 gets SERVFAIL
  ede 9
nothing is in flight
