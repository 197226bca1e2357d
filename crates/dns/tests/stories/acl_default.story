# Without a list only local networks are served.
policy
client 1 asks a.example A
client 1 gets REFUSED
