"""A container image as an OCI archive: the program that needs no library, its configuration, and a folder /tmp."""

import datetime
import hashlib
import json

from .archive import tar_of
from .common import LICENCE, SUMMARY, Tree, version, zipped

# A name of Go, as the specification of images wants it.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Nobody's, and the folders in front of the files. `annotate --sort` keeps its parts in /tmp.
USER = "65534:65534"
FOLDERS = [("etc", 0o755), ("etc/larder", 0o755), ("tmp", 0o1777)]
IMAGE = "application/vnd.oci.image"


def make(job):
    path = job.out / f"larder-{version()}-{job.machine}.oci.tar"
    path.write_bytes(archive_of(job.static, job.time, job.machine))
    return [path]


def archive_of(tree, time, machine):
    root = Tree()
    root.add("larder", *tree.files["usr/bin/larder"])
    root.add("etc/larder/larder.toml", *tree.files["etc/larder/larder.toml"])
    layer = tar_of(root, time, folders=FOLDERS)
    created = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "larder",
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.version": version(),
        "org.opencontainers.image.licenses": LICENCE,
    }
    archive = Tree()

    def blob(kind, data):
        """Puts in `data` by its digest, and describes it."""
        digest = hashlib.sha256(data).hexdigest()
        archive.add(f"blobs/sha256/{digest}", data)
        return {"mediaType": f"{IMAGE}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    config = {
        "created": created,
        "architecture": ARCHITECTURES[machine],
        "os": "linux",
        "config": {"User": USER, "Entrypoint": ["/larder"], "WorkingDir": "/", "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "comment": "packaging/build"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{IMAGE}.manifest.v1+json",
        "config": blob("config.v1+json", written(config)),
        "layers": [blob("layer.v1.tar+gzip", zipped(layer))],
    }
    listed = blob("manifest.v1+json", written(manifest))
    listed["annotations"] = {"org.opencontainers.image.ref.name": f"larder:{version()}"}
    listed["platform"] = {"architecture": ARCHITECTURES[machine], "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": f"{IMAGE}.index.v1+json", "manifests": [listed]}
    archive.add("index.json", written(index))
    archive.add("oci-layout", written({"imageLayoutVersion": "1.0.0"}))
    return tar_of(archive, time)


def written(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
