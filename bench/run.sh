#!/usr/bin/env bash
# Measures everything that bench/ can measure, on this machine, within about so many minutes, into a folder.
#
#   bench/run.sh [--minutes M | --rounds R] [--output DIR] [--entries N] [--operations N]
#
# M is 60 unless given, DIR bench/target/results. The rounds of each part follow from M: a part is first run with
# one round to see what one takes. With R every part has so many, however long that takes; ten are about 45
# minutes on two cores. Below 6 rounds a median has no interval of 95 %, and the script says so.
# On a quiet machine: nothing else should run, and the CPUs' frequency should be fixed where that can be done.
#
#   machine.txt       what it ran on, and the commit
#   peers.jsonl       larder and other caches (lab/bench/src/row.rs has the form)
#   peers-huge.jsonl  the same with huge pages for everybody's malloc: larder asks for them by itself
#   put-10m.jsonl     puts with ten times as many entries
#   ablations.jsonl   single decisions
#   remote.jsonl      memcached over loopback, or a line SKIP
#   go.jsonl          Go's caches and its collector, or a line SKIP
#   rings.md          queues between cores
#   tables.md         all rows as Markdown, for docs/results/engine-speed.md
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=60 fixed= output=bench/target/results entries=1000000 operations=500000
while [ $# -gt 0 ]; do
    case "$1" in
        --minutes) minutes=$2 ;;
        --rounds) fixed=$2 ;;
        --operations) operations=$2 ;;
        --output) output=$2 ;;
        --entries) entries=$2 ;;
        *) echo "bench/run.sh: no flag is called $1; there are --minutes --rounds --output --entries --operations" >&2; exit 2 ;;
    esac
    shift 2
done
mkdir -p "$output"
output=$(cd "$output" && pwd)
bin=bench/target/release

cargo build --release --locked --manifest-path bench/Cargo.toml

{
    echo "commit: $(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ', changed')"
    echo "date: $(date -u +%F)"
    lscpu | grep -E '^(Model name|CPU\(s\)|L1d cache|L2 cache|L3 cache)' | sed 's/  */ /'
    grep MemTotal /proc/meminfo | sed 's/  */ /'
    echo "huge pages: $(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null || echo unknown)"
    rustc --version
    go version 2>/dev/null || true
    echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
} >"$output/machine.txt"

# part SHARE NAME COMMAND...: runs the command with as many --rounds as fit into SHARE percent of the time.
part() {
    local share=$1 name=$2 start seconds rounds
    shift 2
    if [ -n "$fixed" ]; then
        echo "bench/run.sh: $name: $fixed rounds (at $SECONDS s)" >&2
        "$@" --rounds "$fixed" >"$output/$name.part"
        mv "$output/$name.part" "$output/$name"
        return
    fi
    start=$SECONDS
    "$@" --rounds 1 >"$output/$name.part"
    seconds=$((SECONDS - start + 1))
    # A run of R rounds does one more to warm up, and builds and fills once: half of a run of one, or more.
    rounds=$((minutes * 60 * share / 100 * 2 / seconds - 1))
    rounds=$((rounds < 3 ? 3 : rounds > 40 ? 40 : rounds))
    [ "$rounds" -ge 6 ] || echo "bench/run.sh: $name: $rounds rounds only, no interval of 95 %; give more --minutes" >&2
    echo "bench/run.sh: $name: $rounds rounds, one took $seconds s" >&2
    "$@" --rounds "$rounds" >"$output/$name.part"
    mv "$output/$name.part" "$output/$name"
}

part 30 peers.jsonl "$bin/larder-peers" --entries "$entries" --operations "$operations"
part 15 peers-huge.jsonl env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "$bin/larder-peers" --entries "$entries" \
    --operations "$operations" --works get
part 12 put-10m.jsonl "$bin/larder-peers" --entries $((10 * entries)) \
    --operations "$operations" --works "put, full" --threads 1
part 10 ablations.jsonl "$bin/larder-ablate" --entries "$entries"
part 3 remote.jsonl "$bin/larder-remote"
part 10 go.jsonl bench/peers/go/run.sh -entries "$entries" -gc-entries $((10 * entries))
part 5 rings.md "$bin/larder-rings"

bench/tables.py "$output"/*.jsonl >"$output/tables.md"
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)" >>"$output/machine.txt"
echo "bench/run.sh: done in $((SECONDS / 60)) minutes; everything is in $output" >&2
