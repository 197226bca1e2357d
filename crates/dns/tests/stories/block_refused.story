# Blocked names are refused.
policy
  access 198.51.100.0/24 allow
  answer refused
  reason filtered
  block ads.example
client 1 asks www.ads.example A do
client 1 gets REFUSED
  ede 17
client 1 asks ads.example A
client 1 gets REFUSED
nothing is in flight
