# An upstream that does not know EDNS is not asked with it for a quarter of an hour; then it has another chance.

client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 answers FORMERR no-edns
upstream 1 gets a.example A no-edns
upstream 1 answers NOERROR no-edns
  answer a.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 300 A 192.0.2.1

client 1 asks b.example A
upstream 1 gets b.example A no-edns
upstream 1 answers NOERROR no-edns
  answer b.example 300 A 192.0.2.2
client 1 gets NOERROR
  answer b.example 300 A 192.0.2.2

after 899 s
client 1 asks c.example A edns 1232
upstream 1 gets c.example A no-edns
upstream 1 answers NOTIMP no-edns                    # it was not EDNS then: it is not asked once more
client 1 gets SERVFAIL
  ede 0

after 1 s
client 1 asks d.example A
upstream 1 gets d.example A
upstream 1 answers NOERROR
  answer d.example 300 A 192.0.2.4
client 1 gets NOERROR
  answer d.example 300 A 192.0.2.4
