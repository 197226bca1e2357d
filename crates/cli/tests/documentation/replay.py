"""Sends the packets of a pcap file by an interface, again and again: replay.py INTERFACE FILE"""

import socket
import struct
import sys
import time

with open(sys.argv[2], "rb") as file:
    data = file.read()
frames, at = [], 24
while at < len(data):
    length = struct.unpack_from("<I", data, at + 8)[0]
    frames.append(data[at + 16 : at + 16 + length])
    at += 16 + length
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind((sys.argv[1], 0))
while True:
    for frame in frames:
        sender.send(frame)
        time.sleep(0.05)
