# A response is never answered, or two servers could talk for ever; nor is what has no whole header (RFC 1035, section 4.1.1).

client 1 sends 0001 8100 0001 0000 0000 0000 0161 00 0001 0001
client 1 is ignored
client 1 sends 0001 9000 0001 0000 0000 0000 0161 00 0001 0001
client 1 is ignored
client 1 sends 0001 0100 0001 0000 0000 00
client 1 is ignored
client 1 sends 00
client 1 is ignored
client 1 sends over tcp 0001 8100 0001 0000 0000 0000 0161 00 0001 0001
client 1 is ignored
