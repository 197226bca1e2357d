# An answer that there is nothing, without an SOA of a zone that the name is in, is told but not kept (RFC 2308, section 5).

client 1 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NXDOMAIN
client 1 gets NXDOMAIN

client 1 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NXDOMAIN            # of another zone
  authority other 3600 SOA ns.other hostmaster.other 1 7200 900 1209600 900
client 1 gets NXDOMAIN
  authority other 3600 SOA ns.other hostmaster.other 1 7200 900 1209600 900

client 1 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NOERROR
client 1 gets NOERROR

client 1 asks nx.example A
upstream 1 gets nx.example A
upstream 1 answers NXDOMAIN
client 1 gets NXDOMAIN
