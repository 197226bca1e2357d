"""Small network programs for lab.sh: what the usual tools cannot be told to do exactly.

Standard library only. Each subcommand does one thing, in bounded time:

  offloads-off IFACE                      checksum and segmentation offloads off
  await ADDRESS PORT                      wait (<= 5 s) until a TCP port answers
  serve PORT...                           plain TCP service: banner, then echoes lines
  talk FROM_PORT ADDRESS PORT [HOLD_S]    client of `serve`: two lines, HOLD_S apart
  hello FROM_PORT ADDRESS PORT NAME SIZE  TLS handshake, first flight in segments of SIZE octets
  tcp-dns FROM_PORT ADDRESS NAME...       A questions over one TCP connection, all in one segment
  tcp-relay ADDRESS UPSTREAM SIZE         DNS over TCP relay: all answers at once, cut every SIZE
                                          octets (0: not cut)
  forge FROM TO TO_PORT ID NAME ADDRESS   one DNS answer from a forged source address
  llmnr-answer ADDRESS NAME               answer LLMNR questions for NAME
  llmnr-ask NAME                          ask for NAME over LLMNR, once
  fstrm-receive SOCKET FILE               a Frame Streams receiver: what one sender sends, as a file
  nbns-register ADDRESS BROADCAST NAME    NetBIOS name registration, as a Windows host broadcasts it
"""

import fcntl
import socket
import ssl
import struct
import sys
import threading
import time


def offloads_off(iface):
    # struct ifreq { name; pointer } with struct ethtool_value { cmd, value }: SIOCETHTOOL.
    import array

    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # ETHTOOL_S{RXCSUM,TXCSUM,SG,TSO,GSO,GRO}
    for command in (0x15, 0x17, 0x19, 0x1F, 0x24, 0x2C):
        value = array.array("B", struct.pack("II", command, 0))
        pointer, _ = value.buffer_info()
        request = struct.pack("16sP", iface.encode(), pointer).ljust(40, b"\0")
        try:
            fcntl.ioctl(control, 0x8946, request)
        except OSError:
            pass  # an offload that this device does not have is off


def await_port(address, port):
    for _ in range(100):
        try:
            socket.create_connection((address, int(port)), timeout=0.5).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{address} port {port}: nobody answers")


def serve(*ports):
    def converse(peer):
        with peer:
            peer.settimeout(15)
            try:
                peer.sendall(b"220 ready\r\n")
                while data := peer.recv(256):
                    peer.sendall(b"ok " + data)
            except OSError:
                pass

    def listen(port):
        listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=converse, args=(peer,), daemon=True).start()

    for port in ports:
        threading.Thread(target=listen, args=(int(port),), daemon=True).start()
    time.sleep(115)


def connect(from_port, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    client = socket.socket(family, socket.SOCK_STREAM)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.settimeout(10)
    client.bind(("::" if ":" in address else "0.0.0.0", int(from_port)))
    client.connect((address, int(port)))
    return client


def talk(from_port, address, port, hold_s="0"):
    with connect(from_port, address, port) as client:
        client.recv(256)
        client.sendall(b"hello\r\n")
        client.recv(256)
        time.sleep(float(hold_s))
        client.sendall(b"bye\r\n")
        client.recv(256)


def hello(from_port, address, port, name, size):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with connect(from_port, address, port) as client:
        while True:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            flight = outgoing.read()
            for start in range(0, len(flight), int(size)):
                client.sendall(flight[start : start + int(size)])
                time.sleep(0.02)
            if done:
                return
            incoming.write(client.recv(8192))


def labels(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def question(message_id, name, flags=0x0100):
    return struct.pack(">6H", message_id, flags, 1, 0, 0, 0) + labels(name) + b"\0\1\0\1"


def answer(message_id, name, address, flags=0x8180, ttl_s=300):
    record = struct.pack(">HHHIH", 0xC00C, 1, 1, ttl_s, 4) + socket.inet_aton(address)
    return struct.pack(">6H", message_id, flags, 1, 1, 0, 0) + labels(name) + b"\0\1\0\1" + record


def receive_exactly(stream, count):
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def receive_message(stream):
    (length,) = struct.unpack(">H", receive_exactly(stream, 2))
    return receive_exactly(stream, length)


def tcp_dns(from_port, address, *names):
    with connect(from_port, address, 53) as client:
        messages = [question(0x2000 + index, name) for index, name in enumerate(names)]
        client.sendall(b"".join(struct.pack(">H", len(m)) + m for m in messages))
        for _ in messages:
            receive_message(client)


def tcp_relay(address, upstream, size):
    listener = socket.create_server((address, 53))
    listener.settimeout(100)
    while True:
        client, _ = listener.accept()
        client.settimeout(5)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client, socket.create_connection((upstream, 53), timeout=5) as server:
            answers = b""
            # Questions come in one segment; take what one read gives.
            pending = client.recv(4096)
            while len(pending) >= 2:
                length = 2 + int.from_bytes(pending[:2], "big")
                server.sendall(pending[:length])
                pending = pending[length:]
                message = receive_message(server)
                answers += struct.pack(">H", len(message)) + message
            step = int(size) or max(1, len(answers))
            for start in range(0, len(answers), step):
                client.sendall(answers[start : start + step])
                time.sleep(0.02)
            try:
                client.recv(16)  # the client closes first
            except OSError:
                pass


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def forge(source, target, target_port, message_id, name, address):
    payload = answer(int(message_id, 0), name, address)
    length = 8 + len(payload)
    # UDP checksum 0 (none) is legal over IPv4; the kernel fills in the header checksum.
    udp = struct.pack(">4H", 53, int(target_port), length, 0) + payload
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0x1234, 0, 64, 17, 0)
    ip += socket.inet_aton(source) + socket.inet_aton(target)
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw.sendto(ip + udp, (target, 0))


def llmnr_socket():
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    control.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    interface = struct.pack("4s4si", b"\0" * 4, b"\0" * 4, socket.if_nametoindex("eth0"))
    control.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
    return control


def llmnr_answer(address, name):
    server = llmnr_socket()
    server.bind(("", 5355))
    group = socket.inet_aton("224.0.0.252")
    member = struct.pack("4s4si", group, b"\0" * 4, socket.if_nametoindex("eth0"))
    server.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    server.settimeout(30)
    while True:
        data, peer = server.recvfrom(512)
        if data[12:].startswith(labels(name)):
            server.sendto(answer(int.from_bytes(data[:2], "big"), name, address, 0x8000, 30), peer)


def llmnr_ask(name):
    client = llmnr_socket()
    client.settimeout(2)
    client.sendto(question(0x5355, name, 0), ("224.0.0.252", 5355))
    client.recvfrom(512)


def nbns_register(address, broadcast, name):
    padded = name.upper().encode().ljust(15) + b"\0"  # suffix 0: workstation
    encoded = b"\x20" + b"".join(bytes([65 + (o >> 4), 65 + (o & 15)]) for o in padded) + b"\0"
    message = struct.pack(">6H", 0x8001, 0x2910, 1, 0, 0, 1) + encoded + b"\0\x20\0\1"
    message += b"\xc0\x0c\0\x20\0\1" + struct.pack(">IHH", 300000, 6, 0) + socket.inet_aton(address)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sender.bind((address, 137))
    for _ in range(3):
        sender.sendto(message, (broadcast, 137))
        time.sleep(0.1)


def fstrm_receive(path, file):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    listener.settimeout(60)
    sender, _ = listener.accept()
    sender.settimeout(30)

    def control():
        assert receive_exactly(sender, 4) == b"\0\0\0\0"
        length = receive_exactly(sender, 4)
        return length + receive_exactly(sender, int.from_bytes(length, "big"))

    content = b"protobuf:dnstap.Dnstap"
    field = struct.pack(">II", 1, len(content)) + content
    control()  # READY
    sender.sendall(struct.pack(">III", 0, 4 + len(field), 1) + field)  # ACCEPT
    with open(file, "wb") as out:
        out.write(b"\0\0\0\0" + control())  # START
        while True:
            length = receive_exactly(sender, 4)
            if length == b"\0\0\0\0":  # STOP
                size = receive_exactly(sender, 4)
                out.write(length + size + receive_exactly(sender, int.from_bytes(size, "big")))
                break
            out.write(length + receive_exactly(sender, int.from_bytes(length, "big")))
    try:
        sender.sendall(struct.pack(">III", 0, 4, 5))  # FINISH
    except OSError:
        pass  # a sender that ends does not always wait for it


COMMANDS = {
    "offloads-off": offloads_off,
    "await": await_port,
    "serve": serve,
    "talk": talk,
    "hello": hello,
    "tcp-dns": tcp_dns,
    "tcp-relay": tcp_relay,
    "forge": forge,
    "llmnr-answer": llmnr_answer,
    "llmnr-ask": llmnr_ask,
    "fstrm-receive": fstrm_receive,
    "nbns-register": nbns_register,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
