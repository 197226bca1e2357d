# A name that does not exist has none below it (RFC 8020): they are denied unasked, while that is held. With DNSSEC they
# are asked for, since a proof need not hold for them.
server nxdomain-cut always
client 1 asks gone.example A
upstream 1 gets gone.example A
upstream 1 answers NXDOMAIN
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 gets NXDOMAIN
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
after 100 s
client 1 asks a.b.Gone.example TXT
client 1 gets NXDOMAIN
  authority example 200 SOA ns.example. host.example. 1 2 3 4 300
client 1 asks a.gone.example A do
upstream 1 gets a.gone.example A do
upstream 1 answers NXDOMAIN
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 gets NXDOMAIN
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 asks other.example A
upstream 1 gets other.example A
upstream 1 answers NOERROR
  answer other.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer other.example 60 A 192.0.2.1
after 200 s
client 1 asks c.gone.example A
upstream 1 gets c.gone.example A
upstream 1 answers NOERROR
  answer c.gone.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer c.gone.example 60 A 192.0.2.1
