# The same answer twice is one answer; a second one that says otherwise changes nothing.

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
upstream 1 answers NOERROR 2 times
  answer www.example 60 A 192.0.2.66
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
