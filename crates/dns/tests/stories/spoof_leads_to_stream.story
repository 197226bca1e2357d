# When packets come that have all but the question right, somebody guesses: the question goes over TCP, and what comes over
# UDP after that is nothing any more (RFC 5452, section 9.3).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR about a.www.example A 2 times
  answer a.www.example 300 A 192.0.2.66
upstream 1 answers NOERROR about b.www.example A
  answer b.www.example 300 A 192.0.2.66
upstream 1 gets www.example A over tcp
upstream 1 answers NOERROR                           # guessed at last
  answer www.example 300 A 192.0.2.66
upstream 1 answers NXDOMAIN
upstream 1 answers NOERROR over tcp
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight
