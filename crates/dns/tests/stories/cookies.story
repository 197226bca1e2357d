# A client that sends a cookie gets one of ours with whatever it is answered, and who shows that is not limited. One
# that is forged or another's is worth nothing, and is answered with a new one (RFC 7873, section 5.2.4).
server cookie-secret 000102030405060708090a0b0c0d0e0f
server rate 1
server rate-burst 2
server rate-slip 0
client 1 asks a.example A no-rd
  option 10 0102030405060708
client 1 gets REFUSED
  cookie 0102030405060708
  ede 20
client 1 asks a.example A
  cookie back
upstream 1 gets a.example A
upstream 1 answers NOERROR
  answer a.example 3600 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 3600 A 192.0.2.1
  cookie 0102030405060708
client 2 asks a.example A
  option 10 1112131415161718 01000000 00000000 2122232425262728
client 2 gets NOERROR
  answer a.example 3600 A 192.0.2.1
  cookie 1112131415161718
client 3 asks a.example A
  option 10 1112131415161718
client 3 is ignored
client 1 asks a.example A
  cookie back
client 1 gets NOERROR
  answer a.example 3600 A 192.0.2.1
  cookie 0102030405060708
client 2 asks a.example A
  cookie back
client 2 gets NOERROR
  answer a.example 3600 A 192.0.2.1
  cookie 1112131415161718
