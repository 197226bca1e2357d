# A packet to another socket than the one that asked is no answer (RFC 5452, section 9.1).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR wrong socket
  answer www.example 300 A 192.0.2.66
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
