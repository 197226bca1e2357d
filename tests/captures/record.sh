#!/usr/bin/env bash
# Records the golden captures of this folder again (README.md says what each one shows), as root, in
# namespaces without a way out. With arguments, only the captures named: record.sh r3-newer r7-late
#
# Client ports are fixed, so that expected.tsv names every flow. Plain TCP on port 9000 is the flow
# that says nothing about itself: whatever name it gets, it gets from DNS.
set -euo pipefail
cd "$(dirname "$0")"
source lab.sh
lab_need ip tcpdump tshark dig curl nginx openssl unbound knotd dnsmasq avahi-daemon busybox unshare "$PYTHON"
OUT=$PWD
TOOL="$LAB_TOOLS/lab.py"
NS=192.0.2.53
# No address resolution, no IPv6 neighbour discovery or multicast listener reports.
QUIET='not arp and not icmp6 and not (ip6[6] = 0)'

# --- the parts that most recordings share ---------------------------------------------------------

# zone NAME LINE...: a zone file, and its entry in knot.conf.
zone() {
    local name=$1
    shift
    {
        echo '$TTL 300'
        echo '@ SOA ns admin 1 3600 600 86400 300'
        echo '@ NS ns'
        printf '%s\n' "$@"
    } >"$LAB_DIR/$name.zone"
    printf '  - domain: %s.\n    storage: %s\n    file: %s.zone\n' "$name" "$LAB_DIR" "$name" >>"$LAB_DIR/zones"
}

# knot HOST LISTEN...: an authoritative server for all zones declared since the last one.
knot() {
    local host=$1 dir="$LAB_DIR/knot-$1" address
    shift
    mkdir -p "$dir"
    {
        printf 'server:\n    rundir: %s\n    udp-max-payload: 4096\n' "$dir"
        for address in "$@"; do printf '    listen: %s@53\n' "$address"; done
        printf 'database:\n    storage: %s\nzone:\n' "$dir"
        cat "$LAB_DIR/zones"
    } >"$dir/knot.conf"
    rm "$LAB_DIR/zones"
    start "$host" knotd -c "$dir/knot.conf"
    await "$host" "${1}" 53
}

# unbound HOST ADDRESS STUB: a resolver that asks STUB about example.
unbound_on() {
    mkdir -p "$LAB_DIR/unbound"
    cat >"$LAB_DIR/unbound/unbound.conf" <<CONF
server:
    directory: "$LAB_DIR/unbound"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    interface: $2
    access-control: 0.0.0.0/0 allow
    module-config: "iterator"
    qname-minimisation: no
    target-fetch-policy: "0 0 0 0 0"
    num-threads: 1
    identity: lab
    version: lab
stub-zone:
    name: example
    stub-addr: $3
remote-control:
    control-enable: no
dnstap:
    dnstap-enable: $([ -S "$LAB_DIR/dnstap" ] && echo yes || echo no)
    dnstap-socket-path: "$LAB_DIR/dnstap"
    dnstap-send-identity: no
    dnstap-send-version: no
    dnstap-log-client-query-messages: yes
    dnstap-log-client-response-messages: yes
    dnstap-log-resolver-query-messages: yes
    dnstap-log-resolver-response-messages: yes
CONF
    start "$1" unbound -d -c "$LAB_DIR/unbound/unbound.conf"
    await "$1" "$2" 53
}

# web HOST: nginx with TLS on 443, HTTP on 80 and 8081; plain TCP on 9000.
web() {
    local dir="$LAB_DIR/nginx"
    mkdir -p "$dir"
    certificate "$dir"
    cat >"$dir/nginx.conf" <<CONF
pid $dir/pid;
events { }
http {
    access_log off;
    server {
        listen 80;
        listen [::]:80;
        listen 8081;
        listen 443 ssl;
        listen [::]:443 ssl;
        ssl_certificate $dir/cert;
        ssl_certificate_key $dir/key;
        location / { default_type text/plain; return 200 "hello from the lab\n"; }
    }
}
CONF
    chmod -R a+rX "$LAB_DIR"
    start "$1" nginx -p "$dir" -e "$dir/error" -c "$dir/nginx.conf" -g 'daemon off;'
    await "$1" 127.0.0.1 443
    plain "$1"
}

certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj /CN=lab.example -keyout "$1/key" -out "$1/cert" 2>/dev/null
}

plain() {
    start "$1" "$PYTHON" "$TOOL" serve 9000
    await "$1" 127.0.0.1 9000
}

ask() {
    local host=$1
    shift
    on "$host" dig +noall +tries=1 +time=3 "@$NS" "$@"
    sleep 0.05
}

talk() {
    local host=$1
    shift
    on "$host" "$PYTHON" "$TOOL" talk "$@"
    sleep 0.05
}

# Four clients, a name server, and a host with many server addresses (203.0.113.0/24).
usual_hosts() {
    lab_up
    lab_host alice 192.0.2.10 2001:db8::10
    lab_host bob 192.0.2.20 2001:db8::20
    lab_host carol 192.0.2.30 2001:db8::30
    lab_host dave 192.0.2.40 2001:db8::40
    lab_host ns 192.0.2.53 2001:db8::53
    lab_host web 203.0.113.10 203.0.113.20 203.0.113.30 203.0.113.40 203.0.113.50 203.0.113.60 \
        203.0.113.61 203.0.113.70 203.0.113.71 203.0.113.80 203.0.113.90 2001:db8:80::10
}

# --- rule by rule ---------------------------------------------------------------------------------

r1-as-asked() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'www.shop CNAME shop.cdn' 'shop.cdn CNAME edge-7.cdn' \
        'edge-7.cdn A 203.0.113.10' 'old DNAME new' 'www.new A 203.0.113.20'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice www.shop.example A
    talk alice 50001 203.0.113.10 9000
    talk bob 50002 203.0.113.10 9000
    ask alice www.old.example A
    talk alice 50003 203.0.113.20 9000
    untap
}

r2-pair() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'red CNAME edge-1' 'blue CNAME edge-1' 'edge-1 A 203.0.113.20'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice red.example A
    ask bob blue.example A
    talk alice 50001 203.0.113.20 9000
    talk bob 50002 203.0.113.20 9000
    talk carol 50003 203.0.113.20 9000
    untap
}

# A resolver stands between; its own questions to two authorities are on the wire as well, and the
# chain is split over two of their answers.
between() {
    local file=$1
    usual_hosts
    lab_host far 198.51.100.54
    lab_host resolver 192.0.2.54
    zone example 'ns A 192.0.2.53' 'www.green CNAME g7.far' 'far NS ns.far' 'ns.far A 198.51.100.54'
    knot ns 192.0.2.53
    zone far.example 'ns A 198.51.100.54' 'g7 A 203.0.113.20'
    knot far 198.51.100.54
    unbound_on resolver 192.0.2.54 192.0.2.53
    plain web
    tap "$file" "$2"
    NS=192.0.2.54 ask alice www.green.example A
    talk alice 50001 203.0.113.20 9000
    talk bob 50002 203.0.113.20 9000
    untap
}
r2-between() { between "$1" "$QUIET"; }
# The same, but the link between clients and resolver is not seen (or is encrypted).
r2-head() { between "$1" "$QUIET and not (host 192.0.2.10 and port 53)"; }

r3-newer() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'first 60 A 203.0.113.30' 'second 60 A 203.0.113.30'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice first.example A
    talk alice 50001 203.0.113.30 9000
    talk carol 50002 203.0.113.30 9000
    ask alice second.example A
    talk alice 50003 203.0.113.30 9000
    talk carol 50004 203.0.113.30 9000
    # A refresh of the first name makes it the newest again, on an entry that is hot.
    ask alice first.example A
    talk alice 50005 203.0.113.30 9000
    talk carol 50006 203.0.113.30 9000
    untap
}

r4-candidates() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'a A 203.0.113.40' 'b A 203.0.113.40' 'c A 203.0.113.40' \
        'd A 203.0.113.40' 'e A 203.0.113.40' 'only A 203.0.113.50'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice a.example A
    ask bob b.example A
    ask carol c.example A
    ask bob d.example A
    ask carol e.example A
    talk dave 50001 203.0.113.40 9000
    talk alice 50002 203.0.113.40 9000
    ask alice only.example A
    talk dave 50003 203.0.113.50 9000
    untap
}

r5-stale() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'fleet 1 A 203.0.113.50' 'steady 300 A 203.0.113.60'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice fleet.example A
    ask alice steady.example A
    talk alice 50001 203.0.113.50 9000
    sleep 4
    talk alice 50002 203.0.113.50 9000
    talk bob 50003 203.0.113.50 9000
    talk alice 50004 203.0.113.60 9000
    untap
}

r6-own-flow() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'other A 203.0.113.60'
    knot ns 192.0.2.53
    web web
    tap "$1" "$QUIET"
    ask alice other.example A
    # What malware does: another name in the handshake than the one that was looked up.
    on alice curl -sk -o /dev/null --max-time 5 --local-port 50001 \
        --connect-to google.example:443:203.0.113.60:443 https://google.example/
    talk carol 50002 203.0.113.60 9000
    ask bob other.example A
    talk bob 50003 203.0.113.60 9000
    # HTTP says another name as well; and an address that nobody looked up.
    on alice curl -s -o /dev/null --max-time 5 --local-port 50004 \
        --connect-to bank.example:80:203.0.113.60:80 http://bank.example/
    on alice curl -sk -o /dev/null --max-time 5 --local-port 50005 \
        --connect-to google.example:443:203.0.113.61:443 https://google.example/
    talk dave 50006 203.0.113.61 9000
    # Both agree: no conflict.
    on bob curl -sk -o /dev/null --max-time 5 --local-port 50007 \
        --connect-to other.example:443:203.0.113.60:443 https://other.example/
    untap
}

r7-late() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'late A 203.0.113.70' 'early A 203.0.113.71' 'after A 203.0.113.71'
    knot ns 192.0.2.53
    plain web
    local pids=()
    tap "$1" "$QUIET"
    ask bob early.example A
    talk alice 50001 203.0.113.70 9000 1.5 & pids+=($!)
    talk bob 50002 203.0.113.71 9000 1.5 & pids+=($!)
    sleep 0.7
    ask alice late.example A
    ask bob after.example A
    wait "${pids[@]}"
    talk bob 50003 203.0.113.71 9000
    untap
}

r8-client() {
    usual_hosts
    # alice-box.example is a service on the machine that is a client elsewhere.
    zone example 'ns A 192.0.2.53' 'alice-box A 192.0.2.10' 'site A 203.0.113.80'
    knot ns 192.0.2.53
    plain web
    plain alice
    # The SYN of one flow is lost to the tap: the flow begins, as seen, with the server's SYN+ACK.
    tap "$1" "$QUIET and not (tcp dst port 9000 and src port 50003 and tcp[tcpflags] = tcp-syn)"
    ask bob alice-box.example A
    talk bob 50001 192.0.2.10 9000
    ask carol site.example A
    talk alice 50002 203.0.113.80 9000
    talk carol 50003 203.0.113.80 9000
    untap
}

r8-local() {
    lab_up
    lab_host gate 10.77.0.1
    lab_host printer 10.77.0.40
    lab_host desk 10.77.0.41
    lab_host pi 10.77.0.42
    lab_host laptop
    plain printer
    plain desk
    plain pi
    tap "$1" "$QUIET"
    start gate dnsmasq -d -C /dev/null -p 0 --user=root --pid-file= --dhcp-range=10.77.0.100,10.77.0.100,1h \
        --dhcp-leasefile="$LAB_DIR/leases" --dhcp-authoritative --no-ping
    printf '#!/bin/sh\n[ "$1" != bound ] || ip address add "$ip/24" dev eth0\n' >"$LAB_DIR/udhcpc"
    chmod +x "$LAB_DIR/udhcpc"
    on laptop busybox udhcpc -f -q -n -i eth0 -s "$LAB_DIR/udhcpc" -x hostname:laptop
    printf '[server]\nhost-name=printer\ndomain-name=local\nuse-ipv6=no\nenable-dbus=no\n[publish]\npublish-hinfo=no\npublish-workstation=no\n' \
        >"$LAB_DIR/avahi.conf"
    start printer unshare -m sh -c 'mount -t tmpfs none /run && exec avahi-daemon -f "$0" --no-drop-root --no-chroot --no-rlimits' \
        "$LAB_DIR/avahi.conf"
    on desk "$PYTHON" "$TOOL" nbns-register 10.77.0.41 10.77.0.255 DESK-PC
    start pi "$PYTHON" "$TOOL" llmnr-answer 10.77.0.42 pi-hole
    sleep 2
    on desk "$PYTHON" "$TOOL" llmnr-ask pi-hole
    talk laptop 50001 10.77.0.40 9000
    talk laptop 50002 10.77.0.41 9000
    talk laptop 50003 10.77.0.42 9000
    talk pi 50004 10.77.0.40 9000
    untap
}

r9-unsolicited() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'bank A 203.0.113.90'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice bank.example A
    # From the server's address, to a port of alice's, with an ID nobody used: never asked for.
    on dave "$PYTHON" "$TOOL" forge 192.0.2.53 192.0.2.10 40404 0x6666 evil.example 203.0.113.90
    talk alice 50001 203.0.113.90 9000
    talk bob 50002 203.0.113.90 9000
    untap
}

# Only answers pass the tap (one direction of a link): then no question is ever seen, and an answer
# without one is as good as any.
r9-answers-only() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'first A 203.0.113.90' 'second A 203.0.113.90'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET and not dst port 53"
    ask alice first.example A
    ask alice second.example A
    talk alice 50001 203.0.113.90 9000
    untap
}

# --- the wire -------------------------------------------------------------------------------------

relay() {
    usual_hosts
    lab_host relay 192.0.2.55
    zone example 'ns A 192.0.2.53' 'one A 203.0.113.10' 'two A 203.0.113.20' 'three A 203.0.113.30' \
        'four A 203.0.113.40'
    knot ns 192.0.2.53
    plain web
    start relay "$PYTHON" "$TOOL" tcp-relay 192.0.2.55 192.0.2.53 "$2"
    await relay 192.0.2.55 53
    tap "$1" "$QUIET and not (host 192.0.2.53)"
    on alice "$PYTHON" "$TOOL" tcp-dns 40000 192.0.2.55 {one,two,three,four}.example
    talk alice 50001 203.0.113.10 9000
    talk alice 50002 203.0.113.20 9000
    talk alice 50003 203.0.113.30 9000
    talk alice 50004 203.0.113.40 9000
    untap
}
dns-tcp-many() { relay "$1" 0; }
dns-tcp-split() { relay "$1" 7; }

# An answer with many records: too big for 512 octets, for one packet, for one IPv6 packet.
big_zone() {
    local lines=() host
    for host in $(seq 1 "$1"); do
        lines+=("crowd A 198.51.100.$host" "crowd AAAA 2001:db8:80::$(printf %x "$((host + 4096))")")
    done
    zone example 'ns A 192.0.2.53' 'crowd A 203.0.113.10' 'crowd AAAA 2001:db8:80::10' "${lines[@]}"
    knot ns 192.0.2.53 2001:db8::53
}

dns-truncated() {
    usual_hosts
    big_zone 60
    plain web
    tap "$1" "$QUIET"
    ask alice +noedns crowd.example A
    talk alice 50001 203.0.113.10 9000
    untap
}

fragment-v4() {
    usual_hosts
    ip -n "$LAB-ns" link set eth0 mtu 600
    big_zone 100
    plain web
    tap "$1" "$QUIET"
    ask alice +bufsize=4096 +ignore crowd.example A
    talk alice 50001 203.0.113.10 9000
    untap
}

fragment-v6() {
    usual_hosts
    # The last address of the answer, so that the name comes out of the last fragment.
    ip -n "$LAB-web" address add 2001:db8:80::1064/64 dev eth0 nodad
    big_zone 100
    plain web
    tap "$1" "$QUIET"
    NS=2001:db8::53 ask alice +bufsize=4096 +ignore crowd.example AAAA
    talk alice 50001 2001:db8:80::1064 9000
    untap
}

svcb-hints() {
    usual_hosts
    zone example 'ns A 192.0.2.53' \
        'svc HTTPS 1 . alpn=h2 ipv4hint=203.0.113.10 ipv6hint=2001:db8:80::10' \
        'alias HTTPS 1 pool.svc alpn=h2 ipv4hint=203.0.113.20'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice svc.example HTTPS
    ask alice alias.example HTTPS
    talk alice 50001 203.0.113.10 9000
    talk bob 50002 2001:db8:80::10 9000
    talk alice 50003 203.0.113.20 9000
    untap
}

ptr() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'asked A 203.0.113.70'
    zone 113.0.203.in-addr.arpa '80 PTR rack-80.example.' '70 PTR rack-70.example.' 'ns A 192.0.2.53'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice -x 203.0.113.80
    ask alice asked.example A
    ask alice -x 203.0.113.70
    talk alice 50001 203.0.113.80 9000
    talk alice 50002 203.0.113.70 9000
    untap
}

http-odd-port() {
    usual_hosts
    web web
    tap "$1" "$QUIET"
    on alice curl -s -o /dev/null --max-time 5 --local-port 50001 \
        --connect-to odd.example:8081:203.0.113.10:8081 http://odd.example:8081/
    # An address as Host is not a name.
    on alice curl -s -o /dev/null --max-time 5 --local-port 50002 http://203.0.113.20:8081/
    # Proxy form and HTTP/1.0 without Host.
    on alice curl -s -o /dev/null --max-time 5 --local-port 50003 --http1.0 -H Host: http://203.0.113.30/
    untap
}

tls-split() {
    usual_hosts
    web web
    tap "$1" "$QUIET"
    on alice "$PYTHON" "$TOOL" hello 50001 203.0.113.10 443 pieces.example 90
    on alice "$PYTHON" "$TOOL" hello 50002 2001:db8:80::10 443 crumbs.example 17
    untap
}

quic() {
    if ! "${QUIC_PYTHON:-$PYTHON}" -c 'import aioquic' 2>/dev/null; then
        echo "record: SKIP $(basename "$1"): no aioquic (QUIC_PYTHON names a Python that has it)" >&2
        return
    fi
    usual_hosts
    certificate "$LAB_DIR"
    start web "${QUIC_PYTHON:-$PYTHON}" "$LAB_TOOLS/quic.py" serve 443 "$LAB_DIR/cert" "$LAB_DIR/key"
    sleep 1.5
    tap "$1" "$QUIET"
    on alice "${QUIC_PYTHON:-$PYTHON}" "$LAB_TOOLS/quic.py" get 50001 203.0.113.10 443 quic.example "$2" "${3:-0}"
    on bob "${QUIC_PYTHON:-$PYTHON}" "$LAB_TOOLS/quic.py" get 50002 2001:db8:80::10 443 quic6.example "$2" "${3:-0}"
    untap
}
quic-v1() { quic "$1" 1; }
quic-v2() { quic "$1" 2; }
quic-wide() { quic "$1" 1 90; }

# The recording that wrap.py puts in every tunnel: a lookup and a flow, over IPv4.
tunnel-none() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'inside A 203.0.113.10'
    knot ns 192.0.2.53
    plain web
    tap "$1" "$QUIET"
    ask alice inside.example A
    talk alice 50001 203.0.113.10 9000
    untap
}

# The same over IPv6, for tunnels that carry IPv6.
tunnel-none6() {
    usual_hosts
    zone example 'ns A 192.0.2.53' 'inside AAAA 2001:db8:80::10'
    knot ns 2001:db8::53
    plain web
    tap "$1" "$QUIET"
    NS=2001:db8::53 ask alice inside.example AAAA
    talk alice 50001 2001:db8:80::10 9000
    untap
}

# The kernel's own VXLAN between two hosts.
tunnel-vxlan() {
    lab_up
    lab_host alice 198.51.100.201
    lab_host web 198.51.100.202
    local host peer
    for host in alice web; do
        [ $host = alice ] && peer=198.51.100.202 || peer=198.51.100.201
        ip -n "$LAB-$host" link add vx0 type vxlan id 42 remote $peer dstport 4789 dev eth0
        ip -n "$LAB-$host" link set vx0 up
    done
    ip -n "$LAB-alice" address add 192.0.2.10/24 dev vx0
    ip -n "$LAB-web" address add 192.0.2.53/24 dev vx0
    ip -n "$LAB-web" address add 203.0.113.10/24 dev vx0
    ip -n "$LAB-alice" route add 203.0.113.0/24 dev vx0
    zone example 'ns A 192.0.2.53' 'inside A 203.0.113.10'
    knot web 192.0.2.53
    plain web
    tap "$1" "udp port 4789"
    ask alice inside.example A
    talk alice 50001 203.0.113.10 9000
    untap
}

# What unbound tells over dnstap of the lookup in r2-between (not a capture, but made with one).
dnstap-unbound() {
    "$PYTHON" "$TOOL" fstrm-receive "$LAB_DIR/dnstap" "$LAB_DIR/fstrm" & local receiver=$!
    LAB_PIDS+=($receiver)
    sleep 0.5
    between "$1" "$QUIET"
    sleep 1.5
    # unbound, the last but one that was started, says STOP when it ends.
    kill "${LAB_PIDS[@]: -2:1}"
    wait $receiver
    cp "$LAB_DIR/fstrm" "$OUT/dnstap-unbound.fstrm"
    rm "$1"
}

# --- run ------------------------------------------------------------------------------------------

RECORDINGS=(r1-as-asked r2-pair r2-between r2-head r3-newer r4-candidates r5-stale r6-own-flow r7-late
    r8-client r8-local r9-unsolicited r9-answers-only dns-tcp-many dns-tcp-split dns-truncated
    fragment-v4 fragment-v6 svcb-hints ptr http-odd-port tls-split quic-v1 quic-v2 quic-wide
    tunnel-none tunnel-none6 tunnel-vxlan dnstap-unbound)
WRAPPED=(vlan qinq mpls pppoe gre gretap erspan2 geneve gtpu ipip raw null sll sll2)
WRAPPED6=(ipip teredo)

for name in "${@:-${RECORDINGS[@]}}"; do
    rm -f "$LAB_DIR/capture.pcap"
    "$name" "$LAB_DIR/capture.pcap"
    if [ -s "$LAB_DIR/capture.pcap" ]; then
        cp "$LAB_DIR/capture.pcap" "$OUT/$name.pcap"
        echo "$name: $(stat -c %s "$OUT/$name.pcap") octets" >&2
    fi
    lab_down
done
# The segment in the middle of the second answer is lost.
tshark -r dns-tcp-split.pcap -Y 'not (tcp.srcport == 53 and tcp.seq == 71)' -F nsecpcap -w dns-tcp-hole.pcap \
    2>>"$LAB_DIR/log"
for kind in "${WRAPPED[@]}"; do
    "$PYTHON" wrap.py "$kind" tunnel-none.pcap "tunnel-$kind.pcap"
done
for kind in "${WRAPPED6[@]}"; do
    "$PYTHON" wrap.py "$kind" tunnel-none6.pcap "tunnel-${kind}6.pcap"
done
# What capinfos counts; the reader's tests compare.
for capture in *.pcap; do
    printf '%s\t%s\n' "$capture" "$(capinfos -Mc -T -r "$capture" | cut -f2)"
done > packets.tsv
# What tshark says of them.
"$PYTHON" truth.py
