# A hosts file answers for names and addresses; other types of a name in it have no data, and are not asked for elsewhere.
policy
  access 198.51.100.0/24 allow
  hosts 192.0.2.5 printer.lan printer
  hosts 192.0.2.6 printer.lan
client 1 asks Printer.LAN A
client 1 gets NOERROR
  answer printer.lan 60 A 192.0.2.5
  answer printer.lan 60 A 192.0.2.6
client 1 asks 5.2.0.192.in-addr.arpa PTR
client 1 gets NOERROR
  answer 5.2.0.192.in-addr.arpa 60 PTR printer.lan.
client 1 asks printer AAAA
client 1 gets NOERROR
  authority printer 60 SOA printer. nobody.invalid. 1 3600 1200 604800 60
after 90 s
client 1 asks printer.lan A
client 1 gets NOERROR
  answer printer.lan 60 A 192.0.2.5
  answer printer.lan 60 A 192.0.2.6
nothing is in flight
