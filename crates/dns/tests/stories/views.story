# What is said for a view holds for its clients and nobody else, and what one view was answered is not held for another.
policy
  access 198.51.100.0/24 allow
  view 198.51.100.2/32 kids
  view 198.51.100.3/32 guests
  block kids+guests:games.example
  local kids:www.example 60 A 192.0.2.9
client 1 asks games.example A
upstream 1 gets games.example A
upstream 1 answers NOERROR
  answer games.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer games.example 60 A 192.0.2.1
client 2 asks games.example A
client 2 gets NXDOMAIN
  authority games.example 60 SOA games.example. nobody.invalid. 1 3600 1200 604800 60
client 3 asks www.games.example A do
client 3 gets NXDOMAIN
  authority games.example 60 SOA games.example. nobody.invalid. 1 3600 1200 604800 60
  ede 15
client 2 asks www.example A
client 2 gets NOERROR
  answer www.example 60 A 192.0.2.9
client 3 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 3 gets NOERROR
  answer www.example 60 A 192.0.2.1
client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.2
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.2
