"""Writes a pcap of DNS answers that name so many distinct addresses, 28 an answer, to standard output.

    python3 tests/memory/answers.py 20000000 | larder annotate -r - --names-budget 64MiB -o /dev/null

Every answer is to a question of its own, by one of 65,536 clients. 20 million addresses are 466 MB.
"""

import struct
import sys

PER_ANSWER = 28
RESOLVER = bytes([192, 0, 2, 53])
ETHERNET = bytes.fromhex("02000000000102000000000208 00")
# Owner by pointer to the question, A, IN, 300 s, four octets.
RECORD = bytes.fromhex("c00c 0001 0001 0000012c 0004")
START_S = 1_700_000_000


def frame(source, destination, ports, message):
    udp = struct.pack(">HHHH", *ports, 8 + len(message), 0) + message
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + source + destination
    return ETHERNET + ip + udp


def exchange(number, first, count):
    """The question and the answer with addresses `first` and following."""
    client = struct.pack(">I", 0x0A000000 + (number & 0xFFFF))
    port, ident = 1024 + number % 60_000, number & 0xFFFF
    name = b"\x0bh%010d\x06larder\x07example\x00" % number + b"\x00\x01\x00\x01"
    records = b"".join(RECORD + struct.pack(">I", first + at) for at in range(count))
    yield frame(client, RESOLVER, (port, 53), struct.pack(">HHHHHH", ident, 0x100, 1, 0, 0, 0) + name)
    head = struct.pack(">HHHHHH", ident, 0x8180, 1, count, 0, 0)
    yield frame(RESOLVER, client, (53, port), head + name + records)


def main(total):
    out = sys.stdout.buffer
    out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1))
    done, number, us = 0, 0, 0
    while done < total:
        count = min(PER_ANSWER, total - done)
        for octets in exchange(number, 0x10000000 + done, count):
            us += 50
            at = (START_S + us // 1_000_000, us % 1_000_000, len(octets), len(octets))
            out.write(struct.pack("<IIII", *at) + octets)
        done += count
        number += 1


main(int(sys.argv[1]))
