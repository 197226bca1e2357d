# That a name does not exist is served past its end too, with a code of its own (extended error 19: RFC 8914; RFC 8767,
# section 4).

client 1 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NXDOMAIN
  authority example 60 SOA ns.example hostmaster.example 1 7200 900 1209600 60
client 1 gets NXDOMAIN
  authority example 60 SOA ns.example hostmaster.example 1 7200 900 1209600 60
after 61 s
client 1 asks nx.example A edns 1232
upstream 1 gets nx.example A
upstream 1 answers REFUSED
client 1 gets NXDOMAIN
  authority example 30 SOA ns.example hostmaster.example 1 7200 900 1209600 60
  ede 19
