# Where the target of our alias does not exist, or has no data, that is what is said of it (RFC 6604), behind the alias.
policy
  access 198.51.100.0/24 allow
  local www.lan 200 CNAME none.example.
client 1 asks www.lan A
upstream 1 gets none.example A
upstream 1 answers NXDOMAIN
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 gets NXDOMAIN
  answer www.lan 200 CNAME none.example
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 asks www.lan AAAA
upstream 1 gets none.example AAAA
upstream 1 answers NOERROR
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 gets NOERROR
  answer www.lan 200 CNAME none.example
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
after 100 s
client 1 asks www.lan A
client 1 gets NXDOMAIN
  answer www.lan 200 CNAME none.example
  authority example 200 SOA ns.example. host.example. 1 2 3 4 300
