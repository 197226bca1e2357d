# More than sixteen aliases are a failure (RFC 1034, section 5.2.2, asks for some limit).

client 1 asks n0.example A
upstream 1 gets n0.example A
upstream 1 answers NOERROR
  answer n0.example 60 CNAME n1.example
  answer n1.example 60 CNAME n2.example
  answer n2.example 60 CNAME n3.example
  answer n3.example 60 CNAME n4.example
  answer n4.example 60 CNAME n5.example
  answer n5.example 60 CNAME n6.example
  answer n6.example 60 CNAME n7.example
  answer n7.example 60 CNAME n8.example
  answer n8.example 60 CNAME n9.example
  answer n9.example 60 CNAME n10.example
  answer n10.example 60 CNAME n11.example
  answer n11.example 60 CNAME n12.example
  answer n12.example 60 CNAME n13.example
  answer n13.example 60 CNAME n14.example
  answer n14.example 60 CNAME n15.example
  answer n15.example 60 CNAME n16.example
  answer n16.example 60 CNAME n17.example
  answer n17.example 60 A 192.0.2.1
client 1 gets SERVFAIL
