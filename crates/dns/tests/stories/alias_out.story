# An alias of ours that leads to a name that is not is answered with both: the upstream is asked for the target, once for
# all who want it, by whatever name. What it says is held, and our own TTL does not run down with it.
policy
  access 198.51.100.0/24 allow
  local shop.lan 300 CNAME www.lan.
  local www.lan 200 CNAME cdn.example.
client 1 asks Shop.LAN A
also client 2 asks cdn.example A
also client 3 asks www.lan A do
also client 4 asks www.lan A
upstream 1 gets cdn.example A
upstream 1 gets cdn.example A do
upstream 1 answers NOERROR to packet 1
  answer cdn.example 100 CNAME edge.example
  answer edge.example 90 A 192.0.2.1
client 1 gets NOERROR
  answer shop.lan 300 CNAME www.lan
  answer www.lan 200 CNAME cdn.example
  answer cdn.example 100 CNAME edge.example
  answer edge.example 90 A 192.0.2.1
client 2 gets NOERROR
  answer cdn.example 100 CNAME edge.example
  answer edge.example 90 A 192.0.2.1
client 4 gets NOERROR
  answer www.lan 200 CNAME cdn.example
  answer cdn.example 100 CNAME edge.example
  answer edge.example 90 A 192.0.2.1
upstream 1 answers NOERROR ad to packet 2
  answer cdn.example 80 A 192.0.2.2
  answer cdn.example 80 RRSIG A 13 2 80 1900000000 1700000000 1 example 00
client 3 gets NOERROR
  answer www.lan 200 CNAME cdn.example
  answer cdn.example 80 A 192.0.2.2
  answer cdn.example 80 RRSIG A 13 2 80 1900000000 1700000000 1 example 00
after 40 s
client 1 asks www.lan A
client 1 gets NOERROR
  answer www.lan 200 CNAME cdn.example
  answer cdn.example 60 CNAME edge.example
  answer edge.example 50 A 192.0.2.1
client 1 asks www.lan CNAME
client 1 gets NOERROR
  answer www.lan 200 CNAME cdn.example
nothing is in flight
