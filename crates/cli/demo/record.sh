#!/usr/bin/env bash
# Records demo.pcapng again: two clients, a resolver, a few servers, all on this machine in network
# namespaces that have no way out. Run as root; nothing is installed. Real programs throughout:
# knotd answers, unbound resolves, dnsmasq is each client's stub, curl and nginx speak HTTP and TLS.
#
# The story (every name is under .example, every address from the documentation ranges):
#   alice 192.0.2.10, 2001:db8::10       bob 192.0.2.20, 2001:db8::20       resolver 192.0.2.53
#   one CDN address, 203.0.113.10, is www.shop.example and chat.shop.example to alice,
#   www.news.example and chat.news.example to bob, all by chains of CNAMEs; git.code.example and
#   mail.post.example are known by their lookups only; six.example is IPv6; pool.ntp.example is an
#   answer too big for UDP; 198.51.100.67, which bob looked up as cdn-update.example, is told in TLS
#   that it is www.bank.example; and 198.51.100.66 nobody ever looked up.
set -euo pipefail
cd "$(dirname "$0")"
source ../../../tests/captures/lab.sh
lab_need ip tcpdump editcap dig curl nginx openssl unbound knotd dnsmasq "$PYTHON"
tool="$LAB_TOOLS/lab.py"

lab_up
lab_host alice 192.0.2.10 2001:db8::10
lab_host bob 192.0.2.20 2001:db8::20
lab_host resolver 192.0.2.53 2001:db8::53
lab_host authority 192.0.2.54
lab_host web 203.0.113.10 203.0.113.11 2001:db8:80::6 198.51.100.22 198.51.100.25 198.51.100.66 \
    198.51.100.67 198.51.100.123

mkdir "$LAB_DIR/knot" "$LAB_DIR/nginx" "$LAB_DIR/unbound"
{
    echo '$TTL 300'
    echo '@ SOA ns.example. admin.example. 1 3600 600 86400 300'
    echo '@ NS ns'
    echo 'ns A 192.0.2.54'
    echo 'www.shop CNAME shop.cdn'
    echo 'chat.shop CNAME shop.cdn'
    echo 'shop.cdn CNAME edge-7.cdn'
    echo 'www.news CNAME news.cdn'
    echo 'chat.news CNAME news.cdn'
    echo 'news.cdn CNAME edge-7.cdn'
    echo 'edge-7.cdn A 203.0.113.10'
    echo 'docs.wiki A 203.0.113.11'
    echo 'six AAAA 2001:db8:80::6'
    echo 'git.code A 198.51.100.22'
    echo 'mail.post A 198.51.100.25'
    echo 'cdn-update 60 A 198.51.100.67'
    echo 'pool.ntp A 198.51.100.123'
    for host in $(seq 130 180); do echo "pool.ntp A 198.51.100.$host"; done
} >"$LAB_DIR/knot/example.zone"
cat >"$LAB_DIR/knot/knot.conf" <<CONF
server:
    rundir: $LAB_DIR/knot
    listen: 192.0.2.54@53
database:
    storage: $LAB_DIR/knot
zone:
  - domain: example.
    storage: $LAB_DIR/knot
    file: example.zone
CONF
cat >"$LAB_DIR/unbound/unbound.conf" <<CONF
server:
    directory: "$LAB_DIR/unbound"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    interface: 192.0.2.53
    interface: 2001:db8::53
    access-control: 0.0.0.0/0 allow
    access-control: ::/0 allow
    module-config: "iterator"
    num-threads: 1
    max-udp-size: 512
stub-zone:
    name: example
    stub-addr: 192.0.2.54
remote-control:
    control-enable: no
CONF
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=lab.example \
    -keyout "$LAB_DIR/nginx/key" -out "$LAB_DIR/nginx/cert" 2>/dev/null
cat >"$LAB_DIR/nginx/nginx.conf" <<CONF
pid $LAB_DIR/nginx/pid;
error_log $LAB_DIR/nginx/error;
events { }
http {
    access_log off;
    server {
        listen 80;
        listen [::]:80;
        listen 443 ssl;
        listen [::]:443 ssl;
        ssl_certificate $LAB_DIR/nginx/cert;
        ssl_certificate_key $LAB_DIR/nginx/key;
        ssl_session_tickets off;
        location / { default_type text/plain; return 200 "hello from the lab\n"; }
    }
}
CONF
chmod -R a+rX "$LAB_DIR"

start authority knotd -c "$LAB_DIR/knot/knot.conf"
start resolver unbound -d -c "$LAB_DIR/unbound/unbound.conf"
start web nginx -p "$LAB_DIR/nginx" -e "$LAB_DIR/nginx/error" -c "$LAB_DIR/nginx/nginx.conf" -g 'daemon off;'
start web "$PYTHON" "$tool" serve 22 143 5222 4444
# A stub on each client, as desktops have: one source port for every lookup.
stub() {
    start "$1" dnsmasq -d -C /dev/null -R -h -2 lo --user=root --listen-address=127.0.0.1 \
        --bind-interfaces --pid-file= --query-port="$2" --server="$3"
}
stub alice 40001 192.0.2.53
stub bob 40002 192.0.2.53
await resolver 192.0.2.53 53
await web 203.0.113.10 443
await web 203.0.113.10 5222
await alice 127.0.0.1 53
await bob 127.0.0.1 53

# Curl as a user runs it: the name goes through the C library to the stub.
echo "nameserver 127.0.0.1" >"$LAB_DIR/resolv.conf"
echo "nameserver 2001:db8::53" >"$LAB_DIR/resolv6.conf"
RESOLV="$LAB_DIR/resolv.conf"
browse() {
    local host=$1
    shift
    on "$host" sh -c 'mount --bind "$0" /etc/resolv.conf && exec curl -sk --max-time 5 -o /dev/null "$@"' \
        "$RESOLV" "$@"
}
# Looks a name up and opens a plain TCP connection to the (last) address, for a second.
call() {
    local host=$1 port=$3 name=$4 service=$5 address
    address=$(on "$host" dig +short +tries=1 @127.0.0.1 "$name" "$2" | tail -n 1)
    on "$host" "$PYTHON" "$tool" talk "$port" "$address" "$service" 1
}

# The tap is the clients' side: the resolver's own questions are not seen, nor ARP, ND and MLD.
# Pauses as between a person's clicks, so that ages and durations in the log mean something.
tap "$LAB_DIR/demo.pcap" 'not arp and not icmp6 and not (ip6[6] = 0) and not host 192.0.2.54'
browse alice --local-port 50001 https://www.shop.example/
sleep 0.7
browse bob --local-port 50002 https://www.news.example/
sleep 1.3
# Alice asks first and connects last: only by her own question is her flow named right.
on alice dig +noall +tries=1 @127.0.0.1 chat.shop.example A
call bob A 50011 chat.news.example 5222
on alice "$PYTHON" "$tool" talk 50003 203.0.113.10 5222 1
sleep 0.9
browse alice --local-port 50004 http://docs.wiki.example/
sleep 1.6
RESOLV="$LAB_DIR/resolv6.conf" browse bob --local-port 50005 https://six.example/
sleep 1.1
call bob A 50006 git.code.example 22
sleep 1.2
call alice A 50007 mail.post.example 143
sleep 1.4
# Too big for 512 octets: the answer comes truncated, and dig asks again over TCP.
on alice dig +noall +tries=1 +noedns +time=3 @192.0.2.53 pool.ntp.example A
on alice "$PYTHON" "$tool" talk 50009 198.51.100.123 4444
sleep 1.3
on bob dig +noall +tries=1 @127.0.0.1 cdn-update.example A
sleep 2.4
on bob curl -sk --max-time 5 -o /dev/null --local-port 50010 \
    --connect-to www.bank.example:443:198.51.100.67:443 https://www.bank.example/
sleep 1.7
on bob "$PYTHON" "$tool" talk 50008 198.51.100.66 4444 1.5
untap
lab_down

editcap -F pcapng "$LAB_DIR/demo.pcap" demo.pcapng
ls -l demo.pcapng >&2
