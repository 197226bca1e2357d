# What is held past its end is served where the upstreams fail, with 30 s and saying so, and the failure is then remembered
# for as long (RFC 8767, section 5; extended error 3: RFC 8914).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1

after 100 s
client 2 asks www.example A edns 1232
upstream 1 gets www.example A
upstream 1 answers SERVFAIL
client 2 gets NOERROR
  answer www.example 30 A 192.0.2.1
  ede 3
client 3 asks www.example A
client 3 gets NOERROR
  answer www.example 30 A 192.0.2.1
after 29 s
client 3 asks www.example A
client 3 gets NOERROR
  answer www.example 30 A 192.0.2.1
after 1 s
client 3 asks www.example A            # then another try
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.2
client 3 gets NOERROR
  answer www.example 60 A 192.0.2.2
