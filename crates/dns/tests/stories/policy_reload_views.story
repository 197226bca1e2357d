# Where views are named otherwise, what was held for a number is nobody's any more; access changes at once.
policy
  access 198.51.100.0/24 allow
  view 198.51.100.1 kids
client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 answers NOERROR
  answer a.example 3600 A 192.0.2.1
client 1 gets NOERROR
  answer a.example 3600 A 192.0.2.1
policy
  access 198.51.100.0/24 allow
  view 198.51.100.1 guests
client 1 asks a.example A
upstream 1 gets a.example A
upstream 1 answers NOERROR
  answer a.example 3600 A 192.0.2.2
client 1 gets NOERROR
  answer a.example 3600 A 192.0.2.2
policy
  access 198.51.100.0/24 refuse
  view 198.51.100.1 guests
client 1 asks a.example A
client 1 gets REFUSED
policy
  access 198.51.100.0/24 allow
  view 198.51.100.1 kids
client 1 asks a.example A
client 1 gets NOERROR
  answer a.example 3600 A 192.0.2.1
