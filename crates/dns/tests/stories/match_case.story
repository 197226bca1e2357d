# With random case, an answer in another case is no answer (draft-vixie-dnsext-dns0x20).
server case-random yes

client 1 asks www.a-long-name-with-many-letters.example A
upstream 1 gets www.a-long-name-with-many-letters.example A
upstream 1 answers NOERROR about www.a-long-name-with-many-letters.example A
  answer www.a-long-name-with-many-letters.example 300 A 192.0.2.66
upstream 1 answers NOERROR
  answer www.a-long-name-with-many-letters.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.a-long-name-with-many-letters.example 300 A 192.0.2.1
client 2 asks WWW.a-long-name-with-many-letters.example A
client 2 gets NOERROR
  answer www.a-long-name-with-many-letters.example 300 A 192.0.2.1
