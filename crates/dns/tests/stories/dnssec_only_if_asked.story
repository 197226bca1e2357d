# Records of DNSSEC are for those who ask for them (RFC 4035, section 3.2.1; RFC 3225).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR             # it says more than it was asked
  answer www.example 300 A 192.0.2.1
  answer www.example 300 RRSIG A 8 2 300 1900000000 1700000000 12345 example 0102
  authority a.example 300 NSEC z.example A RRSIG NSEC
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1

client 2 asks www.example A do
upstream 1 gets www.example A do
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
  answer www.example 300 RRSIG A 8 2 300 1900000000 1700000000 12345 example 0102
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
  answer www.example 300 RRSIG A 8 2 300 1900000000 1700000000 12345 example 0102

client 3 asks www.example A
client 3 gets NOERROR
  answer www.example 300 A 192.0.2.1

client 3 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NXDOMAIN
  authority example 300 SOA ns.example hostmaster.example 1 7200 900 1209600 60
  authority example 300 RRSIG SOA 8 1 300 1900000000 1700000000 12345 example 0102
  authority m.example 300 NSEC z.example A RRSIG NSEC
client 3 gets NXDOMAIN
  authority example 60 SOA ns.example hostmaster.example 1 7200 900 1209600 60

client 3 asks sub.example DS           # what is asked for is told
upstream 1 gets sub.example DS
upstream 1 answers NOERROR
  answer sub.example 300 DS 12345 8 2 00112233
client 3 gets NOERROR
  answer sub.example 300 DS 12345 8 2 00112233
