# An upstream that answers in no time what it holds may take long for what it does not: each wait for it is twice the last,
# from the least on (RFC 6298, section 5.5).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1

client 1 asks slow.example A
upstream 1 gets slow.example A
after 49 ms
after 1 ms
upstream 1 gets slow.example A
after 99 ms
after 1 ms
upstream 1 gets slow.example A
after 199 ms
after 1 ms
upstream 1 gets slow.example A
after 2000 ms
upstream 1 answers NOERROR
  answer slow.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer slow.example 60 A 192.0.2.1
nothing is in flight
