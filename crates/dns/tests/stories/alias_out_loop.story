# An upstream that leads back to a name of ours makes a circle, whatever it says at its end; the question itself is
# answered, and held.
policy
  access 198.51.100.0/24 allow
  local www.example 200 CNAME a.example.
client 1 asks www.example A do
upstream 1 gets a.example A do
upstream 1 answers NOERROR
  answer a.example 60 CNAME www.example
  answer www.example 60 A 192.0.2.1
client 1 gets SERVFAIL
  ede 0
client 1 asks www.example A do
client 1 gets SERVFAIL
  ede 0
client 1 asks a.example A do
client 1 gets NOERROR
  answer a.example 60 CNAME www.example
  answer www.example 60 A 192.0.2.1
nothing is in flight
