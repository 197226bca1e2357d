#!/usr/bin/env python3
"""Rows of JSON (lab/bench/src/row.rs) as Markdown tables, one a work.

    bench/tables.py [--ratios | --matrix] FILE...

With --ratios only ratios are printed: what can be said of a machine that was not quiet. With --matrix it is one
table, a line a work and a column a contestant: how many times as fast larder is as each, with its interval of 95 %.
"""

import json
import sys


def unit_of(row):
    """The unit that ends the names of a row's figures."""
    for unit in ("ns", "mops", "bytes", "share"):
        if f"larder_{unit}" in row or f"peer_{unit}" in row:
            return unit
    return None


def show(value):
    """Three digits that mean something."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def interval(pair):
    """Both ends."""
    return "-" if not pair else f"{show(pair[0])} to {show(pair[1])}"


def times_as_fast(row, unit):
    """larder's speed over the other's: figures in ns are times, figures in mops are speeds."""
    ratio, interval = row.get("ratio"), row.get("ratio_interval")
    if unit == "ns" and ratio:
        ratio, interval = 1 / ratio, [1 / end for end in reversed(interval)]
    return "-" if not ratio else f"{show(ratio)} ({show(interval[0])} to {show(interval[1])})"


def matrix(works):
    """All works that are speeds, in one table."""
    speeds = {key: rows for key, rows in works.items() if key[3] in ("ns", "mops") and rows[0].get("peer")}
    names = list(dict.fromkeys(row["peer"] for rows in speeds.values() for row in rows))
    print("| work, threads |", " | ".join([*names, "limit"]), "|")
    print("|---" + "|--:" * (len(names) + 1) + "|")
    for (_, work, threads, unit), rows in speeds.items():
        by_name = {row["peer"]: times_as_fast(row, unit) for row in rows}
        limit, larder = rows[0].get(f"limit_{unit}"), rows[0].get(f"larder_{unit}")
        last = show(limit / larder) if limit else "-"
        print("|", " | ".join([f"{work}, {threads}", *(by_name.get(name, "-") for name in names), last]), "|")


def main():
    files = [name for name in sys.argv[1:] if not name.startswith("--")]
    ratios_only = "--ratios" in sys.argv
    works = {}
    for name in files:
        with open(name, encoding="utf-8") as lines:
            for line in lines:
                if not line.startswith("{"):
                    print(line.rstrip(), "\n")
                    continue
                row = json.loads(line)
                works.setdefault((name, row["work"], row["threads"], unit_of(row)), []).append(row)
    if "--matrix" in sys.argv:
        matrix(works)
        return
    for (name, work, threads, unit), rows in works.items():
        runs = rows[0].get("runs", 1)
        print(f"**{work}**, {threads} thread{'s' if threads > 1 else ''}, {unit}, {runs} rounds\n")
        figures = [] if ratios_only else [f"larder {unit}", "95 %", unit, "95 %"]
        limits = [row.get(f"limit_{unit}") for row in rows]
        has_limit = any(limit is not None for limit in limits)
        header = ["beside", *figures, "larder / it", "95 %", *(["larder / limit"] if has_limit else []), "note"]
        print("|", " | ".join(header), "|")
        print("|---" * len(header) + "|")
        for row in rows:
            larder, peer, limit = row.get(f"larder_{unit}"), row.get(f"peer_{unit}"), row.get(f"limit_{unit}")
            cells = [row.get("peer", "-")]
            if not ratios_only:
                cells += [show(larder), interval(row.get("interval")), show(peer), interval(row.get("peer_interval"))]
            cells += [show(row.get("ratio")), interval(row.get("ratio_interval"))]
            if has_limit:
                cells.append(show(larder / limit) if larder and limit else "-")
            cells.append(row.get("note", ""))
            print("|", " | ".join(cells), "|")
        print()


main()
