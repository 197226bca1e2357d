# An upstream that was asked twice and says TC to the first packet is asked over TCP at once.

client 1 asks big.example A
upstream 1 gets big.example A
after 300 ms
upstream 1 gets big.example A
upstream 1 answers NOERROR tc to packet 1
upstream 1 gets big.example A over tcp
upstream 1 answers NOERROR tc to packet 2
upstream 1 answers NOERROR over tcp
  answer big.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer big.example 300 A 192.0.2.1
nothing is in flight
