# Names that the world's servers know nothing of are not asked for (RFC 6303, RFC 6761, RFC 7686), but where a zone of theirs is
# forwarded.
zone . upstream 1
zone corp.test upstream 2
policy
  access 198.51.100.0/24 allow
  exempt corp.test
client 1 asks localhost A
client 1 gets NOERROR
  answer localhost 10800 A 127.0.0.1
client 1 asks a.localhost AAAA
client 1 gets NOERROR
  answer a.localhost 10800 AAAA ::1
client 1 asks 1.0.0.127.in-addr.arpa PTR
client 1 gets NOERROR
  answer 1.0.0.127.in-addr.arpa 10800 PTR localhost.
client 1 asks a.onion A
client 1 gets NXDOMAIN
  authority onion 3600 SOA onion. nobody.invalid. 1 3600 1200 604800 10800
client 1 asks 9.9.168.192.in-addr.arpa PTR
client 1 gets NXDOMAIN
  authority 168.192.in-addr.arpa 3600 SOA 168.192.in-addr.arpa. nobody.invalid. 1 3600 1200 604800 10800
client 1 asks a.test A
client 1 gets NXDOMAIN
  authority test 3600 SOA test. nobody.invalid. 1 3600 1200 604800 10800
client 1 asks a.corp.test A
upstream 2 gets a.corp.test A
upstream 2 answers NOERROR
  answer a.corp.test 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.corp.test 60 A 192.0.2.1
