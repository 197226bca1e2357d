# An upstream that is alone is asked again, each time after a longer wait, and in the end the client is told
# (RFC 1536, section 1; extended error 22: RFC 8914).

client 1 asks www.example A edns 1232
upstream 1 gets www.example A
after 300 ms
upstream 1 gets www.example A
after 600 ms
upstream 1 gets www.example A
after 1200 ms
upstream 1 gets www.example A
after 2899 ms
after 1 ms
client 1 gets SERVFAIL
  ede 22
nothing is in flight
