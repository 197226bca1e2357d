# An upstream that answers nothing of use (a referral, aliases that it did not follow, nothing, what cannot be read) is left
# for another; if all are so, what the last says is told and not kept (RFC 2308, section 2.2.1).
zone . upstream 1 2 3 4

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR                           # a referral
  authority example 3600 NS ns.example
upstream 2 gets www.example A
upstream 2 answers NOERROR                           # nothing
upstream 3 gets www.example A
upstream 3 answers NOERROR no-edns short by 2        # unreadable
  answer www.example 300 A 192.0.2.1
upstream 4 gets www.example A
upstream 4 answers NOERROR
  answer www.example 300 CNAME cdn.example
client 1 gets NOERROR
  answer www.example 300 CNAME cdn.example
nothing is in flight

client 1 asks www.example A                          # nothing of it was kept
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
