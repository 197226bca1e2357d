# A machine that slept tells those who waited as soon as it wakes, and ages what it holds (RFC 1035, section 3.2.1).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 600 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 600 A 192.0.2.1
client 1 asks other.example A edns 1232
upstream 1 gets other.example A
after 400 s asleep
client 1 gets SERVFAIL
  ede 22
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 200 A 192.0.2.1
nothing is in flight
