# A network that asks too much gets every second answer above its limit empty and truncated, and none to the others; who
# then comes by TCP is answered (RFC 7873 aside). A second later there is one more.
server rate 1
server rate-burst 2
server rate-slip 2
client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 answers NOERROR
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1
client 2 asks a.example A
client 2 gets NOERROR
  answer a.example 60 A 192.0.2.1
client 3 asks a.example A
client 3 is ignored
client 3 asks a.example A
client 3 gets NOERROR tc
client 3 asks a.example A
client 3 is ignored
client 3 asks a.example A over tcp
client 3 gets NOERROR
  answer a.example 60 A 192.0.2.1
after 1 s
client 3 asks a.example A
client 3 gets NOERROR
  answer a.example 59 A 192.0.2.1
client 3 asks a.example A
client 3 gets NOERROR tc
