#!/usr/bin/env python3
"""Records the export packets of softflowd over a capture of packets, as a pcap of raw IP.

    python3 tests/exports/record.py CAPTURE VERSION OUT.pcap [OPTION OF SOFTFLOWD...]

VERSION is 5, 9 or 10 (IPFIX). Only IPFIX with `-A milli` has the times of the capture's packets: softflowd
states those of v5 and v9 relative to its own start. The recordings here are of `tests/captures`:

    for c in r1-as-asked r2-pair r3-newer r7-late r9-answers-only; do
        python3 tests/exports/record.py tests/captures/$c.pcap 10 tests/exports/$c.ipfix.pcap -A milli
    done
"""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

EXPORTER, COLLECTOR = "192.0.2.1", "192.0.2.2"
PORTS = {"5": 2055, "9": 2055, "10": 4739}
LINKTYPE_RAW = 101


def main():
    capture, version, out, *options = sys.argv[1:]
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    udp.bind(("127.0.0.1", 0))
    udp.settimeout(1.0)
    folder = tempfile.mkdtemp()
    softflowd = subprocess.Popen(
        ["softflowd", "-d", "-v", version, "-r", capture, "-n", f"127.0.0.1:{udp.getsockname()[1]}",
         "-c", "none", "-p", os.path.join(folder, "pid"), *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(out, "wb") as file:
        # Times in nanoseconds.
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, LINKTYPE_RAW))
        while True:
            try:
                payload, (_, port) = udp.recvfrom(65_535)
            except TimeoutError:
                if softflowd.poll() is not None:
                    return
                continue
            now = time.time_ns()
            segment = struct.pack(">HHHH", port, PORTS[version], 8 + len(payload), 0) + payload
            ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), 0, 0, 64, 17, 0,
                             socket.inet_aton(EXPORTER), socket.inet_aton(COLLECTOR)) + segment
            file.write(struct.pack("<IIII", now // 10**9, now % 10**9, len(ip), len(ip)) + ip)


main()
