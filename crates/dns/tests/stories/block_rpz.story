# A response policy zone denies, empties, drops, passes and answers.
policy
  access 198.51.100.0/24 allow
  rpz gone.example CNAME .
  rpz empty.example CNAME *.
  rpz drop.example CNAME rpz-drop.
  rpz ok.wild.example CNAME rpz-passthru.
  rpz *.wild.example CNAME .
  rpz walled.example 60 A 192.0.2.80
client 1 asks gone.example A do
client 1 gets NXDOMAIN
  authority gone.example 60 SOA gone.example. nobody.invalid. 1 3600 1200 604800 60
  ede 15
client 1 asks empty.example A
client 1 gets NOERROR
  authority empty.example 60 SOA empty.example. nobody.invalid. 1 3600 1200 604800 60
client 1 asks drop.example A
client 1 is ignored
client 1 asks a.wild.example A
client 1 gets NXDOMAIN
  authority wild.example 60 SOA wild.example. nobody.invalid. 1 3600 1200 604800 60
client 1 asks walled.example A do
client 1 gets NOERROR
  answer walled.example 60 A 192.0.2.80
  ede 4
client 1 asks ok.wild.example A
upstream 1 gets ok.wild.example A
upstream 1 answers NOERROR
  answer ok.wild.example 60 A 192.0.2.1
client 1 gets NOERROR
  answer ok.wild.example 60 A 192.0.2.1
