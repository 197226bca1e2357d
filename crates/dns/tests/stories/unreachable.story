# An upstream that cannot be reached, says the kernel, is left for another at once.
zone . upstream 1 2

client 1 asks www.example A
upstream 1 gets www.example A
client 2 asks other.example A
upstream 1 gets other.example A
upstream 1 is unreachable
upstream 2 gets www.example A
upstream 2 gets other.example A
upstream 2 answers NOERROR to www.example A
  answer www.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer www.example 60 A 192.0.2.1
upstream 1 is unreachable              # as was known
upstream 2 answers NOERROR to other.example A
  answer other.example 60 A 192.0.2.2
client 2 gets NOERROR
  answer other.example 60 A 192.0.2.2
client 1 asks third.example A          # and nobody asks it now
upstream 2 gets third.example A
upstream 2 answers NOERROR
  answer third.example 60 A 192.0.2.3
client 1 gets NOERROR
  answer third.example 60 A 192.0.2.3
nothing is in flight
