# A name is asked from the upstreams of the longest zone that it is in (whole labels count); a name in none is refused.
zone example upstream 1
zone Corp.Example upstream 2 3

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
client 1 asks a.CORP.example A
upstream 2 gets a.corp.example A
upstream 2 answers SERVFAIL
upstream 3 gets a.corp.example A
upstream 3 answers NOERROR
  answer a.corp.example 60 A 10.0.0.1
client 1 gets NOERROR
  answer a.corp.example 60 A 10.0.0.1
client 1 asks notcorp.example A
upstream 1 gets notcorp.example A
upstream 1 answers NOERROR
  answer notcorp.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer notcorp.example 60 A 192.0.2.1

client 1 asks www.other A edns 1232
client 1 gets REFUSED
  ede 20
client 1 asks . NS
client 1 gets REFUSED
