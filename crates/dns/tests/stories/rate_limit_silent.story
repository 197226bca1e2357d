# With no slip nothing is answered above the limit.
server rate 1
server rate-burst 1
server rate-slip 0
client 1 asks a.example A no-rd
client 1 gets REFUSED
client 1 asks a.example A no-rd
client 1 is ignored
client 1 asks a.example A no-rd
client 1 is ignored
