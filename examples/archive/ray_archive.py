#!/usr/bin/env python3
"""An archive of captures as a dataset, on the machines of a Ray cluster, or on the cores of this one.

    pip install ray larder-net
    ray_archive.py OUT CAPTURE...                       this machine
    ray_archive.py --address auto OUT CAPTURE...        the cluster of this machine; OUT is a folder that all share
    ray_archive.py s3://bucket/named s3://bucket/pcap   object stores (pip install fsspec s3fs)

A task is one run of larder on one core. Ray starts a task again if its worker or its machine is lost. The same command
again does what is missing, after a crash of the whole cluster, too. Settings, files and exit status: archive.py.
"""

import argparse
import os
import sys
import time

import ray

import archive
import places

# Ray counts a lost machine as a try, and spot machines are lost often.
LOSSES_MAX = 20


@ray.remote(num_cpus=1, max_retries=LOSSES_MAX)
def step(name, out, key):
    """One step, on some machine."""
    return getattr(archive, name)(places.open_place(out), key)


def do_all(name, out, keys, amount_of):
    """Does a step for all keys, and says how far it is. `amount_of`: bytes by key."""
    pending = {step.options(name=f"{name} {key}").remote(name, out, key): key for key in keys}
    total, done, began = sum(amount_of[key] for key in keys), 0, time.monotonic()
    for count in range(1, len(keys) + 1):
        (ready,), _ = ray.wait(list(pending), num_returns=1)
        key = pending.pop(ready)
        try:
            why = ray.get(ready).get("failed")
        except ray.exceptions.RayError as error:
            why = str(error).splitlines()[0]
        done += amount_of[key]
        left = (time.monotonic() - began) * (total - done) / max(done, 1)
        failed = f"  {key}: {why}" if why else ""
        print(f"{name} {count} of {len(keys)}, {done / 1e9:.1f} of {total / 1e9:.1f} GB, {left:,.0f} s left{failed}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="of a Ray cluster (default: only this machine)")
    parser.add_argument("--workers", type=int, help="tasks at once on this machine (default: its cores)")
    parser.add_argument("--wheel", help="wheel of larder for machines that lack it")
    archive.add_settings(parser)
    args = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    runtime = {"pip": [args.wheel]} if args.wheel else {}
    ray.init(address=args.address, num_cpus=None if args.address else args.workers, log_to_driver=False,
             include_dashboard=None if args.address else False, logging_level="error",
             runtime_env=runtime | ({"working_dir": here} if args.address else {"env_vars": {"PYTHONPATH": here}}))
    where = args.out if places.is_url(args.out) else os.path.abspath(args.out)
    out = places.open_place(where)
    inputs, again = archive.list_inputs(out, args.captures, archive.settings_of(args))
    archive.say_again(again, "extracts")
    sizes = {one["key"]: one["bytes"] for one in inputs}
    do_all("extract", where, archive.todo(out, "extract", sizes), sizes)
    slices, again = archive.plan(out)
    archive.say_again(again, "slices")
    by_path = {one["path"]: one["bytes"] for one in inputs}
    sizes = {name: sum(by_path[path] for path in one["read"]) for name, one in slices.items()}
    do_all("annotate", where, archive.todo(out, "slices", sizes), sizes)
    return archive.finish(out)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (archive.Failed, OSError) as error:
        print(f"ray_archive.py: {error}", file=sys.stderr)
        sys.exit(2)
