# Where no upstream has answered for a while, clients do not wait for each name: eight questions a second are asked, with a second
# of patience, and others fail at once. The first answer ends that.

client 1 asks a.example A edns 1232
upstream 1 gets a.example A
after 300 ms
upstream 1 gets a.example A
after 600 ms
upstream 1 gets a.example A
after 1200 ms
upstream 1 gets a.example A
after 2900 ms
client 1 gets SERVFAIL
  ede 22

client 1 asks b.example A edns 1232
upstream 1 gets b.example A
client 1 asks c.example A edns 1232
upstream 1 gets c.example A
client 1 asks d.example A edns 1232
upstream 1 gets d.example A
client 1 asks e.example A edns 1232
upstream 1 gets e.example A
client 1 asks f.example A edns 1232
upstream 1 gets f.example A
client 1 asks g.example A edns 1232
upstream 1 gets g.example A
client 1 asks h.example A edns 1232
upstream 1 gets h.example A
client 1 asks i.example A edns 1232
upstream 1 gets i.example A
client 2 asks j.example A edns 1232
client 2 gets SERVFAIL
  ede 22
after 1 s
client 1 gets SERVFAIL
  ede 22
client 1 gets SERVFAIL
  ede 22
client 1 gets SERVFAIL
  ede 22
client 1 gets SERVFAIL
  ede 22
client 1 gets SERVFAIL
  ede 22
client 1 gets SERVFAIL
  ede 22
client 1 gets SERVFAIL
  ede 22
client 1 gets SERVFAIL
  ede 22

client 2 asks j.example A              # that it was not asked is not remembered
upstream 1 gets j.example A
upstream 1 answers NOERROR
  answer j.example 600 A 192.0.2.1
client 2 gets NOERROR
  answer j.example 600 A 192.0.2.1

client 1 asks k.example A              # up again, and waited for as long as ever
upstream 1 gets k.example A
after 50 ms
upstream 1 gets k.example A
upstream 1 answers NOERROR
  answer k.example 600 A 192.0.2.1
client 1 gets NOERROR
  answer k.example 600 A 192.0.2.1
nothing is in flight
