# Zones of each kind: all there is (static), what there is (transparent), one for all (redirect), and what is closed.
policy
  access 198.51.100.0/24 allow
  local zone lan static
  local a.b.lan 300 A 192.0.2.1
  local zone corp.example transparent
  local www.corp.example 300 A 192.0.2.2
  local zone parked.example redirect
  local parked.example 300 A 192.0.2.3
  local zone shut.example refuse
  local zone gone.example nxdomain
client 1 asks a.b.lan A
client 1 gets NOERROR
  answer a.b.lan 300 A 192.0.2.1
client 1 asks b.lan A
client 1 gets NOERROR
  authority lan 60 SOA lan. nobody.invalid. 1 3600 1200 604800 60
client 1 asks c.lan A do
client 1 gets NXDOMAIN
  authority lan 60 SOA lan. nobody.invalid. 1 3600 1200 604800 60
client 1 asks www.corp.example A
client 1 gets NOERROR
  answer www.corp.example 300 A 192.0.2.2
client 1 asks other.corp.example A
upstream 1 gets other.corp.example A
upstream 1 answers NOERROR
  answer other.corp.example 60 A 192.0.2.4
client 1 gets NOERROR
  answer other.corp.example 60 A 192.0.2.4
client 1 asks any.parked.example A
client 1 gets NOERROR
  answer any.parked.example 300 A 192.0.2.3
client 1 asks a.shut.example A do
client 1 gets REFUSED
  ede 15
client 1 asks a.gone.example A do
client 1 gets NXDOMAIN
  authority gone.example 60 SOA gone.example. nobody.invalid. 1 3600 1200 604800 60
  ede 15
nothing is in flight
