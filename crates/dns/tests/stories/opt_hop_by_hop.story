# OPT is between neighbours: no option of a client is passed on or kept, and none of an upstream (RFC 6891, section 6.1.1;
# cookies: RFC 7873; client subnet: RFC 7871).

client 1 asks www.example A edns 4096
  option 10 0102030405060708
  option 8 0001180005060700
  option 65001 00
upstream 1 gets www.example A
upstream 1 answers NOERROR
  answer www.example 300 A 192.0.2.1
  ede 4
client 1 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 2 asks www.example A edns 512
client 2 gets NOERROR
  answer www.example 300 A 192.0.2.1
client 3 asks www.example A
client 3 gets NOERROR
  answer www.example 300 A 192.0.2.1
