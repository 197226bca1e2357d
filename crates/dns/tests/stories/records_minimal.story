# Beside an answer nothing is sent that was not asked for, unless the operator wants it.

client 1 asks www.example A
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
  authority example 60 NS ns.example
  additional ns.example 60 A 192.0.2.53
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
after 100 s                            # what was left out does not count
client 1 asks www.example A
client 1 gets NOERROR
  answer www.example 200 A 192.0.2.1
