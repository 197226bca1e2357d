# A version of EDNS that we do not know is answered with BADVERS and ours (RFC 6891, section 6.1.3); DO
# is given back (RFC 3225, section 3).

client 1 asks www.example A version 1
client 1 gets BADVERS
client 1 asks www.example A version 255 do
client 1 gets BADVERS
