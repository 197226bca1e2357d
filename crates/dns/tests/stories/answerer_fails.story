# An upstream that is a part of this process and fails, refuses, or takes too long is given up for another, and told to stop
# when the question is over; what it says then is nobody's. (It is waited for as long as it was said to be, not by its round trips.)
zone . answerer 1 2

client 1 asks a.example A
upstream 1 gets a.example A over tcp ad
upstream 1 breaks the stream
upstream 2 gets a.example A over tcp ad
upstream 2 answers NOERROR over tcp
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1

client 1 asks b.example A
upstream 2 gets b.example A over tcp ad    # which answered at once
after 2999 ms
after 1 ms
upstream 1 gets b.example A over tcp ad
upstream 1 answers NOERROR over tcp
  answer b.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer b.example 60 A 192.0.2.1
upstream 2 is told to stop
upstream 2 answers NOERROR over tcp    # too late
  answer b.example 60 A 192.0.2.66

client 1 asks c.example A
upstream 1 gets c.example A over tcp ad
after 2999 ms
after 1 ms
upstream 2 gets c.example A over tcp ad
upstream 1 answers NOERROR over tcp    # the first is taken all the same
  answer c.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer c.example 60 A 192.0.2.1
upstream 2 is told to stop

upstream 2 takes no streams
upstream 1 takes no streams
client 1 asks d.example A edns 1232
client 1 gets SERVFAIL
  ede 22
nothing is in flight
