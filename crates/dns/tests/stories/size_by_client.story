# What does not fit is cut by whole sets of records, and TC says so; one who asks over TCP gets all. 512 octets is for those
# who do not speak EDNS, or say less (RFC 1035, section 4.2.1; RFC 6891, section 6.2.3; RFC 2181, section 9).

client 1 asks big.example A edns 4096
upstream 1 gets big.example A
upstream 1 answers NOERROR tc
upstream 1 gets big.example A over tcp
upstream 1 answers NOERROR over tcp
  answer times 60 big.example 300 A 192.0.2.%
client 1 gets NOERROR                  # 60 records of 16 octets: 989 and OPT
  answer times 60 big.example 300 A 192.0.2.%

client 2 asks big.example A
client 2 gets NOERROR tc
client 3 asks big.example A edns 512
client 3 gets NOERROR tc
client 4 asks big.example A edns 100
client 4 gets NOERROR tc
client 5 asks big.example A edns 999   # one octet short
client 5 gets NOERROR tc
client 6 asks big.example A edns 1000
client 6 gets NOERROR
  answer times 60 big.example 300 A 192.0.2.%
client 7 asks big.example A over tcp
client 7 gets NOERROR
  answer times 60 big.example 300 A 192.0.2.%
client 8 asks big.example A over tcp edns 512
client 8 gets NOERROR
  answer times 60 big.example 300 A 192.0.2.%
