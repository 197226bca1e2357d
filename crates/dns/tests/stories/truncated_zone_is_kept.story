# A question goes to no upstream but those of its zone, also when it has to be asked by a stream after sending failed.
zone . upstream 1
zone corp upstream 2

client 1 asks www.corp A
upstream 2 gets www.corp A
upstream 2 is out of reach
after 900 ms                           # it could not be sent a second time
upstream 2 answers NOERROR tc
upstream 2 gets www.corp A over tcp
upstream 2 answers NOERROR over tcp
  answer www.corp 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.corp 300 A 192.0.2.1
