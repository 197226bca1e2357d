# An answer that was cut is not used: the same upstream is asked over TCP, and the whole is kept (RFC 2181, section 9;
# RFC 7766, section 5).

client 1 asks big.example A
upstream 1 gets big.example A
upstream 1 answers NOERROR tc
  answer big.example 300 A 192.0.2.1
upstream 1 gets big.example A over tcp
client 2 asks big.example A            # nothing of the cut answer is kept; who asks now waits too
after 2 s
upstream 1 answers NOERROR over tcp
  answer big.example 300 A 192.0.2.1
  answer big.example 300 A 192.0.2.2
client 1 gets NOERROR
  answer big.example 300 A 192.0.2.1
  answer big.example 300 A 192.0.2.2
client 2 gets NOERROR
  answer big.example 300 A 192.0.2.1
  answer big.example 300 A 192.0.2.2
client 3 asks big.example A
client 3 gets NOERROR
  answer big.example 300 A 192.0.2.1
  answer big.example 300 A 192.0.2.2
