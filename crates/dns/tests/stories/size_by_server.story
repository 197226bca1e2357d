# However much a client says it takes, over UDP it gets no more than passes everywhere unfragmented (RFC 9715).

client 1 asks big.example A over tcp
upstream 1 gets big.example A
upstream 1 answers NOERROR
  answer times 100 big.example 300 A 192.0.2.%
client 1 gets NOERROR
  answer times 100 big.example 300 A 192.0.2.%
client 2 asks big.example A edns 4096
client 2 gets NOERROR tc
client 2 asks big.example A edns 4096 over tcp
client 2 gets NOERROR
  answer times 100 big.example 300 A 192.0.2.%
