# What was asked under one policy and answered under the next is told to who asked then, and not served to who asks now.
server attempts 1
policy
  access 198.51.100.0/24 allow
client 1 asks bad.example A
upstream 1 gets bad.example A
policy
  access 198.51.100.0/24 allow
  block bad.example
after 4 s
client 2 asks bad.example A
client 2 gets NXDOMAIN
  authority bad.example 60 SOA bad.example. nobody.invalid. 1 3600 1200 604800 60
upstream 1 answers NOERROR
  answer bad.example 3600 A 192.0.2.2
client 1 gets NOERROR
  answer bad.example 3600 A 192.0.2.2
client 1 asks bad.example A
client 1 gets NXDOMAIN
  authority bad.example 60 SOA bad.example. nobody.invalid. 1 3600 1200 604800 60
after 600 s
client 1 asks bad.example A
client 1 gets NXDOMAIN
  authority bad.example 60 SOA bad.example. nobody.invalid. 1 3600 1200 604800 60
