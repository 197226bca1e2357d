# Who asks what is asked already waits for that answer, and gets it with his own ID, case, flags and EDNS (RFC 5452,
# section 5: no second chance for a forger).

client 1 asks www.example A
upstream 1 gets www.example A
client 2 asks WWW.example A edns 4096
client 3 asks www.example A over tcp
client 1 asks www.example A ad
client 4 asks www.example AAAA                     # another question
upstream 1 gets www.example AAAA
client 5 asks www.example A do                     # and another
upstream 1 gets www.example A do
upstream 1 answers NOERROR to www.example A
  answer www.example 300 A 192.0.2.9
client 5 gets NOERROR
  answer www.example 300 A 192.0.2.9
upstream 1 answers NOERROR to packet 1
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 3 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
upstream 1 answers NOERROR to www.example AAAA
  answer www.example 300 AAAA 2001:db8::1
client 4 gets NOERROR
  answer www.example 300 AAAA 2001:db8::1
nothing is in flight
