# Blocked names have the addresses of nobody, and nothing else. To a client that reads such, that is a forged answer
# (RFC 8914, 4), and where it is empty, the reason.
policy
  access 198.51.100.0/24 allow
  answer zero
  reason filtered
  block ads.example
client 1 asks www.ads.example A do
client 1 gets NOERROR
  answer www.ads.example 60 A 0.0.0.0
  ede 4
client 1 asks www.ads.example AAAA
client 1 gets NOERROR
  answer www.ads.example 60 AAAA ::
client 1 asks ads.example MX do
client 1 gets NOERROR
  authority ads.example 60 SOA ads.example. nobody.invalid. 1 3600 1200 604800 60
  ede 17
