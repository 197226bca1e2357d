# An upstream that does not know EDNS over TCP either is asked again without it.

client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 answers NOERROR tc
upstream 1 gets a.example A over tcp
upstream 1 answers FORMERR over tcp no-edns
upstream 1 gets a.example A no-edns
upstream 1 answers NOERROR
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1
nothing is in flight
