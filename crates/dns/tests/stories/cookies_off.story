# Without cookies of ours those of clients are passed over.
client 1 asks a.example A no-rd
  option 10 01020304
client 1 gets REFUSED
  ede 20
client 1 asks a.example A no-rd
  option 10 0102030405060708
client 1 gets REFUSED
  ede 20
