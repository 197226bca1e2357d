# What has the length of no cookie is a format error (RFC 7873, section 5.2.2); without cookies of ours it is none of our
# business.
server cookie-secret 000102030405060708090a0b0c0d0e0f
client 1 asks a.example A
  option 10 01020304
client 1 gets FORMERR
client 1 asks a.example A
  option 10 0102030405060708 01
client 1 gets FORMERR
client 1 asks a.example A
  option 10
client 1 gets FORMERR
nothing is in flight
