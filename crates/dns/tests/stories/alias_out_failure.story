# Where nobody can tell of the target, that is a failure, which is remembered; what is held past its end is served
# behind the alias.
server stale 3600 s
server attempts 1
policy
  access 198.51.100.0/24 allow
  local www.lan 200 CNAME a.example.
client 1 asks www.lan A do
upstream 1 gets a.example A do
upstream 1 answers SERVFAIL
client 1 gets SERVFAIL
  ede 0
client 1 asks www.lan A do
client 1 gets SERVFAIL
  ede 0
  ede 13
client 2 asks www.lan A
upstream 1 gets a.example A
upstream 1 answers NOERROR
  answer a.example 60 A 192.0.2.1
client 2 gets NOERROR
  answer www.lan 200 CNAME a.example
  answer a.example 60 A 192.0.2.1
after 100 s
client 2 asks www.lan A edns 1232
upstream 1 gets a.example A
upstream 1 answers SERVFAIL
client 2 gets NOERROR
  answer www.lan 200 CNAME a.example
  answer a.example 30 A 192.0.2.1
  ede 3
nothing is in flight
