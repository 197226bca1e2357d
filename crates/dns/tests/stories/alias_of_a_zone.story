# A DNAME leads every name below it on; that the name it makes is too long is an answer, and no failure (RFC 6672,
# sections 2.2 and 3.1).

client 1 asks www.old.example A
upstream 1 gets www.old.example A
upstream 1 answers NOERROR
  answer old.example 300 DNAME new.example
  answer www.old.example 300 CNAME www.new.example
  answer www.new.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer old.example 300 DNAME new.example
  answer www.old.example 300 CNAME www.new.example
  answer www.new.example 300 A 192.0.2.1

client 1 asks long.old.example A
upstream 1 gets long.old.example A
upstream 1 answers YXDOMAIN
  answer old.example 300 DNAME new.example
client 1 gets YXDOMAIN
  answer old.example 300 DNAME new.example
