# Only the Internet's class is served (RFC 4892 names what CHAOS is asked for; extended error 21: RFC 8914).

client 1 asks version.bind TXT class CH
client 1 gets REFUSED
client 1 asks www.example A class CH edns 1232
client 1 gets REFUSED
  ede 21
client 1 asks www.example A class HS
client 1 gets REFUSED
client 1 asks www.example A class ANY
client 1 gets REFUSED
client 1 asks www.example ANY class CH
client 1 gets REFUSED
