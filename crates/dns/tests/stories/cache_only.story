# With --cache-only what is held is answered, also without RD, and nothing else; no upstream is asked, not even before the
# end of what is held (the server of the paper's experiment).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 100 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 100 A 192.0.2.1

reload cache-only yes
client 1 asks www.example A no-rd
client 1 gets NOERROR
  answer www.example 100 A 192.0.2.1
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 100 A 192.0.2.1
client 1 asks other.example A edns 1232
client 1 gets REFUSED
  ede 20
client 1 asks other.example A no-rd
client 1 gets REFUSED
after 95 s
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 5 A 192.0.2.1
after 5 s
client 1 asks www.example A
client 1 gets REFUSED
nothing is in flight
