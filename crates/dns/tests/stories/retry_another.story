# An upstream that does not answer in time is left for another, and its late answer is still one (RFC 1035, section 4.2.1).
zone . upstream 1 2

client 1 asks www.example A
upstream 1 gets www.example A
after 299 ms
after 1 ms
upstream 2 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
upstream 2 answers NOERROR             # too late for anything
  answer www.example 300 A 192.0.2.66
nothing is in flight
client 2 asks www.example A
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
