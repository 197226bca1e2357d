# Questions of a network that is to be dropped get no answer, good or malformed; who is only refused gets none to what is
# malformed.
policy
  access 198.51.100.1 drop
  access 198.51.100.2 refuse
client 1 asks a.example A
client 1 is ignored
client 1 asks a.example A over tcp
client 1 is ignored
client 1 sends 00 01 01 00 00 02 00 00 00 00 00 00
client 1 is ignored
client 2 sends 00 01 01 00 00 02 00 00 00 00 00 00
client 2 is ignored
nothing is in flight
