# An answer that there is nothing is kept no longer than the SOA's MINIMUM, which is then its TTL too
# (RFC 2308, section 5).

client 1 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NXDOMAIN
  authority example 3600 SOA ns.example hostmaster.example 1 7200 900 1209600 60
client 1 gets NXDOMAIN
  authority example 60 SOA ns.example hostmaster.example 1 7200 900 1209600 60

after 50 s
client 2 asks NX.example A             # from the cache, aged
client 2 gets NXDOMAIN
  authority example 10 SOA ns.example hostmaster.example 1 7200 900 1209600 60

after 10 s
client 3 asks nx.example A             # its time is over
upstream 1 gets nx.example A
upstream 1 answers NOERROR
  answer nx.example 300 A 192.0.2.7
client 3 gets NOERROR
  answer nx.example 300 A 192.0.2.7
