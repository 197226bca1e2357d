"""Makes `libcachesim.tsv`: hits of libCacheSim (Juncheng Yang and others) on the stream of `main.rs`.

    pip install libcachesim==0.3.5
    python3 lab/sim/tests/policies/oracle_libcachesim.py [check] lab/sim/tests/policies/libcachesim.tsv

With `check` it writes nothing and exits 1 where the file says something else.
"""
import sys

import libcachesim

REQUESTS = 200_000
CAPACITIES = [10, 100, 320, 1_000, 5_000]
POLICIES = {
    "fifo": libcachesim.FIFO,
    "lru": libcachesim.LRU,
    "clock": libcachesim.Clock,
    "clock2": lambda size: libcachesim.Clock(size, n_bit_counter=2),
    "2q": libcachesim.TwoQ,
    "arc": libcachesim.ARC,
    "sieve": libcachesim.Sieve,
    "s3-fifo": libcachesim.S3FIFO,
    "w-tinylfu": libcachesim.WTinyLFU,
    "lfu": libcachesim.LFU,
}


def stream(requests):
    """The stream of `main.rs`, by the same arithmetic."""
    state, scan = 1, 10_000
    for _ in range(requests):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        draw = state >> 33
        if draw % 3 == 0:
            scan += 1
            yield scan - (draw >> 2) % 2 * 700
        else:
            yield (draw >> 3 & 0x3FF) * (draw >> 13 & 0x3FF) >> 8


def hits(policy, capacity, keys):
    """Look-ups that find their key, each of which stores it otherwise; all of size 1."""
    cache = POLICIES[policy](capacity)
    request = libcachesim.Request()
    request.obj_size = 1
    found = 0
    for key in keys:
        request.obj_id = key
        found += cache.get(request)
    return found


def table():
    keys = list(stream(REQUESTS))
    yield f"# hits of libCacheSim in {REQUESTS} requests; made by oracle_libcachesim.py"
    for policy in POLICIES:
        for capacity in CAPACITIES:
            yield f"{policy}\t{capacity}\t{hits(policy, capacity, keys)}"


def main(arguments):
    lines = "".join(f"{line}\n" for line in table())
    if arguments[0] != "check":
        with open(arguments[0], "w") as file:
            file.write(lines)
        return 0
    with open(arguments[1]) as file:
        return int(file.read() != lines)


sys.exit(main(sys.argv[1:]))
