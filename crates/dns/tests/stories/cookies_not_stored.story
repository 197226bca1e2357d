# A cookie is for its client only, and is no part of what is held.
server cookie-secret 000102030405060708090a0b0c0d0e0f
client 1 asks a.example A
  option 10 0102030405060708
upstream 1 gets a.example A
upstream 1 answers NOERROR
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1
  cookie 0102030405060708
client 2 asks a.example A edns 1232
client 2 gets NOERROR
  answer a.example 60 A 192.0.2.1
client 3 asks a.example A
  option 10 1112131415161718
client 3 gets NOERROR
  answer a.example 60 A 192.0.2.1
  cookie 1112131415161718
