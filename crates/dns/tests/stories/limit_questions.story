# At the limit of questions in flight a new one gets SERVFAIL at once; one that is in flight can still be joined, and what is
# held past its end is better than nothing.
server questions 1

client 1 asks old.example A
upstream 1 gets old.example A
client 2 asks other.example A edns 1232
client 2 gets SERVFAIL
  ede 0
client 3 asks old.example A
upstream 1 answers NOERROR
  answer old.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer old.example 60 A 192.0.2.1
client 3 gets NOERROR
  answer old.example 60 A 192.0.2.1

client 2 asks other.example A          # that was no failure of the name: it is asked now
upstream 1 gets other.example A
upstream 1 answers NOERROR
  answer other.example 60 A 192.0.2.2
client 2 gets NOERROR
  answer other.example 60 A 192.0.2.2

after 60 s
client 1 asks third.example A
upstream 1 gets third.example A
client 2 asks old.example A edns 1232
client 2 gets NOERROR
  answer old.example 30 A 192.0.2.1
  ede 3
upstream 1 answers NOERROR
  answer third.example 60 A 192.0.2.3
client 1 gets NOERROR
  answer third.example 60 A 192.0.2.3
