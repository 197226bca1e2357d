# That an upstream's UDP port cannot be reached says nothing of its stream, by which it is answering.
zone . upstream 1 2

client 1 asks big.example A
upstream 1 gets big.example A
upstream 1 answers NOERROR tc
upstream 1 gets big.example A over tcp
upstream 1 is unreachable
upstream 1 answers NOERROR over tcp
  answer big.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer big.example 60 A 192.0.2.1
nothing is in flight
