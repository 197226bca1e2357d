# TC leads to the upstream that said it, also where another was asked meanwhile (RFC 7766, section 5).
zone . upstream 1 2

client 1 asks big.example A
upstream 1 gets big.example A
after 300 ms
upstream 2 gets big.example A
upstream 1 answers NOERROR tc          # late, while upstream 2 is waited for
upstream 2 answers NOERROR
  answer big.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer big.example 300 A 192.0.2.1
