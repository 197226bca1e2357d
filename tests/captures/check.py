"""Checks expected.tsv against the recordings, by tshark: needs no larder.

For every row: the flow is in its capture (its innermost packets), and the name is where the row
says that it comes from: an answer to a question for that name with the address in it, a server
name, a Host, a local host's own announcement. Ends with 1 if a row is not so.
"""

import csv
import re
import subprocess
import sys
from pathlib import Path

FIELDS = """ip.src ip.dst ipv6.src ipv6.dst tcp.srcport tcp.dstport udp.srcport udp.dstport
dns.flags.response dns.qry.name dns.resp.name dns.a dns.aaaa dns.cname dns.ptr.domain_name
dns.svcb.svcparam.ipv4hint.ip dns.svcb.svcparam.ipv6hint.ip
tls.handshake.extensions_server_name http.host dhcp.option.hostname nbns.name""".split()


def packets(path):
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=;"]
    for field in FIELDS:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    for line in done.stdout.splitlines():
        yield {field: [v for v in value.split(";") if v] for field, value in zip(FIELDS, line.split("\t"))}


def end(packet, transport, side):
    address = packet["ipv6." + side][-1:] or packet["ip." + side][-1:]
    port = packet[f"{transport}.{side}port"][-1:]
    return (address[0], port[0]) if address and port else None


def split(flow):
    transport, source, target = re.fullmatch(r"(\w+) (\S+) > (\S+)", flow).groups()
    ends = [tuple(text.replace("[", "").replace("]", "").rsplit(":", 1)) for text in (source, target)]
    return transport, *ends


def holds(row, seen):
    transport, source, target = split(row["flow"])
    name, kind = row["name"], row["kind"]
    named = (target if row["end"] == "destination" else source)[0]
    own = [p for p in seen if (end(p, transport, "src"), end(p, transport, "dst")) == (source, target)]
    if not own:
        return "no such flow"
    said = {field: {v.lower() for p in own for v in p[field]} for field in FIELDS}
    answers = [p for p in seen if p["dns.flags.response"] and p["dns.flags.response"][0] in ("1", "True")]
    addresses = "dns.a dns.aaaa dns.svcb.svcparam.ipv4hint.ip dns.svcb.svcparam.ipv6hint.ip".split()
    if kind == "-":
        return ""
    if kind in ("sni", "quic_sni"):
        found = name in said["tls.handshake.extensions_server_name"]
    elif kind == "http_host":
        found = name in {host.split(":")[0] for host in said["http.host"]}
    elif kind in ("dns_pair", "dns_address", "llmnr"):
        found = [
            p for p in answers if name in p["dns.qry.name"] and any(named in p[field] for field in addresses)
        ]
        if kind == "dns_pair":
            found = [p for p in found if (p["ipv6.dst"][-1:] or p["ip.dst"][-1:]) == [source[0]]]
    elif kind == "dns_chain":
        heads = {c for p in answers if name in p["dns.qry.name"] for c in p["dns.cname"]}
        found = [p for p in answers if named in p["dns.a"] and heads & set(p["dns.qry.name"])]
    elif kind == "mdns":
        found = [p for p in answers if name in p["dns.resp.name"] and named in p["dns.a"]]
    elif kind == "ptr":
        found = [p for p in answers if name in p["dns.ptr.domain_name"]]
    elif kind == "dhcp":
        found = [p for p in seen if name in p["dhcp.option.hostname"]]
    elif kind == "nbns":
        found = [p for p in seen if any(n.lower().startswith(name + "<00>") for n in p["nbns.name"])]
    else:
        return f"unknown kind {kind}"
    return "" if found else f"{name} is not there as {kind}"


def main():
    here = Path(__file__).parent
    with open(here / "expected.tsv", newline="") as file:
        lines = [line for line in file if not line.startswith("#")]
    columns = "capture flow end name kind flags names rule wrong".split()
    rows = list(csv.DictReader(lines, columns, delimiter="\t"))
    captures, failures = {}, 0
    for row in rows:
        if row["capture"] not in captures:
            captures[row["capture"]] = list(packets(here / row["capture"]))
        problem = holds(row, captures[row["capture"]])
        if problem:
            failures += 1
            print(f"{row['capture']}: {row['flow']}: {problem}")
    unlisted = {path.name for path in here.glob("*.pcap*")} - set(captures)
    for name in sorted(unlisted):
        failures += 1
        print(f"{name}: has no row")
    print(f"{len(rows)} rows, {len(captures)} captures, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
