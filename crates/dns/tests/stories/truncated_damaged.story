# Of an answer that was cut, not even the header's counts need to be right: TC is enough (RFC 2181, section 9).

client 1 asks big.example A
upstream 1 gets big.example A
upstream 1 answers NOERROR tc no-edns short by 3
  answer big.example 300 A 192.0.2.1
upstream 1 gets big.example A over tcp
upstream 1 answers NOERROR over tcp
  answer big.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer big.example 300 A 192.0.2.1
