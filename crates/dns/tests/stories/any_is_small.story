# Who asks for everything gets a HINFO record that says where that is told (RFC 8482, section 4.2).

client 1 asks www.example ANY
client 1 gets NOERROR
  answer www.example 3789 HINFO "RFC8482" ""
client 1 asks Www.Example ANY edns 1232 do cd
client 1 gets NOERROR
  answer www.example 3789 HINFO "RFC8482" ""
client 1 asks www.example ANY over tcp no-rd
client 1 gets NOERROR
  answer www.example 3789 HINFO "RFC8482" ""
