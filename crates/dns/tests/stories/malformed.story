# What cannot be read gets FORMERR, an operation other than a query NOTIMP (RFC 1035, section 4.1.1; RFC 9619: one question;
# RFC 6891, section 6.1.1: one OPT).

client 1 sends 0001 0100 0000 0000 0000 0000                          # no question
client 1 gets FORMERR
client 1 sends 0002 0100 0002 0000 0000 0000 0161 00 0001 0001 0162 00 0001 0001
client 1 gets FORMERR
client 1 sends 0003 0100 0001 0000 0000 0000 0561 00 0001 0001        # a label too long for the message
client 1 gets FORMERR
client 1 sends 0004 0100 0001 0000 0000 0000 c00c 0001 0001           # a name that leads to itself
client 1 gets FORMERR
client 1 sends 0005 0100 0001 0000 0000 0000 0161 00 0001             # no class
client 1 gets FORMERR
client 1 sends 0006 0100 0001 0001 0000 0000 0161 00 0001 0001 c00c 0001 0001 00000000 0004 c0000201
client 1 gets FORMERR
client 1 sends 0007 0100 0001 0000 0000 0002 0161 00 0001 0001 00 0029 1000 00000000 0000 00 0029 1000 00000000 0000
client 1 gets FORMERR                                                 # two OPT
client 1 sends 0008 0100 0001 0000 0000 0001 0161 00 0001 0001 00 0029 1000 00000000 0004 000a 0008
client 1 gets FORMERR                                                 # an option longer than OPT
client 1 sends 0009 0100 0001 0000 0000 0001 0161 00 0001 0001        # a record that is not there
client 1 gets FORMERR
client 1 sends over tcp 000a 0100 0000 0000 0000 0000
client 1 gets FORMERR
client 1 sends 000b 1000 0001 0000 0000 0000 0161 00 0001 0001        # STATUS
client 1 gets NOTIMP
client 1 sends 000c 2000 0001 0000 0000 0000 0161 00 0006 0001        # NOTIFY
client 1 gets NOTIMP
client 1 sends 000d 2800 0001 0000 0000 0000 0161 00 0006 0001        # UPDATE
client 1 gets NOTIMP
