# A network in a box: namespaces on one bridge, and a tap that sees every frame.
#
# Sourced by record.sh and by crates/cli/demo/record.sh; needs root, installs nothing. No namespace
# has a link to the machine's own network, so no packet can leave. Every program runs under
# `timeout`; what was started is ended by its process id, and the namespaces go, however the
# script ends.
#
#   lab_need PROGRAM...            stop, with what is missing, unless all are there
#   lab_up                         an empty lab: the bridge
#   lab_host NAME ADDRESS...       a host on the bridge; every address is reachable on the link
#   on NAME COMMAND...             run on a host, at most 20 s
#   start NAME COMMAND...          run on a host in the background until lab_down
#   tap FILE.pcap [FILTER]         start to record; untap ends it
#   lab_down                       end programs, delete namespaces

LAB="lab$$"
LAB_DIR=$(mktemp -d)
LAB_TOOLS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHON=${PYTHON:-/usr/bin/python3}
LAB_PIDS=()
LAB_HOSTS=()
TAP_PID=

lab_need() {
    local missing=() program
    for program in "$@"; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    [ "$(id -u)" = 0 ] || { echo "record: run as root (network namespaces)" >&2; exit 2; }
    [ ${#missing[@]} = 0 ] || { echo "record: install first: ${missing[*]}" >&2; exit 2; }
}

lab_up() {
    ip netns add "$LAB-hub"
    LAB_HOSTS=("$LAB-hub")
    # MAC learning off: every frame reaches every port and the tap, as in a hub.
    ip -n "$LAB-hub" link add br0 type bridge stp_state 0 forward_delay 0 ageing_time 0 mcast_snooping 0
    ip netns exec "$LAB-hub" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    ip -n "$LAB-hub" link set br0 up
}

lab_host() {
    local host="$LAB-$1" address index=${#LAB_HOSTS[@]}
    shift
    ip netns add "$host"
    LAB_HOSTS+=("$host")
    ip netns exec "$host" sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
        net.ipv6.conf.default.router_solicitations=0
    ip -n "$LAB-hub" link add "port$index" type veth peer name eth0 netns "$host"
    # Offloads off: packets as a wire carries them, with real checksums and sizes.
    ip netns exec "$host" "$PYTHON" "$LAB_TOOLS/lab.py" offloads-off eth0
    ip -n "$LAB-hub" link set "port$index" master br0 up
    ip -n "$host" link set lo up
    ip -n "$host" link set eth0 address "02:00:5e:00:53:$(printf %02x "$index")" up
    for address in "$@"; do
        case $address in
            *:*) ip -n "$host" address add "$address/64" dev eth0 nodad ;;
            *) ip -n "$host" address add "$address/24" dev eth0 ;;
        esac
    done
    ip -n "$host" route replace default dev eth0
    ip -n "$host" -6 route replace default dev eth0
}

on() {
    local host="$LAB-$1"
    shift
    timeout -k 1 20 ip netns exec "$host" "$@"
}

start() {
    local host="$LAB-$1"
    shift
    timeout -k 1 120 ip netns exec "$host" "$@" >>"$LAB_DIR/log" 2>&1 &
    LAB_PIDS+=($!)
}

# Waits until a TCP port of a host answers.
await() {
    on "$1" "$PYTHON" "$LAB_TOOLS/lab.py" await "$2" "$3"
}

tap() {
    local file=$1
    shift
    ip netns exec "$LAB-hub" timeout -k 1 120 tcpdump -i br0 -s 0 -U --immediate-mode \
        --time-stamp-precision=nano -w "$file" "$@" 2>"$LAB_DIR/tap" &
    TAP_PID=$!
    local try
    for try in $(seq 100); do
        grep -q 'listening on' "$LAB_DIR/tap" && return
        sleep 0.05
    done
    cat "$LAB_DIR/tap" >&2
    return 1
}

untap() {
    sleep 0.4
    # `timeout` passes the signal on to tcpdump.
    kill -INT "$TAP_PID" && wait "$TAP_PID" || true
    TAP_PID=
}

lab_down() {
    local pid host
    [ -z "$TAP_PID" ] || kill "$TAP_PID" 2>/dev/null || true
    for pid in "${LAB_PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${LAB_PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
    for host in "${LAB_HOSTS[@]}"; do ip netns del "$host" 2>/dev/null || true; done
    LAB_PIDS=() LAB_HOSTS=() TAP_PID=
}

lab_end() {
    lab_down
    rm -rf "$LAB_DIR"
}
trap lab_end EXIT
trap 'exit 130' INT TERM
