"""Reads larder's structured logs with other people's readers, and compares what they say.

    pip install polars==2.1.0 duckdb==2.0.0 parsezeeklogs==3.0.1
    python3 tests/oracles/formats.py target/debug/larder [FOLDER]

For every capture in tests/captures, or FOLDER (the program must be built with `--features full`):

* Parquet: Polars and DuckDB both read it; columns, rows and cells are those of the CSV log, as
  Python's csv module reads that.
* Zeek: parsezeeklogs reads conn.log and dns.log without skipping a line, every value has the type
  that the header gives it, and flows are those of the CSV log.
* ECS: every field of the schema has the type and the arity that the schema gives it, by the table
  in parsezeeklogs, which is made from the schema itself (BY_REFERENCE has what that leaves out).

Ends with 1 at the first difference.
"""

import csv
import datetime
import ipaddress
import json
import pathlib
import subprocess
import sys
import tempfile

import duckdb
import polars
from parsezeeklogs import ZeekLog
from parsezeeklogs import ecs

CAPTURES = pathlib.Path(__file__).parent.parent / "captures"


def run(larder, capture, kind, folder):
    out = folder / f"log.{kind}"
    done = subprocess.run(
        [larder, "annotate", "--quiet", "-r", capture, "--format", kind, "-o", out, "-d", folder],
    )
    # 1: the capture is damaged; its log is whole all the same.
    assert done.returncode in (0, 1), (capture, done.returncode)
    return out


def read_csv(path):
    """Header, and rows as lists of text, the mark before formulas taken off."""
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    return header, [[cell.removeprefix("'") for cell in row] for row in rows]


def cell(value):
    """A Parquet value as the CSV log spells it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(value)
    return str(value)


def check_parquet(path, header, rows):
    frame = polars.read_parquet(path)
    assert frame.columns == header, (frame.columns, header)
    times = [name for name, kind in frame.schema.items() if kind == polars.Datetime("ns", "UTC")]
    assert times == ["@timestamp", "event.start", "event.end", "larder.continued_since"], times
    # Nanoseconds since 1970: Python's own times have no room for them.
    by_polars = [
        [cell(value) for value in row]
        for row in frame.with_columns(polars.col(name).cast(polars.Int64) for name in times).rows()
    ]
    columns = ", ".join(f'epoch_ns("{n}")' if n in times else f'"{n}"' for n in header)
    by_duckdb = [
        [cell(value) for value in row]
        for row in duckdb.sql(f"select {columns} from read_parquet('{path}')").fetchall()
    ]
    ours = [
        [str(nanoseconds(value)) if name in times and value else value for name, value in zip(header, row)]
        for row in rows
    ]
    assert by_polars == ours, first_difference(by_polars, ours)
    assert by_duckdb == ours, first_difference(by_duckdb, ours)


def nanoseconds(text):
    """Of an RFC 3339 time with nine decimals, in UTC."""
    seconds, decimals = text.removesuffix("Z").split(".")
    whole = datetime.datetime.fromisoformat(seconds).replace(tzinfo=datetime.timezone.utc)
    return int(whole.timestamp()) * 10**9 + int(decimals)


def first_difference(left, right):
    pairs = (pair for pair in zip(left, right) if pair[0] != pair[1])
    return next(pairs, (len(left), len(right)))


ZEEK_TYPES = {
    "time": float, "interval": float, "count": int, "int": int, "port": int, "bool": bool, "string": str,
    "enum": str, "addr": str, "vector": list, "set": list,
}


def check_zeek(path):
    """The records; each value of the type that the header says."""
    with ZeekLog(str(path)) as log:
        records = list(log)
        types = log.types
        assert log.skipped == 0, f"{path}: {log.skipped} lines skipped"
    for record in records:
        for name, value in record.items():
            wanted = ZEEK_TYPES[types[name].split("[")[0]]
            assert value is None or type(value) is wanted, (path, name, types[name], value)
            if types[name] == "addr" and value is not None:
                ipaddress.ip_address(value)
    return records


def check_flows(records, header, rows):
    """The flows in conn.log are those of the CSV log, with the same names."""
    def last(values):
        return values[0] if values else ""

    zeek = [
        (
            record["id.orig_h"], record["id.resp_h"],
            last(record["id.orig_h_name.vals"]), last(record["id.resp_h_name.vals"]),
            record["community_id"],
        )
        for record in records
    ]
    wanted = ["source.ip", "destination.ip", "source.domain", "destination.domain",
              "network.community_id"]
    ours = [tuple(row[header.index(name)] for name in wanted) for row in rows]
    assert zeek == ours, first_difference(zeek, ours)


# What the table lacks, which holds the fields that Filebeat's Zeek module writes; from the ECS
# field reference.
BY_REFERENCE = {
    "event.start": "date", "event.end": "date", "source.domain": "keyword",
    "destination.domain": "keyword", "destination.registered_domain": "keyword",
    "related.hosts": "keyword", "related.ip": "ip", "event.id": "keyword", "event.module": "keyword",
    "event.dataset": "keyword", "observer.product": "keyword", "observer.type": "keyword",
    "observer.version": "keyword", "network.vlan.id": "keyword", "network.inner.vlan.id": "keyword",
    # Not in the reference: a flag of larder's beside tls.client.server_name.
    "tls.client.ech": "boolean",
}
ARRAYS = {"related.hosts", "related.ip"} | set(ecs.ARRAY_FIELDS)


def check_ecs(path):
    sound = {
        "long": lambda value: type(value) is int and -(2**63) <= value < 2**63,
        "boolean": lambda value: type(value) is bool,
        "keyword": lambda value: type(value) is str,
        "ip": lambda value: type(value) is str and bool(ipaddress.ip_address(value)),
        "date": lambda value: type(value) is str and nanoseconds(value) >= 0,
    }
    seen = set()
    for line in path.read_text().splitlines():
        for key, value in json.loads(line).items():
            if key.startswith("larder."):
                continue
            kind = BY_REFERENCE.get(key) or ecs.FIELD_TYPES[key]
            assert isinstance(value, list) == (key in ARRAYS), (key, value)
            for item in value if isinstance(value, list) else [value]:
                assert sound[kind](item), (key, kind, item)
            seen.add(key)
    return seen


def main(larder, folder=CAPTURES):
    flows, answers, fields = 0, 0, set()
    captures = sorted(pathlib.Path(folder).glob("*.pcap*"))
    assert captures
    for capture in captures:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            header, rows = read_csv(run(larder, capture, "csv", folder))
            check_parquet(run(larder, capture, "parquet", folder), header, rows)
            check_flows(check_zeek(run(larder, capture, "zeek", folder)), header, rows)
            answers += len(check_zeek(folder / "dns.log"))
            fields |= check_ecs(run(larder, capture, "ecs", folder))
            flows += len(rows)
    print(
        f"formats: {len(captures)} captures, {flows} flows, {answers} answers, {len(fields)} fields"
        f" of ECS {ecs.ECS_VERSION}; polars {polars.__version__}, duckdb {duckdb.__version__}"
    )


main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:])
