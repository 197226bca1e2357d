# However many packets come that do not fit, the question goes on.

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR about a.www.example A 1000 times
  answer a.www.example 300 A 192.0.2.66
upstream 1 gets www.example A over tcp
upstream 1 breaks the stream
upstream 1 gets www.example A
upstream 1 answers NOERROR about a.www.example A     # he is still there
  answer a.www.example 300 A 192.0.2.66
upstream 1 gets www.example A over tcp
upstream 1 answers NOERROR over tcp
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
nothing is in flight
