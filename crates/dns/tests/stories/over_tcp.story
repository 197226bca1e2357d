# A client over TCP is answered over TCP, as it asked, and in whatever order the answers come (RFC 7766, section 7).

client 1 asks a.example A over tcp
upstream 1 gets a.example A
client 1 asks b.example A over tcp
upstream 1 gets b.example A
upstream 1 answers NOERROR to b.example A
  answer b.example 60 A 192.0.2.2
client 1 gets NOERROR
  answer b.example 60 A 192.0.2.2
upstream 1 answers NOERROR to a.example A
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1
