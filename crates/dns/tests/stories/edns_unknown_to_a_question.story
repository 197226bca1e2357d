# An upstream that understands a question neither with EDNS nor without it may know EDNS all the same.

client 1 asks a.example A edns 1232
upstream 1 gets a.example A
upstream 1 answers FORMERR no-edns
upstream 1 gets a.example A no-edns
upstream 1 answers FORMERR no-edns
client 1 gets SERVFAIL
  ede 0

client 1 asks b.example A
upstream 1 gets b.example A
upstream 1 answers NOERROR
  answer b.example 300 A 192.0.2.2
client 1 gets NOERROR
  answer b.example 300 A 192.0.2.2
