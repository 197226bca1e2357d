# An upstream that does not know EDNS is asked again without it (RFC 6891, section 6.2.2).

client 1 asks www.example A do
upstream 1 gets www.example A do
upstream 1 answers FORMERR no-edns
upstream 1 gets www.example A no-edns
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight

after 900 s                                          # by then that is forgotten
client 1 asks other.example A
upstream 1 gets other.example A
upstream 1 answers NOTIMP no-edns without question
upstream 1 gets other.example A no-edns
upstream 1 answers NOERROR
  answer other.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer other.example 300 A 192.0.2.1

after 900 s
client 1 asks third.example A edns 1232
upstream 1 gets third.example A
upstream 1 answers FORMERR                           # with OPT: some repeat what they do not understand
upstream 1 gets third.example A no-edns
upstream 1 answers FORMERR no-edns                   # it means the question
client 1 gets SERVFAIL
  ede 0
