# Who desires no recursion is answered from what is local, and led no further than an alias; what is held is not his.
policy
  access 198.51.100.0/24 allow
  local www.lan 60 A 192.0.2.1
  local out.lan 60 CNAME a.example.
  block bad.example
client 1 asks www.lan A no-rd
client 1 gets NOERROR
  answer www.lan 60 A 192.0.2.1
client 1 asks out.lan A no-rd
client 1 gets NOERROR
  answer out.lan 60 CNAME a.example.
client 1 asks bad.example A no-rd
client 1 gets NXDOMAIN
  authority bad.example 60 SOA bad.example. nobody.invalid. 1 3600 1200 604800 60
client 1 asks a.example A no-rd do
client 1 gets REFUSED
  ede 20
nothing is in flight
