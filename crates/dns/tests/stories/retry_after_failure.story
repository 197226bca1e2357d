# An upstream that says it failed is left for another at once (RFC 2308, section 7.1; RFC 9520, section 3.1).
zone . upstream 1 2 3

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
upstream 2 gets www.example A
upstream 2 answers REFUSED
upstream 3 gets www.example A
upstream 3 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight
