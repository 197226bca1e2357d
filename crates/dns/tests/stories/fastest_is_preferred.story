# Of several upstreams the one that answers soonest is asked (RFC 6298 for the smoothing).
zone . upstream 1 2

client 1 asks a.example A
upstream 1 gets a.example A
after 150 ms
upstream 1 answers NOERROR             # 150 ms
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1

client 1 asks b.example A
upstream 2 gets b.example A            # never measured: taken for 100 ms
after 20 ms
upstream 2 answers NOERROR             # 20 ms
  answer b.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer b.example 60 A 192.0.2.1

client 1 asks c.example A
upstream 2 gets c.example A
upstream 2 answers NOERROR
  answer c.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer c.example 60 A 192.0.2.1
