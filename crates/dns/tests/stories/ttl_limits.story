# No record is kept for less or for more than the operator says (RFC 8767, section 4, speaks of an upper limit).
server ttl-min 30 s
server ttl-max 600 s

client 1 asks short.example A
upstream 1 gets short.example A
upstream 1 answers NOERROR
  answer short.example 5 A 192.0.2.1
client 1 gets NOERROR
  answer short.example 30 A 192.0.2.1
after 20 s
client 1 asks short.example A
client 1 gets NOERROR
  answer short.example 10 A 192.0.2.1

client 1 asks long.example A
upstream 1 gets long.example A
upstream 1 answers NOERROR
  answer long.example 86400 A 192.0.2.1
client 1 gets NOERROR
  answer long.example 600 A 192.0.2.1

client 1 asks odd.example A            # with the top bit it is as long as may be (RFC 8767, section 4)
upstream 1 gets odd.example A
upstream 1 answers NOERROR
  answer odd.example 2147483649 A 192.0.2.1
client 1 gets NOERROR
  answer odd.example 600 A 192.0.2.1

client 1 asks none.example A           # 0 stays 0
upstream 1 gets none.example A
upstream 1 answers NOERROR
  answer none.example 0 A 192.0.2.1
client 1 gets NOERROR
  answer none.example 0 A 192.0.2.1
