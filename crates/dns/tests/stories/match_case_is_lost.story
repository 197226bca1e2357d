# An upstream that never gives back the case is asked over TCP instead of being waited for in vain
# (draft-vixie-dnsext-dns0x20).
server case-random yes

client 1 asks www.a-long-name-with-many-letters.example A
upstream 1 gets www.a-long-name-with-many-letters.example A
upstream 1 answers NOERROR about www.a-long-name-with-many-letters.example A
  answer www.a-long-name-with-many-letters.example 300 A 192.0.2.1
after 300 ms
upstream 1 gets www.a-long-name-with-many-letters.example A over tcp
upstream 1 answers NOERROR over tcp about www.a-long-name-with-many-letters.example A
  answer www.a-long-name-with-many-letters.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.a-long-name-with-many-letters.example 300 A 192.0.2.1
nothing is in flight
