#!/usr/bin/env python3
"""What tshark says of the recordings, for the tests of larder-annotate (crates/annotate/tests/truth).

    python3 tests/captures/truth.py [NAME...]

Writes truth/NAME.json for each recording (or those named), without larder: which packets make a flow,
who began it, the name that it states itself, and the name that DNS gives it at its first packet by plain
rules: the newest name that this client asked for and got this address; else the newest name that
anybody asked for, taken back to the head of every chain of aliases seen so far.

Needs tshark. Where larder differs, look at the packets: tshark is a peer, not an oracle of everything.
"""
import ipaddress
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def tshark(path, *arguments):
    command = ["tshark", "-n", "-r", str(path), "-o", "ip.defragment:TRUE", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout


# The innermost value of each field counts.
FIELDS = """frame.number frame.time_epoch frame.protocols ip.src ip.dst ipv6.src ipv6.dst
tcp.stream udp.stream tcp.srcport tcp.dstport udp.srcport udp.dstport tcp.flags.syn tcp.flags.ack
tls.handshake.extensions_server_name http.host icmp.type icmpv6.type""".split()


def rows(path):
    arguments = ["-T", "fields", "-E", "occurrence=l", "-E", "separator=\x1f"]
    for field in FIELDS:
        arguments += ["-e", field]
    for line in tshark(path, *arguments).decode("utf-8", "replace").splitlines():
        yield dict(zip(FIELDS, line.split("\x1f")))


def innermost(row):
    """The addresses of the last IP header: of the two versions, the one that comes last in the frame."""
    protocols = row["frame.protocols"].split(":")
    last = max((at for at, name in enumerate(protocols) if name in ("ip", "ipv6")), default=None)
    if last is None:
        return None
    version = protocols[last]
    return row[version + ".src"], row[version + ".dst"]


def stated(row):
    """The name that a packet states for its flow, and what states it."""
    name = row["tls.handshake.extensions_server_name"].lower().rstrip(".")
    if name:
        return name, "quic" if "quic" in row["frame.protocols"] else "tls"
    host = row["http.host"].lower()
    if not host:
        return None
    if host.startswith("["):
        host = host[1:].split("]")[0]
    elif host.count(":") == 1:
        host = host.split(":")[0]
    try:
        ipaddress.ip_address(host)
        return host, "http-ip"
    except ValueError:
        return host.rstrip("."), "http"


def values(pairs, key):
    return [value for name, value in pairs if name == key]


def first(pairs, key):
    return next(iter(values(pairs, key)), None)


def messages(path):
    """Every DNS response: frame, innermost destination, whether multicast DNS, query name, answers."""
    # A message that an ICMP error quotes was counted where it passed.
    arguments = ["-Y", "(dns or mdns) and not icmp and not icmpv6", "-T", "json"]
    packets = json.loads(tshark(path, *arguments) or b"[]", object_pairs_hook=list)
    for packet in packets:
        layers = first(first(packet, "_source"), "layers")
        frame = int(first(first(layers, "frame"), "frame.number"))
        ip = [pair for pair in layers if pair[0] in ("ip", "ipv6")][-1]
        client = first(ip[1], ip[0] + ".dst")
        for kind in ("dns", "mdns"):
            for message in values(layers, kind):
                flags = first(message, "dns.flags_tree") or []
                if first(flags, "dns.flags.response") not in ("1", True, "True"):
                    continue
                query = None
                for _, question in first(message, "Queries") or []:
                    query = first(question, "dns.qry.name")
                    break
                answers = []
                sections = ["Answers"] + (["Additional records"] if kind == "mdns" else [])
                for section in sections:
                    for _, record in first(message, section) or []:
                        owner = (first(record, "dns.resp.name") or "").lower()
                        data = first(record, "dns.a") or first(record, "dns.aaaa")
                        alias = first(record, "dns.cname") or first(record, "dns.ptr.domain_name")
                        ttl = int(first(record, "dns.resp.ttl") or 0)
                        answers.append((first(record, "dns.resp.type"), owner, data, alias, ttl))
                yield frame, client, kind == "mdns", (query or "").lower(), answers


def learn(path):
    """By frame, what it teaches: (client, name asked, address), and (target of an alias, owner)."""
    taught, learned = {}, []
    for frame, client, multicast, query, answers in messages(path):
        lessons, aliases = taught.setdefault(frame, ([], []))
        for kind, owner, data, alias, ttl in answers:
            if kind == "5" and alias and not multicast:
                aliases.append((alias.lower(), owner))
                learned.append({"frame": frame, "name": owner, "ttl": ttl})
            elif kind in ("1", "28") and data:
                asked = owner if multicast else query
                if not multicast:
                    lessons.append((client, asked, data))
                learned.append({"frame": frame, "name": asked, "ttl": ttl})
            elif kind == "12" and alias:
                learned.append({"frame": frame, "name": alias.lower(), "ttl": ttl})
            elif kind in ("64", "65"):
                # Its address hints name addresses, where it has any.
                learned.append({"frame": frame, "name": query, "ttl": ttl})
    return taught, learned


def head(aliases, name):
    for _ in range(8):
        if name not in aliases:
            break
        name = aliases[name]
    return name


def truth(path):
    taught, learned = learn(path)
    flows, packets, icmp = {}, 0, 0
    pairs, newest, aliases = {}, {}, {}
    for row in rows(path):
        packets += 1
        frame = int(row["frame.number"])
        ends = innermost(row)
        protocols = row["frame.protocols"].split(":")
        transport = next((name for name in ("tcp", "udp") if row[name + ".stream"]), None)
        if "icmp" in protocols or "icmpv6" in protocols:
            # The header that an error quotes is not the packet's own.
            icmp += 1
        elif ends and transport:
            key = transport + row[transport + ".stream"]
            source, destination = ends
            ports = int(row[transport + ".srcport"]), int(row[transport + ".dstport"])
            if key not in flows:
                is_syn = transport == "tcp" and row["tcp.flags.syn"] in ("1", "True")
                is_ack = transport == "tcp" and row["tcp.flags.ack"] in ("1", "True")
                begins = not is_ack if is_syn else ports[0] >= ports[1]
                client, server = (source, destination) if begins else (destination, source)
                name = pairs.get((client, server))
                if name is None and server in newest:
                    name = head(aliases, newest[server])
                flows[key] = {
                    "id": key, "first_frame": frame, "first_time": float(row["frame.time_epoch"]),
                    "ap": ports[0], "bp": ports[1], "packets": 0, "client": client,
                    "server": server, "name": None, "source": None, "dns_d": name,
                }
            flow = flows[key]
            flow["packets"] += 1
            if flow["name"] is None and (found := stated(row)):
                flow["name"], flow["source"] = found
        lessons, steps = taught.get(frame, ([], []))
        aliases.update(steps)
        for client, asked, address in lessons:
            pairs[client, address] = asked
            newest[address] = asked
    stats = {"truth": 0, "cov": 0, "d_exact": 0, "d_rd": 0}
    for flow in flows.values():
        if flow["name"] is None or flow["source"] == "http-ip":
            continue
        stats["truth"] += 1
        if flow["dns_d"] is not None:
            stats["cov"] += 1
            stats["d_exact"] += flow["dns_d"] == flow["name"]
            stats["d_rd"] += flow["dns_d"].split(".")[-2:] == flow["name"].split(".")[-2:]
    return {"file": path.name, "packets": packets, "icmp": icmp, "stats": stats,
            "learned": learned, "flows": list(flows.values())}


def main():
    wanted = sys.argv[1:]
    for path in sorted(HERE.glob("*.pcap")):
        if wanted and path.stem not in wanted:
            continue
        text = json.dumps(truth(path), indent=1, sort_keys=True)
        (HERE / "truth" / (path.name + ".json")).write_text(text + "\n")


main()
