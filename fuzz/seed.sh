#!/bin/sh
# Fills fuzz/corpus with first inputs: the golden recordings taken apart, and any captures named as
# arguments. Nothing in there is committed; what a finding leaves goes to fuzz/regressions.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cargo run --quiet --manifest-path "$root/Cargo.toml" -p larder-fuzz-targets --example seeds -- \
    "$root/fuzz/corpus" "$root"/tests/captures/*.pcap "$root"/tests/captures/*.fstrm \
    "$root"/tests/exports/*.pcap "$@"
