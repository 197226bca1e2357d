#!/usr/bin/env python3
"""Annotates an archive of captures: a dataset of flows by day and hour, the same bytes as of one run over all files.

    archive.py list OUT CAPTURE...   what there is to do: OUT/archive.json, OUT/extract.mk
    archive.py extract OUT KEY       one capture, reduced to what later hours need of it
    archive.py plan OUT              the slices (some hours), and which files each needs: OUT/plan.json, OUT/slices.mk
    archive.py annotate OUT SLICE    the flows of a slice: OUT/flows/date=.../hour=.../...
    archive.py finish OUT            what was done, and of what: OUT/_larder.json
    archive.py todo OUT STEP         the keys of extracts or slices that are not done, a line each

All extracts can run at once, and so can all slices; `Makefile` and `ray_archive.py` do that, and so does any batch
queue. A step is done when its JSON file is there. The same commands again do what is missing: after a crash, with
more captures, or with other settings, of which only what they change is done again.

OUT and captures are paths, or URLs of object stores that fsspec knows. Python 3.11 and larder, nothing else, is needed
for paths.

Exit status: 0 done; 1 done, but an input is damaged, can't be read or overlaps another (the manifest names each);
2 a slice is missing, or nothing could be done.
"""

import argparse
import collections
import datetime
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

import places

FORM = 1
TRIES = 3
RANGES_MAX = 1_000_000
ENDINGS = tuple(f"{kind}{packed}" for kind in (".pcap", ".pcapng", ".cap") for packed in ("", ".gz", ".zst", ".xz"))


class Failed(Exception):
    """A step that could not be done, and why. Another try may help."""


class Bad(Exception):
    """A capture that can't be read, however often it is tried."""


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def digest_of_file(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def utc(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H-%M-%SZ")


def run_larder(settings, arguments, captures):
    """Runs larder. Exit status 1 says that the input was damaged, which the counters tell in detail."""
    done = subprocess.run([settings["larder"], *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        lines = done.stderr.strip().splitlines() or [f"larder ended with status {done.returncode}"]
        why = lines[-1].removeprefix("larder: ").removeprefix("-r ")
        for capture in captures:
            if why.startswith(f"{capture}: "):
                raise Bad(why.removeprefix(f"{capture}: "))
        raise Failed(why)


def with_tries(step, *arguments):
    """Does a step, again if it fails: disks and networks have bad moments. Raises `Failed` after the last try."""
    for attempt in range(1, TRIES + 1):
        try:
            return step(*arguments)
        except Bad:
            raise
        # Libraries for object stores have errors of their own.
        except Exception as error:
            if attempt == TRIES:
                raise Failed(str(error) or repr(error)) from error
            time.sleep(attempt)


# What there is to do.


def add_settings(parser):
    """The options of `list` and of `ray_archive.py`."""
    parser.add_argument("--larder", default="larder", help="the program (default: larder on the path)")
    parser.add_argument("--cut-every", type=int, default=3600, metavar="SECONDS", help="default: 3600")
    parser.add_argument("--packets", type=int, default=50_000_000, metavar="N", help="of a slice, at least. Each slice also "
                        "reads the reduced captures before it: all packets by the number of workers is best "
                        "(default: 50 million)")
    parser.add_argument("--format", default="parquet", choices=["parquet", "csv", "ecs", "zeek", "text"],
                        help="default: parquet")
    parser.add_argument("--flow-options", default="", metavar="WORDS", help="for extract and annotate: --udp-idle 2m ...")
    parser.add_argument("--options", default="", metavar="WORDS", help="for annotate: --names-budget 1GiB ...")
    parser.add_argument("--no-digests", action="store_true", help="do not read captures once more for their SHA-256")
    parser.add_argument("out", metavar="OUT", help="folder or URL of what is made")
    parser.add_argument("captures", metavar="CAPTURE", nargs="+", help="files, folders or URLs")


def settings_of(args):
    if args.cut_every < 60 or args.cut_every % 60 or args.packets < 1:
        raise Failed("--cut-every: give whole minutes; --packets: give 1 or more")
    try:
        version = subprocess.run([args.larder, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failed(f"--larder {args.larder}: {error}; pip install larder-net, or name the program") from error
    # Else each slice would fail, after all extracts.
    tried = [args.larder, "annotate", "--format", args.format, "-r", os.devnull, "-o", os.devnull]
    said = subprocess.run(tried, capture_output=True, text=True).stderr
    if "--format" in said:
        raise Failed(said.strip().removeprefix("larder: "))
    return {
        "larder": args.larder,
        "version": version,
        "cut_every_s": args.cut_every,
        "packets": args.packets,
        "format": args.format,
        "flow_options": shlex.split(args.flow_options),
        "options": shlex.split(args.options),
        "digests": not args.no_digests,
    }


def list_inputs(out, captures, settings):
    """Notes the captures, and forgets extracts that do not fit any more."""
    found, problems = {}, []
    for word in captures:
        paths = places.captures(word, ENDINGS)
        if not paths:
            problems.append({"input": word, "problem": "no captures here"})
        for path in paths:
            key = digest(places.real(path))[:24]
            if key in found:
                problems.append({"input": path, "problem": "twice in the list", "like": found[key]["path"]})
                continue
            try:
                size, changed = places.identity(path)
            except OSError as error:
                problems.append({"input": path, "problem": str(error)})
                continue
            of = [FORM, settings["version"], settings["flow_options"], settings["digests"], path, size, changed]
            found[key] = {"key": key, "path": path, "bytes": size, "made_from": digest(of)}
    inputs = sorted(found.values(), key=lambda one: one["path"])
    keep = {one["key"]: one["made_from"] for one in inputs}
    again = forget(out, "extract", keep)
    # Until all is done, there is no manifest.
    out.remove("_larder.json")
    out.write_json("archive.json", {"form": FORM, "settings": settings, "inputs": inputs, "problems": problems})
    write_rules(out, "extract", keep)
    return inputs, again


def forget(out, step, keep):
    """Removes results of a step that failed or were made from something else. Returns how many are made again."""
    again = 0
    for name in out.names(step):
        if name.split(".")[0] not in keep:
            out.remove(f"{step}/{name}")
        elif name.endswith(".json"):
            result, key = out.read_json(f"{step}/{name}"), name.removesuffix(".json")
            if result is None or "failed" in result or result["made_from"] != keep[key]:
                out.remove(f"{step}/{name}")
                again += 1
    return again


def write_rules(out, step, keys):
    """For make: a rule for each result."""
    if not isinstance(out, places.Folder):
        return
    place = out.path.as_posix()
    rules = [f"all: {' '.join(f'{place}/{step}/{key}.json' for key in keys)}"]
    command = "annotate" if step == "slices" else step
    program = f"python3 {shlex.quote(os.path.abspath(__file__))}"
    rules += [f"{place}/{step}/{key}.json:\n\t@{program} {command} {shlex.quote(place)} {key}" for key in keys]
    out.write_text(f"{step}.mk", "\n".join(rules) + "\n")


def todo(out, step, keys):
    """Those of a step that are not done."""
    done = {name.removesuffix(".json") for name in out.names(step)}
    return [key for key in keys if key not in done]


# The steps.


def extract(out, key):
    """Reduces a capture. That it is bad or could not be reduced is a result, too: later steps name it."""
    archive = out.read_json("archive.json")
    one = next(one for one in archive["inputs"] if one["key"] == key)
    result = {"path": one["path"], "bytes": one["bytes"], "made_from": one["made_from"]}
    try:
        result |= with_tries(extract_once, out, archive["settings"], one)
    except Bad as error:
        result["bad"] = str(error)
    except Failed as error:
        result["failed"] = str(error)
    out.write_json(f"extract/{key}.json", result)
    return result


def extract_once(out, settings, one):
    with tempfile.TemporaryDirectory(prefix="extract-", dir=out.scratch()) as folder:
        folder = pathlib.Path(folder)
        capture = places.fetch(one["path"], folder)
        reduced, stats = folder / "names.pcapng", folder / "stats.json"
        run_larder(settings, ["extract", "-q", "--cores", "1", "-r", capture, "-o", reduced, "--stats", stats,
                              *settings["flow_options"]], [capture])
        counts = json.loads(stats.read_text())
        result = {
            "packets": counts["packets"],
            "times": counts["times"],
            "damaged": {kind: damage["count"] for kind, damage in counts["damaged"].items()},
            "reduced": {"bytes": reduced.stat().st_size, "sha256": digest_of_file(reduced)},
        }
        if settings["digests"]:
            result["sha256"] = digest_of_file(capture)
        out.put(reduced, f"extract/{one['key']}.names.pcapng")
    return result


def plan(out):
    """The slices, each with the files that it needs; forgets slices that do not fit any more."""
    archive = out.read_json("archive.json")
    settings, problems = archive["settings"], list(archive["problems"])
    files, seen, failed = [], {}, []
    for one in archive["inputs"]:
        result = out.read_json(f"extract/{one['key']}.json")
        if result is None:
            raise Failed(f"{one['path']}: not extracted; run the extracts first")
        if "failed" in result:
            failed.append(f"{one['path']}: {result['failed']}")
            continue
        if "bad" in result:
            problems.append({"input": one["path"], "problem": result["bad"]})
            continue
        if not result["packets"]:
            problems.append({"input": one["path"], "problem": "no packets"})
        elif result.get("sha256") in seen:
            problems.append({"input": one["path"], "problem": "twice in the list", "like": seen[result["sha256"]]})
        else:
            if "sha256" in result:
                seen[result["sha256"]] = one["path"]
            files.append(result | {"key": one["key"]})
    if failed:
        raise Failed("\n".join([*failed, f"{len(failed)} captures are missing; the same command again tries them again"]))
    files.sort(key=lambda file: (file["times"]["first_s"], file["path"]))
    set_clocks(files)
    for before, file in zip(files, files[1:]):
        if file["times"]["first_s"] < before["times"].get("clock_s", before["times"]["first_s"]):
            problems.append({"input": file["path"], "problem": "overlaps", "like": before["path"]})
    slices = {utc(begin): one for begin, one in slices_of(files, settings)}
    again = forget(out, "slices", {name: one["made_from"] for name, one in slices.items()})
    forget_files(out)
    out.write_json("plan.json", {"slices": slices, "problems": problems})
    write_rules(out, "slices", slices)
    return slices, again


def set_clocks(files):
    """The packets' clock at the end of each file: the last second that two packets in a row have reached. The two may
    be in two files."""
    last_s = float("-inf")
    for file in files:
        times = file["times"]
        file["clock_s"] = max(times.get("clock_s", float("-inf")), min(last_s, times["first_s"]))
        last_s = times["last_s"]


def begins_of(files, settings):
    """Where slices begin: at cuts, when the one before has enough packets. Later files do not move them."""
    cut_s, packets = settings["cut_every_s"], collections.Counter()
    for file in files:
        first = file["times"]["first_s"] // cut_s
        last = max(first, file["times"].get("clock_s", file["times"]["first_s"]) // cut_s)
        if last - first > RANGES_MAX:
            raise Failed(f"{file['path']}: its packets are {last - first} times --cut-every apart; correct their times "
                         "with editcap")
        for at in range(first, last + 1):
            packets[at] += file["packets"] / (last - first + 1)
    before, begins = settings["packets"], []
    for at, count in sorted(packets.items()):
        if before >= settings["packets"]:
            begins.append(at * cut_s)
            before = 0
        before += count
    return begins


def slices_of(files, settings):
    """Where each slice begins, and what it reads."""
    begins = begins_of(files, settings)
    of_run = {key: settings[key] for key in ("version", "cut_every_s", "format", "flow_options", "options")}
    for at, begin in enumerate(begins):
        # A packet of this time may come in any file whose greatest time is not before it.
        first = 0 if at == 0 else next(i for i, file in enumerate(files) if file["times"]["latest_s"] >= begin)
        end = begins[at + 1] if at + 1 < len(begins) else None
        # Where two packets in a row have reached the end, larder stops.
        behind = (i + 1 for i, file in enumerate(files) if i >= first and end is not None and file["clock_s"] >= end)
        last = next(behind, len(files))
        one = {"from": None if at == 0 else begin, "to": end}
        one["names"] = [file["key"] for file in files[:first]]
        one["read"] = [file["path"] for file in files[first:last]]
        of = [file["reduced"]["sha256"] for file in files[:first]], [file["made_from"] for file in files[first:last]]
        yield begin, one | {"made_from": digest([FORM, of_run, one, of])}


def forget_files(out):
    """Removes files of the dataset that no slice has made."""
    results = (out.read_json(f"slices/{name}") for name in out.names("slices"))
    known = {file["path"] for result in results for file in result["files"]}
    for path in out.walk("flows"):
        if path not in known:
            out.remove(path)


def annotate(out, name):
    """Makes the files of one slice."""
    archive, one = out.read_json("archive.json"), out.read_json("plan.json")["slices"][name]
    result = {"made_from": one["made_from"]}
    try:
        result |= with_tries(annotate_once, out, archive["settings"], one)
    except Failed as error:
        result |= {"failed": str(error), "files": []}
    out.write_json(f"slices/{name}.json", result)
    return result


def annotate_once(out, settings, one):
    with tempfile.TemporaryDirectory(prefix="annotate-", dir=out.scratch()) as folder:
        folder = pathlib.Path(folder)
        words = ["--quiet", "--cores", "1", "--format", settings["format"], "--cut-every", f"{settings['cut_every_s']}s"]
        words += ["--dataset", folder / "flows", "--stats", folder / "stats.json"]
        words += [word for end in ("from", "to") if one[end] is not None for word in (f"--{end}", str(one[end]))]
        names = [out.fetch(f"extract/{key}.names.pcapng", folder) for key in one["names"]]
        words += ["--names-read", *names] if names else []
        words += settings["flow_options"] + settings["options"]
        captures = [places.fetch(path, folder) for path in one["read"]]
        run_larder(settings, ["annotate", *words, "-r", *captures], [])
        counts = json.loads((folder / "stats.json").read_text())
        files = []
        for path in sorted((folder / "flows").rglob("flows.*")):
            name = path.relative_to(folder).as_posix()
            files.append({"path": name, "bytes": path.stat().st_size, "sha256": digest_of_file(path)})
            out.put(path, name)
        result = {key: counts[key] for key in ("packets", "flows", "names_evicted", "flows_evicted")}
        damaged = {kind: damage["count"] for kind, damage in counts["damaged"].items()}
        return result | {"damaged": damaged, "files": files}


def finish(out):
    """Writes the manifest, and says what is missing. Returns the exit status."""
    archive, planned = out.read_json("archive.json"), out.read_json("plan.json")
    slices, problems, missing = {}, planned["problems"], []
    inputs = [out.read_json(f"extract/{one['key']}.json") for one in archive["inputs"]]
    for name, one in planned["slices"].items():
        result = out.read_json(f"slices/{name}.json")
        if result is None or "failed" in result:
            missing.append({"slice": name, "problem": (result or {"failed": "not done"})["failed"]})
            continue
        result.pop("made_from")
        slices[name] = {"from": one["from"], "to": one["to"]} | result
        if result["flows_evicted"]:
            problems.append({"slice": name, "problem": "flows_evicted", "count": result["flows_evicted"]})
    problems += damage(inputs, slices)
    for problem in problems + missing:
        where = problem.get("input") or f"slice {problem['slice']}"
        more = "".join(f", {key} {problem[key]}" for key in ("like", "count") if key in problem)
        print(f"{where}: {problem['problem']}{more}", file=sys.stderr)
    if missing or not slices:
        print(f"{len(missing)} of {len(planned['slices'])} slices are missing; the same command again makes them",
              file=sys.stderr)
        return 2
    kept = ("path", "bytes", "sha256", "packets", "times", "damaged", "reduced", "bad")
    inputs = [{key: one[key] for key in kept if key in one} for one in inputs]
    settings = {key: value for key, value in archive["settings"].items() if key != "larder"}
    manifest = {"form": FORM, "settings": settings, "inputs": inputs, "slices": slices, "problems": problems}
    out.write_json("_larder.json", manifest)
    out.clean()
    flows = sum(one["flows"] for one in slices.values())
    print(f"{len(inputs)} captures, {len(slices)} slices, {flows:,} flows, {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0


def damage(inputs, slices):
    """What is damaged in the slices, and in which inputs that is. What only an input by itself has is no damage: a
    message whose beginning is in the file before."""
    problems = []
    for kind in sorted({kind for one in slices.values() for kind in one["damaged"]}):
        where = [one for one in inputs if kind in one.get("damaged", {})]
        problems += [{"input": one["path"], "problem": kind, "count": one["damaged"][kind]} for one in where]
        if not where:
            name, one = next((name, one) for name, one in slices.items() if kind in one["damaged"])
            problems.append({"slice": name, "problem": kind, "count": one["damaged"][kind]})
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    add_settings(steps.add_parser("list", help="what there is to do"))
    for step, of in [("extract", "KEY"), ("plan", None), ("annotate", "SLICE"), ("finish", None), ("todo", "STEP")]:
        one = steps.add_parser(step)
        one.add_argument("out", metavar="OUT")
        if of:
            one.add_argument("key", metavar=of, choices=["extract", "annotate"] if step == "todo" else None)
    args = parser.parse_args()
    out = places.open_place(args.out)
    match args.step:
        case "list":
            inputs, again = list_inputs(out, args.captures, settings_of(args))
            say_again(again, "extracts")
            print(f"{len(inputs)} captures, {len(todo(out, 'extract', [one['key'] for one in inputs]))} to extract")
        case "extract":
            result = extract(out, args.key)
            what = result.get("failed") or result.get("bad") or f"{result['packets']:,} packets"
            print(f"extract {result['path']}: {what}")
        case "plan":
            slices, again = plan(out)
            say_again(again, "slices")
            print(f"{len(slices)} slices, {len(todo(out, 'slices', slices))} to annotate")
        case "annotate":
            result = annotate(out, args.key)
            print(f"annotate {args.key}: {result.get('failed') or format(result['flows'], ',') + ' flows'}")
        case "finish":
            return finish(out)
        case "todo" if args.key == "extract":
            print(*todo(out, "extract", [one["key"] for one in out.read_json("archive.json")["inputs"]]), sep="\n")
        case "todo":
            print(*todo(out, "slices", out.read_json("plan.json")["slices"]), sep="\n")
    return 0


def say_again(again, what):
    if again:
        print(f"{again} {what} failed, or were made from something else or by another larder, and are made again")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, OSError) as error:
        print(f"archive.py: {error}", file=sys.stderr)
        sys.exit(2)
