# Answers for those who asked with DO, and for those with CD, are kept by themselves (RFC 4035, sections 3.2.1
# and 3.2.2).

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1

client 1 asks www.example A do
upstream 1 gets www.example A do
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.2
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.2

client 1 asks www.example A cd
upstream 1 gets www.example A cd
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.3
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.3

client 1 asks www.example A do cd
upstream 1 gets www.example A do cd
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.4
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.4

client 2 asks www.example A edns 4096
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 2 asks www.example A do
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.2
client 2 asks www.example A cd
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.3
client 2 asks www.example A do cd ad
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.4
