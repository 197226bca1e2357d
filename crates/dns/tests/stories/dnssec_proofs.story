# Who asks for DNSSEC gets the proofs that belong to the answer of a wildcard, also where answers are minimal (RFC 4035,
# section 3.1.3.3).

client 1 asks a.wild.example A do
upstream 1 gets a.wild.example A do
upstream 1 answers NOERROR
  answer a.wild.example 300 A 192.0.2.1
  answer a.wild.example 300 RRSIG A 8 2 300 1900000000 1700000000 12345 example 0102
  authority wild.example 300 NSEC z.example A RRSIG NSEC
  authority wild.example 300 RRSIG NSEC 8 2 300 1900000000 1700000000 12345 example 0304
  additional ns.example 300 A 192.0.2.53
client 1 gets NOERROR
  answer a.wild.example 300 A 192.0.2.1
  answer a.wild.example 300 RRSIG A 8 2 300 1900000000 1700000000 12345 example 0102
  authority wild.example 300 NSEC z.example A RRSIG NSEC
  authority wild.example 300 RRSIG NSEC 8 2 300 1900000000 1700000000 12345 example 0304
