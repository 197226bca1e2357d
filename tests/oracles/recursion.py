"""Finds names from the root on with larder and with unbound, among BIND's servers, and compares what they say.

    python3 tests/oracles/recursion.py target/debug/larder

Needs root, for a network of its own, and Debian's iproute2, bind9, unbound and bind9-dnsutils. Four name servers have a root, a
top level, and domains with what real ones have: aliases within zones and out of them, circles, wildcards, DNAME, names that are
there for others below them only, zones in zones, servers without addresses, one that is dead, one that is lame, an answer that
does not fit UDP. Both resolvers are asked the same; codes, answers and authority are to be the same but for TTLs. What
unbound does not answer in time is held against what is true.

Ends with 1 at the first difference.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

HEAD = "$TTL 300\n$ORIGIN {0}\n@ IN SOA ns.{1} h.{1} 1 3600 600 86400 60\n"

# Address of each server, and its zones.
SERVERS = {
    "127.88.0.1": {
        ".": """
            @ IN NS ns.root.
            ns.root. IN A 127.88.0.1
            zzz. IN NS ns.zzz.
            ns.zzz. IN A 127.88.1.1
        """
    },
    "127.88.1.1": {
        "zzz.": """
            @ IN NS ns
            ns IN A 127.88.1.1
            good IN NS ns.good
            ns.good IN A 127.88.2.1
            other IN NS ns.other
            ns.other IN A 127.88.3.1
            hosting IN NS ns.other
            hosted IN NS ns1.hosting
            ns.dead IN A 127.88.9.9
            dead IN NS ns.dead
            half IN NS ns.dead
            half IN NS ns.other
            lame IN NS ns.good
            txt IN TXT "of the top level"
            there.under IN A 192.0.2.7
        """
    },
    "127.88.2.1": {
        "good.zzz.": """
            @ IN NS ns
            @ IN MX 10 mail
            @ IN TXT "v=spf1 -all"
            ns IN A 127.88.2.1
            www IN A 192.0.2.1
            www IN AAAA 2001:db8::1
            mail IN A 192.0.2.2
            near IN CNAME www
            away IN CNAME www.other.zzz.
            further IN CNAME away
            lost IN CNAME nothing.other.zzz.
            round IN CNAME about
            about IN CNAME round
            back IN CNAME back.other.zzz.
            *.wild IN A 192.0.2.9
            *.alias IN CNAME www.other.zzz.
            a.b.c IN A 192.0.2.10
            dname IN DNAME other.zzz.
            deep IN NS ns.deep
            ns.deep IN A 127.88.2.1
        """
        + "".join(f'big IN TXT "{number}{"x" * 230}"\n' for number in range(9)),
        "deep.good.zzz.": """
            @ IN NS ns
            ns IN A 127.88.2.1
            www IN A 192.0.2.20
            up IN CNAME near.good.zzz.
        """,
    },
    "127.88.3.1": {
        "other.zzz.": """
            @ IN NS ns
            ns IN A 127.88.3.1
            www IN A 192.0.2.30
            back IN CNAME www.good.zzz.
            _sip._tcp IN SRV 1 2 5060 www
        """,
        "hosting.zzz.": "@ IN NS ns.other.zzz.\nns1 IN A 127.88.3.1\n",
        "hosted.zzz.": "@ IN NS ns1.hosting.zzz.\nwww IN A 192.0.2.40\n",
        "half.zzz.": "@ IN NS ns.other.zzz.\nwww IN A 192.0.2.50\n",
    },
}

QUESTIONS = """
    www.good A, www.good AAAA, www.good MX, good MX, good NS, good SOA, good TXT, near.good A, near.good CNAME, away.good A,
    further.good A, further.good AAAA, lost.good A, round.good A, back.good A, x.wild.good A, x.y.wild.good A, q.alias.good A,
    a.b.c.good A, b.c.good A, c.good TXT, z.b.c.good A, y.z.b.c.good A, www.dname.good A, nope.dname.good A, dname.good DNAME,
    www.deep.good A, up.deep.good A, deep.good NS, none.deep.good A, big.good TXT, www.other A, _sip._tcp.other SRV, back.other A,
    www.hosted A, hosted NS, none.hosted A, www.lame A, txt TXT, there.under A, under A, nothing A, a.b.nothing A, good DS,
    www.good TYPE65, WWW.GoOd A
"""
OF_THE_ROOT = ["nothing. A", "zzz. SOA", "zzz. DS", ". NS", ". SOA"]

# What larder says where unbound waits for longer than its clients do.
TRUE = {"www.half.zzz. A": ("NOERROR", "192.0.2.50"), "www.dead.zzz. A": ("SERVFAIL", None)}

UNBOUND, LARDER = 5601, 5602

CONFIGURATION = """
server:
  interface: 127.0.0.1@{port}
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{folder}"
  pidfile: ""
  use-syslog: no
  root-hints: "hints"
  module-config: "iterator"
  do-ip6: no
  do-not-query-localhost: no
remote-control:
  control-enable: no
"""


def start_servers(folder, inside):
    for number, (address, zones) in enumerate(SERVERS.items()):
        home = folder / str(number)
        home.mkdir()
        conf = (
            f'options {{ directory "{home}"; pid-file none; session-keyfile none; recursion no;'
            f" listen-on port 53 {{ {address}; }}; listen-on-v6 {{ none; }}; empty-zones-enable no; }};"
            " controls { };"
        )
        for at, (zone, records) in enumerate(zones.items()):
            file = home / f"{at}.zone"
            lines = "\n".join(line.strip() for line in records.splitlines() if line.strip())
            file.write_text(HEAD.format(zone, zone.lstrip(".")) + lines + "\n")
            conf += f' zone "{zone}" {{ type primary; file "{file}"; }};'
        (home / "named.conf").write_text(conf)
        yield subprocess.Popen(
            inside + ["named", "-g", "-4", "-n", "1", "-c", home / "named.conf"],
            stderr=open(home / "log", "w"),
        )


def start_resolvers(folder, inside, larder):
    (folder / "hints").write_text(". 3600 IN NS ns.root.\nns.root. 3600 IN A 127.88.0.1\n")
    (folder / "unbound.conf").write_text(CONFIGURATION.format(port=UNBOUND, folder=folder))
    said = open(folder / "said", "w")
    yield subprocess.Popen(inside + ["unbound", "-d", "-c", folder / "unbound.conf"], stderr=said)
    words = "dns --recurse --dnssec off --server-allow 127.0.0.0/8 --cores 1 --root-hints"
    listen = ["--listen", f"127.0.0.1:{LARDER}"]
    yield subprocess.Popen(
        inside + [larder] + words.split() + [folder / "hints"] + listen, stderr=said
    )


def ask(inside, port, question, wait_s=6):
    """Code, and records of answer and authority without TTLs; `None` where there was no answer."""
    flags = f"+time={wait_s} +tries=1 +nocookie +noadditional +nocmd +nostats".split()
    asked = inside + ["dig", "@127.0.0.1", "-p", str(port), *question.split(), *flags]
    done = subprocess.run(asked, capture_output=True, text=True)
    code = None
    records = []
    for line in done.stdout.splitlines():
        if "status: " in line:
            code = line.split("status: ")[1].split(",")[0]
        elif line and not line.startswith(";"):
            owner, _, rest = line.split(None, 2)
            records.append(" ".join([owner, *rest.split()]).lower())
    return code and (code, sorted(records))


def main(larder):
    questions = [f"{it.split()[0]}.zzz. {it.split()[1]}" for it in QUESTIONS.split(",")] + OF_THE_ROOT
    name = f"larder-{os.getpid()}"
    inside = ["ip", "netns", "exec", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    running = []
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        for address in SERVERS:
            subprocess.run(["ip", "-n", name, "addr", "add", f"{address}/32", "dev", "lo"], check=True)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            # BIND may give up its rights, and reads its zones all the same.
            folder.chmod(0o755)
            running += start_servers(folder, inside)
            running += start_resolvers(folder, inside, larder)
            until = time.monotonic() + 30
            while any(ask(inside, port, "www.good.zzz. A", 1) is None for port in (UNBOUND, LARDER)):
                if time.monotonic() > until:
                    sys.exit("the servers do not answer: " + (folder / "said").read_text())
                time.sleep(0.1)
            for question in questions:
                ours, theirs = (ask(inside, port, question) for port in (LARDER, UNBOUND))
                if ours is None or ours != theirs:
                    sys.exit(f"{question}: larder says {ours}, unbound {theirs}")
            for question, (code, data) in TRUE.items():
                ours = ask(inside, LARDER, question)
                last = ours and ours[1] and ours[1][0].split()[-1] or None
                if ours is None or (ours[0], last) != (code, data):
                    sys.exit(f"{question}: larder says {ours}, and not {code} {data}")
    finally:
        for process in running:
            process.kill()
            process.wait()
        subprocess.run(["ip", "netns", "delete", name], check=True)
    print(f"recursion: {len(questions)} answers as unbound's, {len(TRUE)} as they are")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
