# TTLs of all records run down while an answer is kept, each by itself; OPT has none (RFC 1035, section 3.2.1).
server minimal no

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 CNAME cdn.example
  answer cdn.example 100 A 192.0.2.1
  authority example 3600 NS ns.example
  additional ns.example 200 A 192.0.2.53
client 1 gets NOERROR
  answer www.example 300 CNAME cdn.example
  answer cdn.example 100 A 192.0.2.1
  authority example 3600 NS ns.example
  additional ns.example 200 A 192.0.2.53

after 40 s
client 2 asks www.example A edns 1232
client 2 gets NOERROR
  answer www.example 260 CNAME cdn.example
  answer cdn.example 60 A 192.0.2.1
  authority example 3560 NS ns.example
  additional ns.example 160 A 192.0.2.53

after 49 s
client 3 asks www.example A
client 3 gets NOERROR
  answer www.example 211 CNAME cdn.example
  answer cdn.example 11 A 192.0.2.1
  authority example 3511 NS ns.example
  additional ns.example 111 A 192.0.2.53

after 11 s                             # the least TTL decides for the whole
client 4 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.2
client 4 gets NOERROR
  answer www.example 300 A 192.0.2.2
