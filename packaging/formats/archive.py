"""Tar archives: the tree below a folder with the name of the archive."""

import io
import tarfile

from .common import ROOT, version, zipped

LICENCES = ["LICENSE-MIT", "LICENSE-APACHE"]


def make(job):
    return [make_tar(job, job.tree, f"larder-{version()}-{job.machine}-linux")]


def make_static(job):
    return [make_tar(job, job.static, f"larder-{version()}-{job.machine}-linux-static")]


def make_tar(job, tree, name):
    whole = tree.copy()
    for licence in LICENCES:
        whole.add(licence, (ROOT / licence).read_bytes())
    path = job.out / f"{name}.tar.gz"
    path.write_bytes(zipped(tar_of(whole, job.time, f"{name}/")))
    return path


def tar_of(tree, time, prefix="", folders=()):
    """The files of a tree after `folders` (paths and modes), all of them owned by root."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder, mode in folders:
            entry = tarfile.TarInfo(prefix + folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, mode, time
            archive.addfile(entry)
        for file, (data, mode) in sorted(tree.files.items()):
            entry = tarfile.TarInfo(prefix + file)
            entry.size, entry.mode, entry.mtime = len(data), mode, time
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
