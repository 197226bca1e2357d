# Another server on the same cache, with other settings, answers from what is held (SIGHUP).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 100 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 100 A 192.0.2.1
after 10 s
reload prefetch-percent 0
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 90 A 192.0.2.1
