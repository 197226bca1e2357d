"""Wraps every packet of a capture in a tunnel: for the encapsulations that not every kernel has.

  wrap.py KIND IN.pcap OUT.pcap      (classic pcap of Ethernet in, either time resolution)

The inner packets are a recording of real programs; only the outer headers are made here, by the
RFC or standard named with each. Outer addresses: 198.51.100.201 -> 198.51.100.202 for packets of
192.0.2.10, the other way round for all others. IPv4 header checksums are right, UDP ones 0.
"""

import socket
import struct
import sys

WEST, EAST = "198.51.100.201", "198.51.100.202"
CLIENT = socket.inet_aton("192.0.2.10")
ETHERNET, RAW, NULL, SLL, SLL2 = 1, 101, 0, 113, 276


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(protocol, payload, west):
    source, target = (WEST, EAST) if west else (EAST, WEST)
    header = struct.pack(">BBHHHBB", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol)
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    return header + struct.pack(">H", checksum(header + b"\0\0" + addresses)) + addresses + payload


def udp(port, payload, west):
    return ipv4(17, struct.pack(">4H", 49999, port, 8 + len(payload), 0) + payload, west)


def frame(ethernet, payload, kind=0x0800):
    return ethernet[:12] + struct.pack(">H", kind) + payload


def wrap(kind, packet, index):
    """Returns (link type, octets). `packet` is an Ethernet frame of IPv4 or IPv6."""
    ethernet, ethertype, ip = packet[:12], packet[12:14], packet[14:]
    west = ip[12:16] == CLIENT
    if kind == "vlan":  # IEEE 802.1Q
        return ETHERNET, ethernet + b"\x81\0\0\x64" + ethertype + ip
    if kind == "qinq":  # IEEE 802.1ad over 802.1Q
        return ETHERNET, ethernet + b"\x88\xa8\0\x0a\x81\0\0\x64" + ethertype + ip
    if kind == "mpls":  # RFC 3032, two labels
        return ETHERNET, frame(ethernet, b"\0\x06\x40\x40\0\x06\x51\x40" + ip, 0x8847)
    if kind == "pppoe":  # RFC 2516, session 1; RFC 1661 protocol numbers
        payload = b"\0\x21" + ip
        return ETHERNET, frame(ethernet, struct.pack(">BBHH", 0x11, 0, 1, len(payload)) + payload, 0x8864)
    if kind == "gre":  # RFC 2784 with RFC 2890 key and sequence
        gre = b"\x30\0" + ethertype + struct.pack(">II", 7, index)
        return ETHERNET, frame(ethernet, ipv4(47, gre + ip, west))
    if kind == "gretap":  # transparent Ethernet bridging over GRE
        return ETHERNET, frame(ethernet, ipv4(47, b"\0\0\x65\x58" + packet, west))
    if kind == "erspan2":  # draft-foschiano-erspan, type II: GRE sequence, version 1
        gre = b"\x10\0\x88\xbe" + struct.pack(">IHHI", index, 0x1000 | 5, 1, 0)
        return ETHERNET, frame(ethernet, ipv4(47, gre + packet, west))
    if kind == "geneve":  # RFC 8926, with one option of 4 octets
        geneve = b"\x02\0\x65\x58\0\0\x05\0" + b"\1\1\x01\x01" + b"\0\0\0\x2a"
        return ETHERNET, frame(ethernet, udp(6081, geneve + packet, west))
    if kind == "gtpu":  # 3GPP TS 29.281, G-PDU with sequence number
        gtp = struct.pack(">BBHIHBB", 0x32, 255, 4 + len(ip), 0x1234, index & 0xFFFF, 0, 0)
        return ETHERNET, frame(ethernet, udp(2152, gtp + ip, west))
    if kind == "ipip":  # RFC 2003 (IPv4), RFC 4213 (IPv6: 6in4)
        return ETHERNET, frame(ethernet, ipv4(41 if ethertype == b"\x86\xdd" else 4, ip, west))
    if kind == "teredo":  # RFC 4380: IPv6 in UDP 3544
        return ETHERNET, frame(ethernet, udp(3544, ip, west))
    if kind == "raw":  # LINKTYPE_RAW
        return RAW, ip
    if kind == "null":  # LINKTYPE_NULL, written little-endian: AF_INET 2, AF_INET6 30
        return NULL, struct.pack("<I", 30 if ethertype == b"\x86\xdd" else 2) + ip
    if kind == "sll":  # LINKTYPE_LINUX_SLL, a packet to us or from us
        return SLL, struct.pack(">HHH", 4 if west else 0, 1, 6) + packet[6:12] + b"\0\0" + ethertype + ip
    if kind == "sll2":  # LINKTYPE_LINUX_SLL2
        head = ethertype + struct.pack(">HIHBB", 0, 2, 1, 4 if west else 0, 6)
        return SLL2, head + packet[6:12] + b"\0\0" + ip
    sys.exit(__doc__)


def main(kind, source, target):
    data = open(source, "rb").read()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at, index, out, link = 24, 0, b"", ETHERNET
    while at < len(data):
        seconds, fraction, captured, _ = struct.unpack(order + "4I", data[at : at + 16])
        packet = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        link, wrapped = wrap(kind, packet, index)
        out += struct.pack(order + "4I", seconds, fraction, len(wrapped), len(wrapped)) + wrapped
        index += 1
    with open(target, "wb") as file:
        file.write(data[:20] + struct.pack(order + "I", link) + out)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
