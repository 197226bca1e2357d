# A socket at which somebody guesses is closed, and what was asked by it is asked over TCP (RFC 5452, section 9.3).

client 1 asks www.example A
upstream 1 gets www.example A
client 2 asks other.example A
upstream 1 gets other.example A
upstream 1 answers NOERROR
  answer other.example 300 A 192.0.2.2
client 2 gets NOERROR
  answer other.example 300 A 192.0.2.2
the socket of upstream 1 is suspect
upstream 1 gets www.example A over tcp
upstream 1 answers NOERROR to www.example A        # by that socket
  answer www.example 300 A 192.0.2.66
upstream 1 answers NOERROR over tcp
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight
