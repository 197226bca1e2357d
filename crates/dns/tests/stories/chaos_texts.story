# Texts of the server are told where there are any; other questions of class CHAOS are refused.
policy
  access 198.51.100.0/24 allow
  version larder
client 1 asks version.bind TXT class CH
client 1 gets NOERROR
  answer version.bind 0 CH TXT larder
client 1 asks id.server TXT class CH
client 1 gets REFUSED
