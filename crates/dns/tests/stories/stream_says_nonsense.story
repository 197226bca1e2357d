# Nobody else writes into a stream: what does not answer the question there, or says TC, is the upstream's own fault, and
# another is asked.
zone . upstream 1 2

client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 answers NOERROR tc
upstream 1 gets a.example A over tcp
upstream 1 answers NOERROR over tcp about b.example A
  answer b.example 60 A 192.0.2.66
upstream 2 gets a.example A
upstream 2 answers NOERROR tc
upstream 2 gets a.example A over tcp
upstream 2 answers NOERROR over tcp tc
  answer a.example 60 A 192.0.2.66
upstream 1 gets a.example A
upstream 1 answers NOERROR tc
upstream 1 gets a.example A over tcp
upstream 1 answers NOERROR over tcp
  answer a.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 60 A 192.0.2.1
nothing is in flight
