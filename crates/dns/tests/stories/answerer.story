# An upstream that is a part of this process is asked by streams only, and what it says is an answer as any other's; of one that
# validates, AD counts (RFC 6840, section 5.8), whatever is said of servers.
zone . answerer 1

client 1 asks a.example A do
client 2 asks a.example A do           # one question for both
upstream 1 gets a.example A over tcp ad do
after 2999 ms
upstream 1 answers NOERROR over tcp ad
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR ad
  answer a.example 60 A 192.0.2.1
client 2 gets NOERROR ad
  answer a.example 60 A 192.0.2.1
client 3 asks a.example A do
client 3 gets NOERROR ad
  answer a.example 60 A 192.0.2.1

client 1 asks bogus.example A edns 1232
upstream 1 gets bogus.example A over tcp ad
upstream 1 answers SERVFAIL over tcp
  ede 6
client 1 gets SERVFAIL
  ede 6
nothing is in flight
