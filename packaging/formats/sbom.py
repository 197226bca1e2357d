"""A bill of materials (CycloneDX 1.5): the crates that the program and the module for Python are made from, with licences
and checksums."""

import datetime
import json
import re
import tomllib
import urllib.parse
import uuid

from .common import FEATURES, LICENCE, ROOT, said, version

# Features and dependencies are those of this platform.
TARGETS = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


def make(job):
    path = job.out / f"larder-{version()}.cdx.json"
    moment = datetime.datetime.fromtimestamp(job.time, datetime.timezone.utc)
    path.write_text(json.dumps(bill(TARGETS[job.machine], moment), indent=1, sort_keys=True) + "\n")
    return [path]


# Of each artifact the folders of workspace and crate, the package and its features.
MADE = [
    (".", "crates/cli", "larder-cli", ["--features", FEATURES]),
    ("bindings", "bindings/python", "larder-python", []),
]


def edges(target, manifest, package, features):
    """What each crate of a program needs, by name and version.

    `cargo metadata` unites the features of all members of the workspace; `cargo tree` takes those of the program.
    """
    tree = said("cargo", "tree", "--locked", "--manifest-path", manifest, "--package", package, *features, "--edges",
                "normal", "--target", target, "--prefix", "depth", "--format", " {p}")
    needs, above = {}, []
    for line in tree.splitlines():
        depth, name, number = re.match(r"(\d+) (\S+) v(\S+)", line).groups()
        crate = (name, number)
        needs.setdefault(crate, set())
        del above[int(depth):]
        if above:
            needs[above[-1]].add(crate)
        above.append(crate)
    return needs


def bill(target, moment):
    needs, licences, sums = {}, {}, {}
    for workspace, folder, package, features in MADE:
        manifest = f"{folder}/Cargo.toml"
        for crate, others in edges(target, manifest, package, features).items():
            needs.setdefault(crate, set()).update(others)
        described = json.loads(
            said("cargo", "metadata", "--locked", "--manifest-path", manifest, *features, "--format-version", "1",
                 "--filter-platform", target)
        )
        licences |= {(crate["name"], crate["version"]): crate["license"] for crate in described["packages"]}
        locked = tomllib.loads((ROOT / workspace / "Cargo.lock").read_text())["package"]
        sums |= {(crate["name"], crate["version"]): crate.get("checksum") for crate in locked}
    program = ("larder-cli", version())
    # The component that all belongs to is the release: it has the program and the module.
    needs[program].add(("larder-python", version()))
    components = [component(crate, licences[crate], sums[crate]) for crate in sorted(needs) if crate != program]
    references = {(part["name"], part["version"]): part["bom-ref"] for part in components}
    references[program] = "larder"
    contents = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": "larder",
                "name": "larder",
                "version": version(),
                "licenses": [{"expression": LICENCE}],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": references[crate], "dependsOn": sorted(references[other] for other in needs[crate])}
            for crate in sorted(needs)
        ],
    }
    # The same crates have the same number.
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(contents, sort_keys=True))
    return {"serialNumber": f"urn:uuid:{serial}", **contents}


def component(crate, licence, checksum):
    name, number = crate
    found = {
        "type": "library",
        "name": name,
        "version": number,
        # Crates of before SPDX write `MIT/Apache-2.0`.
        "licenses": [{"expression": licence.replace("/", " OR ")}],
    }
    if checksum:
        found["bom-ref"] = found["purl"] = f"pkg:cargo/{name}@{urllib.parse.quote(number)}"
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    else:
        # A crate of this repository is not published: a purl would be that of somebody else's crate.
        found["bom-ref"] = f"{name}@{number}"
    return found
