#!/usr/bin/env python3
"""Random queries find the same in compressed segments, and take how many times as long?

    compressed.py LARDER CAPTURE [--queries N] [--packets] [--seed N] [--segment SIZE]

Stores the packets of a capture twice, as written and compressed, in a temporary folder (TMPDIR), and runs each
query on both, one after the other, with its packets as text, or with --packets as pcapng. Queries are conditions about
names and their sources, addresses, networks, ports, protocols and confidence, most of which flows of the capture
meet, up to three of them, joined by and, or, not.

Fails if a query finds different packets. Prints the times and their ratios; it sets no limit for them, since
they are the machine's as well. Needs Python 3 (standard library only).
"""

import argparse
import hashlib
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time


def store(larder, capture, folder, segment, compressed):
    """Stores the capture, and waits until it is compressed."""
    options = ["-w", folder, "--store", "64GiB", "--segment", segment, "-o", "/dev/null", "--quiet"]
    subprocess.run([larder, "annotate", "-r", capture, *options, *(["--store-compress"] if compressed else [])], check=True)
    return sum(path.stat().st_size for path in folder.iterdir() if ".pcapng" in path.name)


def flows(larder, folder):
    """Some flows as (source, port, destination, port, protocol, name), as the log has them."""
    found = subprocess.run(
        [larder, "find", "-d", folder, "ip or ip6", "--format", "zeek", "--quiet"], check=True, capture_output=True, text=True
    )
    fields, rows = [], []
    for line in found.stdout.splitlines():
        if line.startswith("#fields"):
            fields = line.split("\t")[1:]
        elif not line.startswith("#"):
            row = dict(zip(fields, line.split("\t")))
            row["name"] = next((row[key] for key in fields if key.endswith("_name.vals") and row[key] != "-"), None)
            rows.append(row)
    return rows


def condition(chance, rows):
    """A random condition."""
    row = chance.choice(rows)
    name = (row["name"] or "example.com").split(",")[0]
    end = chance.choice(["orig", "resp"])
    address, port = row[f"id.{end}_h"], row[f"id.{end}_p"]
    network = f"{address}/{chance.choice([8, 16, 24, 32])}" if "." in address else f"{address}/{chance.choice([32, 64, 128])}"
    return chance.choice(
        [
            f"name = {name}",
            f"name ~ *.{name.split('.', 1)[-1]}",
            f"host {address}",
            f"net {network}",
            f"port {port}",
            f"port {port}-{min(65535, int(port) + 400)}",
            "udp" if row["proto"] == "udp" else "tcp",
            f"confidence >= {chance.randrange(101)}",
            f"name_source {chance.choice(['dns_pair', 'sni', 'http_host'])}",
        ]
    )


def query(chance, rows):
    conditions = [condition(chance, rows) for _ in range(chance.randrange(1, 4))]
    parts = [f"not {part}" if chance.randrange(8) == 0 else part for part in conditions]
    return f" {chance.choice(['and', 'or'])} ".join(parts) if len(parts) < 3 else f"{parts[0]} and ({parts[1]} or {parts[2]})"


def search(larder, folder, text, output):
    begun = time.perf_counter()
    found = subprocess.run([larder, "find", "-d", folder, text, "--quiet", *output], capture_output=True)
    seconds = time.perf_counter() - begun
    if found.returncode not in (0, 1) or found.stderr:
        sys.exit(f"{text}: status {found.returncode}: {found.stderr.decode()}")
    return seconds, (found.returncode, hashlib.sha256(found.stdout).digest()), len(found.stdout)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("larder", type=pathlib.Path)
    arguments.add_argument("capture", type=pathlib.Path)
    arguments.add_argument("--queries", type=int, default=500)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--segment", default="15MiB")
    arguments.add_argument("--packets", action="store_true")
    given = arguments.parse_args()
    output = ["-w", "-"] if given.packets else []
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as scratch:
        plain, compressed = pathlib.Path(scratch, "plain"), pathlib.Path(scratch, "compressed")
        bytes_ = store(given.larder, given.capture, plain, given.segment, False)
        fewer = store(given.larder, given.capture, compressed, given.segment, True)
        segments = len(list(compressed.glob("*.zst")))
        if left := list(compressed.glob("*.pcapng")) or segments == 0:
            sys.exit(f"not compressed: {left}")
        print(f"{bytes_} bytes, compressed {fewer}, {segments} segments", flush=True)
        rows = flows(given.larder, plain)
        sums, ratios, different = [0.0, 0.0], [], 0
        for number in range(given.queries):
            text = query(chance, rows)
            # The first searches read the files into the page cache.
            if number == 0:
                search(given.larder, plain, text, output), search(given.larder, compressed, text, output)
            seconds, found, size = search(given.larder, plain, text, output)
            seconds_of, found_of, _ = search(given.larder, compressed, text, output)
            if found != found_of:
                different += 1
                print(f"DIFFERENT {text}")
            sums = [sums[0] + seconds, sums[1] + seconds_of]
            ratios.append((seconds_of / seconds, seconds, seconds_of, size, text))
        ratios.sort()
        print(f"{given.queries} queries: {sums[0]:.2f} s, compressed {sums[1]:.2f} s: {sums[1] / sums[0]:.2f} times as long")
        only = [ratio[0] for ratio in ratios]
        within = sum(ratio <= 3 for ratio in only) / len(only)
        print(f"ratios: median {statistics.median(only):.2f}, greatest {only[-1]:.2f}, {within:.0%} within 3")
        for ratio, seconds, seconds_of, size, text in ratios[-5:]:
            print(f"  {ratio:.2f}: {1000 * seconds:.0f} and {1000 * seconds_of:.0f} ms, {size} bytes: {text}")
        if different:
            sys.exit(f"{different} queries found different packets")


if __name__ == "__main__":
    main()
