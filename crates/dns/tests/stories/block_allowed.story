# A name on an allowlist is blocked neither by a list nor by a policy zone, and is asked for.
policy
  access 198.51.100.0/24 allow
  block example
  rpz *.example CNAME .
  allow good.example
client 1 asks www.good.example A
upstream 1 gets www.good.example A
upstream 1 answers NOERROR
  answer www.good.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.good.example 60 A 192.0.2.1
client 1 asks bad.example A
client 1 gets NXDOMAIN
  authority example 60 SOA example. nobody.invalid. 1 3600 1200 604800 60
