# Records that do not belong to the question are left out, and none is ever used for another question (RFC 2181,
# section 5.4.1; RFC 5452, section 6).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.bank.example 300 A 192.0.2.66
  answer www.example 300 A 192.0.2.1
  answer www.example 300 TXT "more"
  authority bank.example 300 NS ns.evil.example
  additional www.bank.example 300 A 192.0.2.66
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1

client 1 asks www.bank.example A
upstream 1 gets www.bank.example A
upstream 1 answers NOERROR
  answer www.bank.example 300 A 192.0.2.7
client 1 gets NOERROR
  answer www.bank.example 300 A 192.0.2.7
