# Where a stream fails, or is refused, or says nothing in time, another upstream is asked (RFC 7766).
zone . upstream 1 2

client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 answers NOERROR tc
upstream 1 gets a.example A over tcp
upstream 1 breaks the stream
upstream 2 gets a.example A
upstream 2 answers NOERROR
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1

client 1 asks b.example A
upstream 1 gets b.example A
upstream 1 answers NOERROR tc
upstream 1 gets b.example A over tcp
after 2499 ms
after 1 ms
upstream 2 gets b.example A
upstream 2 answers NOERROR
  answer b.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer b.example 60 A 192.0.2.1
upstream 1 answers NOERROR over tcp    # too late
  answer b.example 60 A 192.0.2.66

upstream 1 takes no streams
client 1 asks c.example A
upstream 1 gets c.example A
upstream 1 answers NOERROR tc
upstream 2 gets c.example A
upstream 2 answers NOERROR
  answer c.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer c.example 60 A 192.0.2.1
nothing is in flight
