# A policy that comes while the server runs acts on what is held at once, and keeps the rest: nobody is asked again for
# what it does not speak of, and what it blocked comes back, as old as it is, when it is blocked no longer.
server prefetch-percent 0
policy
  access 198.51.100.0/24 allow
client 1 asks good.example A
upstream 1 gets good.example A
upstream 1 answers NOERROR
  answer good.example 3600 A 192.0.2.1
client 1 gets NOERROR
  answer good.example 3600 A 192.0.2.1
client 1 asks bad.example A
upstream 1 gets bad.example A
upstream 1 answers NOERROR
  answer bad.example 3600 A 192.0.2.2
client 1 gets NOERROR
  answer bad.example 3600 A 192.0.2.2
after 1000 s
policy
  access 198.51.100.0/24 allow
  block bad.example
client 1 asks bad.example A
also client 2 asks good.example A
client 1 gets NXDOMAIN
  authority bad.example 60 SOA bad.example. nobody.invalid. 1 3600 1200 604800 60
client 2 gets NOERROR
  answer good.example 2600 A 192.0.2.1
after 100 s
client 1 asks bad.example A
client 1 gets NXDOMAIN
  authority bad.example 60 SOA bad.example. nobody.invalid. 1 3600 1200 604800 60
policy
  access 198.51.100.0/24 allow
client 1 asks bad.example A
client 1 gets NOERROR
  answer bad.example 2500 A 192.0.2.2
client 1 asks good.example A
client 1 gets NOERROR
  answer good.example 2500 A 192.0.2.1
nothing is in flight
