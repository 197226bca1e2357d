# Nothing is fetched anew before its end where the operator does not want it.
server prefetch-percent 0

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 100 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 100 A 192.0.2.1
after 99 s
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 1 A 192.0.2.1
