# A stream that fails late says nothing of the one by which another upstream is asked meanwhile.
zone . upstream 1 2

client 1 asks big.example A
upstream 1 gets big.example A
upstream 1 answers NOERROR tc
upstream 1 gets big.example A over tcp
after 2500 ms
upstream 2 gets big.example A
upstream 2 answers NOERROR tc
upstream 2 gets big.example A over tcp
upstream 1 breaks the stream
after 10 ms
upstream 2 answers NOERROR over tcp
  answer big.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer big.example 300 A 192.0.2.1
nothing is in flight
