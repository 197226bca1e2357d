"""An archive to test with: the golden captures, slowed down, many times over hours, cut into files at any packet.

Flows, tunnels, fragments and DNS over TCP go over the ends of files and over the hour.
"""

import random
import struct

# Of a packet of a capture to its successor, at most: flows stay open.
GAP_MAX_S = 40


class Frame:
    """A packet: time in ns, link type, bytes, and their number on the wire."""

    def __init__(self, at_ns, link, data, length):
        self.at_ns, self.link, self.data, self.length = at_ns, link, data, length


def read_pcap(path):
    """The packets of a pcap file of this machine's byte order, with nanoseconds."""
    data = path.read_bytes()
    magic, link = struct.unpack_from("<I", data)[0], struct.unpack_from("<I", data, 20)[0]
    assert magic == 0xA1B23C4D, path
    at, frames = 24, []
    while at < len(data):
        seconds, ns, captured, length = struct.unpack_from("<IIII", data, at)
        at += 16
        frames.append(Frame(seconds * 10**9 + ns, link, data[at : at + captured], length))
        at += captured
    return frames


def pcapng(frames):
    """A pcapng file of packets, with an interface for each link type."""

    def block(kind, body):
        body += bytes(-len(body) % 4)
        size = struct.pack("<I", len(body) + 12)
        return struct.pack("<I", kind) + size + body + size

    links = sorted({frame.link for frame in frames})
    out = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    # Option 9: times are in nanoseconds.
    out += [block(1, struct.pack("<HHIHHB3xHH", link, 0, 0, 9, 1, 9, 0, 0)) for link in links]
    for frame in frames:
        head = struct.pack("<IIIII", links.index(frame.link), frame.at_ns >> 32, frame.at_ns & 0xFFFFFFFF,
                           len(frame.data), frame.length)
        out.append(block(6, head + frame.data))
    return b"".join(out)


def made(captures, seed, began_s, span_s, rounds):
    """The packets of an archive, in order of time."""
    chance = random.Random(seed)
    frames = []
    for _ in range(rounds):
        for path in captures:
            at_ns = (began_s + chance.randrange(span_s)) * 10**9 + chance.randrange(10**9)
            slow, last_ns = chance.choice([1, 10, 100, 1000]), None
            for frame in read_pcap(path):
                gap_ns = 0 if last_ns is None else max(frame.at_ns - last_ns, 0)
                last_ns = frame.at_ns
                at_ns += min(gap_ns * slow, chance.randrange(1, GAP_MAX_S * 10**9))
                frames.append(Frame(at_ns, frame.link, frame.data, frame.length))
    return in_order(frames)


def in_order(frames):
    """Not two packets of one time: which of two files they are in says nothing of their order."""
    frames = sorted(frames, key=lambda frame: frame.at_ns)
    for before, frame in zip(frames, frames[1:]):
        frame.at_ns = max(frame.at_ns, before.at_ns + 1)
    return frames


def datagram(source, destination, ports, payload):
    """A UDP packet over IPv4 and Ethernet."""
    udp = struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, source, destination)
    return bytes(12) + b"\x08\x00" + ip + udp


def lookups(count, seed, began_s, span_s):
    """So many names for addresses, each looked up by a client, and flows to addresses that were looked up before."""
    chance = random.Random(seed)
    resolver, frames, known = bytes([10, 0, 0, 53]), [], []
    for number in range(count):
        at_ns = began_s * 10**9 + span_s * 10**9 * number // count
        client, address = bytes([10, 1, 0, chance.randrange(1, 200)]), struct.pack(">I", 0xC6330000 + number)
        label = b"host%d" % number
        name = bytes([len(label)]) + label + b"\x04many\x07example\x00"
        question, ports = name + struct.pack(">HH", 1, 1), (1024 + number % 60_000, 53)
        answer = struct.pack(">HHHIH", 0xC00C, 1, 1, 300, 4) + address
        for offset, source, destination, ends, flags, more in [
            (0, client, resolver, ports, 0x0100, b""), (10**6, resolver, client, ports[::-1], 0x8180, answer)
        ]:
            message = struct.pack(">HHHHHH", number % 65_536, flags, 1, int(bool(more)), 0, 0) + question + more
            data = datagram(source, destination, ends, message)
            frames.append(Frame(at_ns + offset, 1, data, len(data)))
        known.append((client, address))
        if number % 4 == 0:
            client, address = known[-1 - int(len(known) * chance.random() ** 3)]
            data = datagram(client, address, (chance.randrange(1024, 60_000), 9_999), b"request")
            frames.append(Frame(at_ns + 5 * 10**6, 1, data, len(data)))
    return in_order(frames)


def cut(frames, count, seed, every_s):
    """The packets in files, some of one packet: where a multiple of `every_s` begins, too."""
    chance = random.Random(seed)
    ends = set(chance.sample(range(1, len(frames)), count - 1)) | {len(frames)}
    ranges = [frame.at_ns // (every_s * 10**9) for frame in frames]
    begins = [at for at in range(3, len(frames) - 3) if ranges[at] != ranges[at - 1]]
    for begin in chance.sample(begins, 3):
        ends |= set(range(begin - 1, begin + 3))
    ends = sorted(ends)
    return [frames[begin:end] for begin, end in zip([0, *ends], ends)]
