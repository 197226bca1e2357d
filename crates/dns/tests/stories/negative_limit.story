# An answer that there is nothing is kept no longer than the operator says (RFC 2308, section 5: one to three hours).
server negative-ttl-max 100 s

client 1 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NXDOMAIN
  authority example 86400 SOA ns.example hostmaster.example 1 7200 900 1209600 86400
client 1 gets NXDOMAIN
  authority example 100 SOA ns.example hostmaster.example 1 7200 900 1209600 86400
after 100 s
client 1 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NXDOMAIN
  authority example 50 SOA ns.example hostmaster.example 1 7200 900 1209600 86400
client 1 gets NXDOMAIN
  authority example 50 SOA ns.example hostmaster.example 1 7200 900 1209600 86400
