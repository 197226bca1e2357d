# Questions that come together are merged as those that come one after the other (RFC 5452, section 5).

client 1 asks www.example A
also client 2 asks www.EXAMPLE A
also client 3 asks other.example A
also client 4 sends 0007 8100 0001 0000 0000 0000 0161 00 0001 0001
upstream 1 gets www.example A
upstream 1 gets other.example A
client 4 is ignored
upstream 1 answers NOERROR to www.example A
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
upstream 1 answers NOERROR to other.example A
  answer other.example 300 A 192.0.2.2
client 3 gets NOERROR
  answer other.example 300 A 192.0.2.2
