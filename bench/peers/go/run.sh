#!/usr/bin/env bash
# Go's caches beside larder: the same entries, the same form of rows. Arguments are main.go's flags.
#
#   bench/peers/go/run.sh -rounds 5 -gc-entries 1000000
#
# Without Go 1.24 or later, or without its modules, it prints one line that begins with SKIP.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v go >/dev/null; then
    echo "SKIP go is not installed: the rows of freecache, bigcache, fastcache and otter are missing"
    exit 0
fi
mkdir -p ../../target
if ! go build -o ../../target/larder-peers-go . 2>../../target/go.log; then
    cat ../../target/go.log >&2
    echo "SKIP go cannot build bench/peers/go here: see the lines above"
    exit 0
fi
exec ../../target/larder-peers-go "$@"
