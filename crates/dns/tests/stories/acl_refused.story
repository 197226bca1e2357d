# Who is in no network that is allowed is refused, with the reason where the client reads such (RFC 8914, 18); nobody is
# asked, and what is held is not given away either. The longest network counts.
policy
  access 198.51.100.0/24 allow
  access 198.51.100.2/31 refuse
client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 answers NOERROR
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1
client 2 asks a.example A
client 2 gets REFUSED
client 3 asks b.example A do
client 3 gets REFUSED
  ede 18
client 3 asks b.example A over tcp
client 3 gets REFUSED
client 4 asks a.example A
client 4 gets NOERROR
  answer a.example 60 A 192.0.2.1
nothing is in flight
