# An answer of many thousand octets is told over TCP whole, and kept; one that is longer than the cache takes (32 KiB) is told
# and not kept (RFC 1035, section 4.2.2).

client 1 asks large.example TXT over tcp
upstream 1 gets large.example TXT
upstream 1 answers NOERROR tc
upstream 1 gets large.example TXT over tcp
upstream 1 answers NOERROR over tcp
  answer times 50 large.example 300 TXT "% xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
client 1 gets NOERROR
  answer times 50 large.example 300 TXT "% xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
client 2 asks large.example TXT
client 2 gets NOERROR tc
client 2 asks large.example TXT over tcp
client 2 gets NOERROR
  answer times 50 large.example 300 TXT "% xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

client 1 asks huge.example TXT over tcp
upstream 1 gets huge.example TXT
upstream 1 answers NOERROR tc
upstream 1 gets huge.example TXT over tcp
upstream 1 answers NOERROR over tcp
  answer times 250 huge.example 300 TXT "% xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
client 1 gets NOERROR
  answer times 250 huge.example 300 TXT "% xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
client 1 asks huge.example TXT
upstream 1 gets huge.example TXT
upstream 1 answers NOERROR
  answer huge.example 300 TXT "less"
client 1 gets NOERROR
  answer huge.example 300 TXT "less"
