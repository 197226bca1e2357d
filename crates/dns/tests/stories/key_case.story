# Names are equal in any case, and each client gets back the case in which it asked (RFC 4343, section 4).

client 1 asks WwW.Example A
upstream 1 gets www.example A
client 2 asks www.EXAMPLE A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 3 asks wwW.examplE A
client 3 gets NOERROR
  answer www.example 300 A 192.0.2.1
