# BADVERS, BADCOOKIE and the like are between an upstream and us: after BADVERS it is asked without EDNS, and the client hears
# of neither (RFC 6891, section 6.1.3).

client 1 asks www.example A edns 1232
upstream 1 gets www.example A
upstream 1 answers BADVERS
upstream 1 gets www.example A no-edns
upstream 1 answers BADCOOKIE
client 1 gets SERVFAIL
  ede 0
client 1 asks other.example A
upstream 1 gets other.example A
upstream 1 answers BADCOOKIE
client 1 gets SERVFAIL
