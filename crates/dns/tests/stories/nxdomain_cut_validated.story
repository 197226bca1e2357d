# By default a denial holds for the names below only where it was validated by one who is believed.
server believes-ad yes
client 1 asks gone.example A
upstream 1 gets gone.example A ad
upstream 1 answers NXDOMAIN
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 gets NXDOMAIN
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 asks a.gone.example A
upstream 1 gets a.gone.example A ad
upstream 1 answers NXDOMAIN ad
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 gets NXDOMAIN
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
client 1 asks b.a.gone.example A ad
client 1 gets NXDOMAIN ad
  authority example 300 SOA ns.example. host.example. 1 2 3 4 300
nothing is in flight
