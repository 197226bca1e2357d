"""Annotates an archive in parts and at once, and compares the datasets byte for byte.

    python3 tests/archive/check.py target/debug/larder [--kills N] [--captures FOLDER]

Needs a larder with Parquet, make, and a Python with ray, fsspec, s3fs and moto[server] (an S3 server). What is tried:

* make -j 2, Ray with two workers, Ray with an S3 server, and one run of larder over all files: the same bytes
* a worker, a larder or the whole command killed at a random moment, N times each (default 2)
* a budget for names that is too small: the same bytes, too
* captures that are empty, cut short, no captures, twice, copied, overlapping, unreadable; a full disk
* DuckDB and Polars read the dataset, and report the same
* again after nothing, one file, or the settings changed: only that is made again

`--captures` has files of an archive to use instead of a made one. Ends with 1 at the first difference.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import traffic

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/archive"
BEGAN_S = 1_700_000_000 - 1_700_000_000 % 3600 + 3000
SPAN_S = 3 * 3600
CUT_S = 600
FILES = 30


def check(is_so, what):
    if not is_so:
        sys.exit(f"archive: {what}")


class Archive:
    """Captures, and the ways to annotate them."""

    def __init__(self, larder, folder, captures):
        self.larder, self.folder, self.captures = str(pathlib.Path(larder).resolve()), folder, captures
        self.settings = ["--larder", self.larder, "--cut-every", str(CUT_S), "--packets", "300"]

    def files(self):
        return sorted(self.captures.iterdir())

    def one_run(self, *more):
        """The files of the dataset that one run makes."""
        out = self.folder / "one-run"
        shutil.rmtree(out, ignore_errors=True)
        command = [self.larder, "annotate", "--quiet", "-r", *self.files(), "--cut-every", f"{CUT_S}s", *more]
        done = subprocess.run([*command, "--format", "parquet", "--dataset", out], capture_output=True, text=True)
        check(done.returncode in (0, 1), f"one run: {done.stderr}")
        return tree(out)

    def make(self, out, *settings):
        words = " ".join([*self.settings, *settings])
        return ["make", "-s", "-j", "2", "-C", str(EXAMPLE), f"OUT={out}", f"CAPTURES={self.captures}",
                f"SETTINGS={words}"]

    def ray(self, out, *settings, captures=None):
        return [sys.executable, str(EXAMPLE / "ray_archive.py"), "--workers", "2", *self.settings, *settings, str(out),
                str(captures or self.captures)]


def tree(folder):
    """The files below a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def run(command, *statuses):
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode in (statuses or (0,)), f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def compare(out, expected, what):
    got = tree(out / "flows")
    check(got.keys() == expected.keys(), f"{what}: files {sorted(got.keys() ^ expected.keys())}")
    check(got == expected, f"{what}: the bytes of {[path for path in got if got[path] != expected[path]]}")
    print(f"{what}: {len(got)} files, the same bytes", flush=True)
    return json.loads((out / "_larder.json").read_text())


def readers(out):
    """DuckDB and Polars read the dataset as the guide says, and see the same."""
    import duckdb
    import polars as pl

    files = f"{out}/flows/**/*.parquet"
    flows = sum(one["flows"] for one in json.loads((out / "_larder.json").read_text())["slices"].values())
    [(counted,)] = duckdb.sql(f"SELECT count(*) FROM '{files}'").fetchall()
    check(counted == flows > 0, f"DuckDB counts {counted} flows of {flows}")
    top = duckdb.sql(f'''
        SELECT "destination.domain" AS name, sum("network.bytes") AS bytes, count(*) AS flows,
               count(DISTINCT "source.ip") AS clients
        FROM '{files}' WHERE date = '2023-11-15' AND hour = 1
        GROUP BY name ORDER BY bytes DESC, name LIMIT 10''').fetchall()
    c = pl.col
    same = (pl.scan_parquet(files, hive_partitioning=True)
        .filter(c("date") == pl.date(2023, 11, 15), c("hour") == 1)
        .group_by(name="destination.domain")
        .agg(bytes=c("network.bytes").sum(), flows=pl.len(), clients=c("source.ip").n_unique())
        .sort("bytes", "name", descending=[True, False], nulls_last=True).head(10)).collect().rows()
    check(len(top) == 10 and top == same, f"DuckDB and Polars: {top} {same}")
    print("DuckDB and Polars: the same report")


def full_budget(archive, seed):
    """A budget for names that is too small for the archive evicts the same names in each slice."""
    full = Archive(archive.larder, archive.folder, archive.folder / "lookups")
    full.captures.mkdir()
    frames = traffic.lookups(12_000, seed, BEGAN_S, SPAN_S)
    for number, part in enumerate(traffic.cut(frames, 9, seed, CUT_S)):
        (full.captures / f"{number:02}.pcapng").write_bytes(traffic.pcapng(part))
    full.settings[-1] = "8000"
    options = ["--names-budget", "1MiB"]
    expected = full.one_run(*options)
    check(expected != full.one_run(), "a budget for names that is full makes no difference")
    for way, command in [("make", full.make(full.folder / "full-make", "--options", f"'{' '.join(options)}'")),
                         ("Ray", full.ray(full.folder / "full-ray", "--options", " ".join(options)))]:
        run(command, 0)
        manifest = compare(full.folder / f"full-{way.lower()}", expected, f"{way}, a full budget")
        evicted = [one["names_evicted"] for one in manifest["slices"].values()]
        check(len(evicted) > 2 and evicted[-1] > 1_000, f"{evicted} names were evicted: this tests little")


# What is killed.


def children_of(process):
    """All that a process started and that still runs."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, rest = path.read_text().rsplit(")", 1)
            parents[int(path.parent.name)] = int(rest.split()[1])
    found, new = set(), {process}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return sorted(found - {process})


def name_of(process):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return ""


def is_worker(process):
    steps = ("ray::extract", "ray::annotate", "archive.py extract", "archive.py annotate", "extract -q", "annotate --quiet")
    return any(step in name_of(process) for step in steps)


def kill_one(command, out, chance, seconds, all_of_it):
    """Runs a command, and kills one of its workers after a while, or all of it. Returns what was killed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not any((out / "scratch").glob("*")):
        time.sleep(0.005)
    time.sleep(chance.random() * seconds)
    killed = None
    while killed is None and process.poll() is None:
        children = children_of(process.pid)
        victims = [process.pid, *children] if all_of_it else [child for child in children if is_worker(child)]
        victims = victims if all_of_it or not victims else [chance.choice(victims)]
        names = [name_of(victim) for victim in victims]
        for victim in victims:
            with contextlib.suppress(OSError):
                os.kill(victim, signal.SIGKILL)
                killed = "everything" if all_of_it else names[0].split("/")[-1][:40]
    process.wait()
    return killed


def kills(archive, expected, count, seed):
    chance = random.Random(seed)
    for way, command_of in [("make", archive.make), ("Ray", archive.ray)]:
        killed = []
        while len(killed) < count:
            out = archive.folder / f"killed-{way}-{len(killed)}"
            all_of_it = len(killed) % 4 == 1
            victim = kill_one(command_of(out), out, chance, 3, all_of_it)
            if victim is None:
                shutil.rmtree(out)
                continue
            killed.append(victim)
            # Ray starts again what was lost. Make ends, and the same command goes on.
            if way == "make" or all_of_it:
                run(command_of(out), 0)
            compare(out, expected, f"{way}, killed: {victim}")
            shutil.rmtree(out)


# An S3 server.


def object_store(archive, expected):
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen([str(pathlib.Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", "0"],
                                  stdout=log, stderr=log)
        try:
            address = None
            while address is None:
                check(server.poll() is None, "the S3 server ended")
                time.sleep(0.05)
                log.seek(0)
                lines = [line for line in log.read().decode().splitlines() if "Running on " in line]
                address = lines[0].split("Running on ")[1].strip() if lines else None
            os.environ |= {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                           "AWS_DEFAULT_REGION": "us-east-1"}
            import fsspec

            store = fsspec.filesystem("s3")
            store.mkdir("archive")
            store.put(str(archive.captures), "archive/captures", recursive=True)
            print(run(archive.ray("s3://archive/named", captures="s3://archive/captures"), 0).splitlines()[-1])
            out = archive.folder / "from-s3"
            store.get("archive/named/flows", str(out / "flows"), recursive=True)
            store.get("archive/named/_larder.json", str(out / "_larder.json"))
            compare(out, expected, "Ray from and to S3")
        finally:
            server.terminate()
            server.wait()


# What is done again, and what is wrong.


def times_of(out, step):
    return {path.name: path.stat().st_mtime_ns for path in (out / step).glob("*.json")}


def changed(before, after):
    return {name for name in after if before.get(name) != after[name]}


def again(archive, out, expected):
    """Only what changed is made again."""
    before = times_of(out, "extract"), times_of(out, "slices")
    run(archive.make(out), 0)
    check((times_of(out, "extract"), times_of(out, "slices")) == before, "nothing changed, and something was made")
    last = archive.files()[-1]
    kept = last.with_suffix(".kept")
    last.rename(archive.folder / kept.name)
    said = run(archive.make(out), 0)
    check(not changed(before[0], times_of(out, "extract")), "a file fewer, and files were extracted")
    some = changed(before[1], times_of(out, "slices"))
    check(0 < len(some) < len(before[1]) / 2, f"a file fewer: {len(some)} slices made again; {said}")
    compare(out, archive.one_run(), "a file fewer")
    (archive.folder / kept.name).rename(last)
    run(archive.make(out), 0)
    compare(out, expected, "the file again")
    said = run(archive.make(out, "--options", "'--candidates 2'"), 0)
    check("slices failed, or were made from something else" in said, f"other settings: {said}")
    compare(out, archive.one_run("--candidates", "2"), "other settings")
    # Half a result, as of a disk that lost its power.
    result = next((out / "slices").glob("*.json"))
    result.write_text(result.read_text()[:20])
    run(archive.make(out, "--options", "'--candidates 2'"), 0)
    compare(out, archive.one_run("--candidates", "2"), "half a result")


def bad_captures(archive, expected):
    """Each is named, and the others count as they would without it."""
    bad = Archive(archive.larder, archive.folder, archive.folder / "bad")
    shutil.copytree(archive.captures, bad.captures)
    files = bad.files()
    (bad.captures / "empty.pcap").touch()
    (bad.captures / "text.pcap").write_text("this is no capture, whatever its name says\n")
    (bad.captures / "header.pcap").write_bytes(traffic.pcapng([])[:28])
    shutil.copy(files[3], bad.captures / "copy.pcapng")
    (bad.captures / "link.pcapng").symlink_to(files[4])
    (bad.captures / "gone.pcapng").symlink_to("nowhere.pcapng")
    out = archive.folder / "out-bad"
    said = run(bad.make(out), 2)
    manifest = compare(out, expected, "bad captures among good ones")
    problems = {(pathlib.Path(one["input"]).name, one["problem"].split(";")[0].split(": ")[-1]) for one in
                manifest["problems"]}
    for name, problem in [
        ("empty.pcap", "the file is empty"),
        ("header.pcap", "no packets"),
        ("link.pcapng", "twice in the list"),
        ("copy.pcapng", "twice in the list"),
    ]:
        check((name, problem) in problems, f"{name}: {problem} is not in the manifest: {problems}")
    for name in ("text.pcap", "gone.pcapng", "copy.pcapng", "empty.pcap"):
        check(any(name == one for one, _ in problems) and name in said, f"{name} is not named: {problems}; {said}")
    # One that is cut short counts as far as it is sound, and one that overlaps is named.
    short = bad.captures / files[-1].name
    short.write_bytes(short.read_bytes()[:-10])
    frames = traffic.made(sorted((ROOT / "tests/captures").glob("r?-*.pcap")), 5, BEGAN_S + 300, 900, 1)
    (bad.captures / "overlaps.pcapng").write_bytes(traffic.pcapng(frames))
    run(bad.make(out), 2)
    manifest = json.loads((out / "_larder.json").read_text())
    problems = {(pathlib.Path(one["input"]).name, one["problem"]) for one in manifest["problems"] if "input" in one}
    check(any(name == short.name for name, _ in problems), f"cut short: {problems}")
    check(any(problem == "overlaps" for _, problem in problems), f"overlaps: {problems}")
    print("bad captures: each is named")


def full_disk(archive, expected):
    """What can't be written is named, and there is no manifest; with room, the same command makes it."""
    out = archive.folder / "out-full"

    def without_room():
        # As of a file system whose files are at most so large.
        command = ["prlimit", "--fsize=20000", *archive.make(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stdout + done.stderr
        check(done.returncode == 2 and not (out / "_larder.json").exists(), f"a full disk: {said}")
        return said

    check("captures are missing" in without_room(), "a full disk while captures are extracted is not named")
    run(archive.make(out), 0)
    compare(out, expected, "after a full disk")
    for path in (out / "slices").iterdir():
        path.unlink()
    check("slices are missing" in without_room(), "a full disk while slices are annotated is not named")
    run(archive.make(out), 0)
    compare(out, expected, "after another full disk")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("larder")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--captures", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="larder-archive-") as folder:
        folder = pathlib.Path(folder)
        captures = args.captures or folder / "captures"
        if args.captures is None:
            captures.mkdir()
            frames = traffic.made(sorted((ROOT / "tests/captures").glob("*.pcap")), args.seed, BEGAN_S, SPAN_S, 3)
            for number, part in enumerate(traffic.cut(frames, FILES, args.seed, CUT_S)):
                (captures / f"{number:02}.pcapng").write_bytes(traffic.pcapng(part))
        archive = Archive(args.larder, folder, captures)
        expected = archive.one_run()
        print(f"one run: {len(archive.files())} files, {len(expected)} files of flows", flush=True)
        by_make, by_ray = folder / "make", folder / "ray"
        run(archive.make(by_make), 0)
        manifest = compare(by_make, expected, "make -j 2")
        run(archive.ray(by_ray), 0)
        check(compare(by_ray, expected, "Ray, two workers") == manifest, "the manifests of make and Ray")
        object_store(archive, expected)
        kills(archive, expected, args.kills, args.seed)
        if args.captures is None:
            readers(by_make)
            full_budget(archive, args.seed)
            again(archive, by_make, expected)
            bad_captures(archive, expected)
            full_disk(archive, expected)
    print("archive: done")


if __name__ == "__main__":
    main()
