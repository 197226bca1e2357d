# Types that are no data are not for a resolver (RFC 6895, section 3.1; transfers: RFC 5936).

client 1 asks example AXFR edns 1232
client 1 gets REFUSED
  ede 20
client 1 asks example AXFR over tcp
client 1 gets REFUSED
client 1 asks example TYPE251         # IXFR
client 1 gets REFUSED
client 1 asks example TYPE41 edns 1232    # OPT
client 1 gets FORMERR
  ede 0
client 1 asks example TYPE0
client 1 gets FORMERR
client 1 asks example TYPE249 edns 1232
client 1 gets NOTIMP
  ede 21
client 1 asks example TYPE253
client 1 gets NOTIMP
client 1 asks example TYPE128
client 1 gets NOTIMP
client 1 asks example TYPE127          # the last that is data
upstream 1 gets example TYPE127
upstream 1 answers NOERROR
client 1 gets NOERROR
