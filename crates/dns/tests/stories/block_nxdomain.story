# A blocked name and all below it do not exist, whatever is asked for, and a client that reads such is told that it is
# blocked (RFC 8914, 15). A name that only ends alike is none of these. ANY gets what ANY gets.
policy
  access 198.51.100.0/24 allow
  block ads.example
client 1 asks ads.example A
client 1 gets NXDOMAIN
  authority ads.example 60 SOA ads.example. nobody.invalid. 1 3600 1200 604800 60
client 1 asks a.b.ADS.example TXT do
client 1 gets NXDOMAIN
  authority ads.example 60 SOA ads.example. nobody.invalid. 1 3600 1200 604800 60
  ede 15
client 1 asks ads.example A over tcp
client 1 gets NXDOMAIN
  authority ads.example 60 SOA ads.example. nobody.invalid. 1 3600 1200 604800 60
client 1 asks bads.example A
upstream 1 gets bads.example A
upstream 1 answers NOERROR
  answer bads.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer bads.example 60 A 192.0.2.1
nothing is in flight
