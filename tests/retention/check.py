#!/usr/bin/env python3
"""Budget, age, free space and pins of the packet store hold while traffic is captured.

    check.py LARDER [--seconds N]

Frames of recorded traffic go round and round through a pair of interfaces, and larder stores them on a small
disk, in three phases: much traffic, so that the budget is used up; little, so that packets become too old; much
again, with a file of another program that leaves no room for the budget. Every second all rules are checked:

    budget      bytes of closed segments, as larder counts them, and files on the disk but for the open segment
    age         the time since the oldest segment was closed
    free space  but for five seconds after the other program wrote its file
    pins        bytes of pinned packets but for one segment, and that pinned packets outlive their segments

At the end each rule must have been the one that binds, and no packet may be missing: sent, received, stored.

Needs root (a network and a mount of its own), Python 3 (standard library only) and iproute2. Recordings are those
of the repository, and with ../shared/data beside it, public captures. Prints SKIP where no name space can be made.
"""

import argparse
import glob
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MIB = 1 << 20
ROOT = pathlib.Path(__file__).resolve().parents[2]
METRICS = "127.0.0.1:9099"
PIN = "tcp or name ~ *.netflix.com"
INSIDE = "LARDER_RETENTION_INSIDE"
SLACK_S = 3


def frames():
    """Ethernet frames of captures, up to 9000 bytes, and where they come from."""
    public = ROOT.parent / "shared/data/pcap"
    folder = public if public.is_dir() else ROOT / "tests/captures"
    found = []
    for path in sorted(folder.glob("*.pcap")):
        bytes_ = path.read_bytes()
        # Times in microseconds, or in nanoseconds.
        order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}.get(bytes_[:4])
        if not order or struct.unpack(order + "I", bytes_[20:24])[0] != 1:
            continue
        at = 24
        while at + 16 <= len(bytes_):
            size = struct.unpack(order + "I", bytes_[at + 8 : at + 12])[0]
            frame = bytes_[at + 16 : at + 16 + size]
            if 60 <= len(frame) <= 9000:
                found.append(frame)
            at += 16 + size
    return found, folder


def bytes_in(pattern):
    """Bytes of files, some of which may be deleted meanwhile."""
    total = 0
    for path in glob.glob(pattern):
        try:
            total += os.stat(path).st_size if os.path.isfile(path) else 0
        except FileNotFoundError:
            pass
    return total


class Sender:
    """Sends frames at a rate that changes."""

    def __init__(self, frames_):
        self.frames, self.rate, self.sent, self.is_over = frames_, 0, 0, False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        wire.bind(("send0", 0))
        due = time.monotonic()
        while not self.is_over:
            for _ in range(max(1, self.rate // 100)):
                wire.send(self.frames[self.sent % len(self.frames)])
                self.sent += 1
            due += 0.01
            pause = due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            else:
                due = time.monotonic()


def metrics():
    text = urllib.request.urlopen(f"http://{METRICS}/metrics").read().decode()
    lines = (line.split(" ") for line in text.splitlines() if line and line[0] != "#")
    return {name.removeprefix("larder_annotate_"): float(value) for name, value in lines}


def run(larder, seconds, folder):
    budget = max(8 * MIB, int(64 * MIB * seconds / 600))
    pins, reserve, segment = max(MIB, budget // 8), budget // 2, budget // 32
    age_s = max(5, int(seconds / 10))
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4 * budget}", "tmpfs", disk], check=True)
    for line in ["link set lo up", "link add read0 mtu 9000 type veth peer name send0 mtu 9000",
                 "link set read0 up", "link set send0 up"]:
        subprocess.run(["ip", *line.split(" ")], check=True)
    all_frames, source = frames()
    mean = sum(map(len, all_frames)) / len(all_frames) + 40
    print(f"{len(all_frames)} frames of {source.name}, {seconds} s", flush=True)
    # The budget is full long before packets are too old.
    much = int(budget / (age_s * 0.45) / mean)
    store = disk / "store"
    command = [larder, "annotate", "-i", "read0", "-o", folder / "log", "-d", folder / "stats", "--ctl", "none"]
    command += ["--metrics", METRICS, "-w", store, "--store", str(budget), "--segment", str(segment)]
    command += ["--store-age", f"{age_s}s", "--store-free", str(reserve), "--store-pin", PIN]
    command += ["--store-pin-size", str(pins), "--store-pin-packets", "20"]
    # Of frames that repeat within a segment, compression keeps next to nothing.
    command += ["--store-compress"] if sum(map(len, all_frames)) > 2 * segment else []
    process = subprocess.Popen(command, stderr=(folder / "errors").open("w"))
    begun = time.monotonic()
    while True:
        try:
            metrics()
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > begun + 30:
                sys.exit(f"larder does not run: {(folder / 'errors').read_text()}")
            time.sleep(0.1)
    sender = Sender(all_frames)
    sender.rate = much
    sender.thread.start()
    broken, binds = [], {"budget": 0, "age": 0, "free": 0}
    begun, filled, most_pins = time.monotonic(), None, 0
    while (passed := time.monotonic() - begun) < seconds:
        phase = int(3 * passed / seconds)
        sender.rate = [much, max(100, much // 20), much][phase]
        if phase == 2 and filled is None:
            (disk / "others").write_bytes(b"x" * int(2.7 * budget))
            filled = time.monotonic()
        time.sleep(1)
        kept = metrics()["store_bytes_kept"]
        on_disk, pinned = bytes_in(f"{store}/*"), bytes_in(f"{store}/pinned/*")
        space = os.statvfs(disk)
        free = space.f_bavail * space.f_frsize
        closed = sorted(glob.glob(f"{store}/*.idx"))
        try:
            oldest_s = time.time() - os.stat(closed[0]).st_mtime if closed else 0
        except FileNotFoundError:
            oldest_s = 0
        most_pins = max(most_pins, pinned)
        binds["budget"] += kept > budget - 3 * segment
        binds["age"] += oldest_s > age_s - SLACK_S
        binds["free"] += free < reserve + budget // 4
        is_settled = filled is None or time.monotonic() > filled + 5
        rules = {
            f"budget: {kept:.0f} bytes": kept <= budget,
            f"disk: {on_disk} bytes": on_disk <= budget + 2 * segment,
            f"pins: {pinned} bytes": pinned <= pins + 2 * segment,
            f"age: {oldest_s:.1f} s": oldest_s <= age_s + SLACK_S,
            f"free: {free} bytes": free >= reserve or not is_settled,
        }
        broken += [f"at {passed:.0f} s: {rule}" for rule, holds in rules.items() if not holds]
    sender.is_over = True
    sender.thread.join()
    time.sleep(1)
    counts = metrics()
    find = [larder, "find", "-d", store, "--quiet", "--format", "counts", PIN]
    found = json.loads(subprocess.run(find, capture_output=True, check=True).stdout)
    kept_only = [larder, "find", "-d", store / "pinned", "--quiet", "--format", "counts", PIN]
    of_pins = json.loads(subprocess.run(kept_only, capture_output=True, check=True).stdout)
    process.send_signal(signal.SIGTERM)
    code = process.wait()
    stats = json.loads((folder / "stats/stats.json").read_text())
    captured, kept = stats["captured"]["read0"], stats["kept"]
    print(f"sent {sender.sent}, received {captured['received']}, stored {kept['packets']}; deleted "
          f"{kept['segments_deleted']} of {kept['segments_closed']} segments; pinned {kept['packets_pinned']} packets, "
          f"{most_pins} bytes at most; checks in which a rule binds: {binds}")
    nothing_lost = {
        "exit status": code,
        "dropped": captured["dropped"],
        "not stored": captured["received"] - kept["packets"],
        "dropped by the store": kept["packets_dropped"] + kept["packets_lost"],
        "not pinned": kept["packets_not_pinned"],
        "errors of the disk": counts["store_disk_errors_total"],
        "sent and not received": max(0, sender.sent - captured["received"]),
    }
    broken += [f"{what}: {count}" for what, count in nothing_lost.items() if count]
    broken += [f"no check in which {rule} binds" for rule, count in binds.items() if count == 0]
    if of_pins["packets"] == 0 or found["packets"] < of_pins["packets"]:
        broken.append(f"pins are not found: {found}, {of_pins}")
    return broken


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("larder", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=600)
    options = parser.parse_args()
    if INSIDE not in os.environ:
        spaces = ["unshare", "--net", "--mount", "--propagation", "private"]
        if subprocess.run([*spaces, "true"], capture_output=True, check=False).returncode:
            print("SKIP retention: no name spaces can be made", file=sys.stderr)
            return
        line = [*spaces, sys.executable, "-B", *sys.argv]
        sys.exit(subprocess.run(line, env={**os.environ, INSIDE: "1"}, check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        try:
            broken = run(options.larder.resolve(), options.seconds, pathlib.Path(folder))
        finally:
            # Nothing else is mounted below; a larder that still runs keeps the disk.
            subprocess.run(["umount", "--lazy", pathlib.Path(folder) / "disk"], check=False)
    for line in broken[:50]:
        print(line, file=sys.stderr)
    if broken:
        sys.exit("retention: rules were broken")
    print("retention: all rules hold")


if __name__ == "__main__":
    main()
