# An alias that was changed leads elsewhere at once, also for who waits; one that is gone leaves nothing behind.
policy
  access 198.51.100.0/24 allow
  local www.example 200 CNAME a.example.
client 1 asks www.example A
upstream 1 gets a.example A
upstream 1 answers NOERROR
  answer a.example 3600 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 200 CNAME a.example
  answer a.example 3600 A 192.0.2.1
policy
  access 198.51.100.0/24 allow
  local www.example 200 CNAME b.example.
client 1 asks www.example A edns 1232
upstream 1 gets b.example A
policy
  access 198.51.100.0/24 allow
upstream 1 answers NOERROR
  answer b.example 3600 A 192.0.2.2
client 1 gets SERVFAIL
  ede 0
client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 3600 A 192.0.2.3
client 1 gets NOERROR
  answer www.example 3600 A 192.0.2.3
