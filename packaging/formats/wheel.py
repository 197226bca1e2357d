"""Wheels for pip: the program as a script, one wheel for glibc and one for the program that needs no library.

The name on an index of Python packages is `larder-net`: `larder` belongs to another project there.
"""

import base64
import datetime
import hashlib
import zipfile

from .archive import LICENCES
from .common import LICENCE, ROOT, SUMMARY, Tree, glibc, version

NAME = f"larder_net-{version()}"
# The musl that the tag names: pip asks for at least this one. The program itself brings its own.
MUSL = "1_2"


def make(job):
    oldest = glibc(job.tree).replace(".", "_")
    made = [make_wheel(job, job.tree, f"manylinux_{oldest}_{job.machine}")]
    if job.static:
        made.append(make_wheel(job, job.static, f"musllinux_{MUSL}_{job.machine}"))
    return made


def add_files(wheel, tree):
    """What a wheel installs: today the program, in the folder of scripts."""
    data, _ = tree.files["usr/bin/larder"]
    wheel.add(f"{NAME}.data/scripts/larder", data, 0o755)


def make_wheel(job, tree, platform):
    tag = f"py3-none-{platform}"
    about = f"{NAME}.dist-info"
    wheel = Tree()
    add_files(wheel, tree)
    # By the specification, what is about the wheel stands at the end of the archive.
    late = Tree()
    for licence in LICENCES:
        late.add(f"{about}/{licence}", (ROOT / licence).read_bytes())
    late.add(f"{about}/METADATA", metadata().encode())
    lines = ["Wheel-Version: 1.0", "Generator: larder", "Root-Is-Purelib: false", f"Tag: {tag}"]
    late.add(f"{about}/WHEEL", "".join(f"{line}\n" for line in lines).encode())
    files = [*sorted(wheel.files.items()), *sorted(late.files.items())]
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, (data, _) in files)
    files.append((f"{about}/RECORD", (f"{record}{about}/RECORD,,\n".encode(), 0o644)))
    path = job.out / f"{NAME}-{tag}.whl"
    moment = datetime.datetime.fromtimestamp(job.time, datetime.timezone.utc).timetuple()[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, (data, mode) in files:
            entry = zipfile.ZipInfo(name, moment)
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=9)
    return path


def metadata():
    fields = [
        "Metadata-Version: 2.1",
        "Name: larder-net",
        f"Version: {version()}",
        f"Summary: {SUMMARY}",
        f"License: {LICENCE}",
        *(f"License-File: {licence}" for licence in LICENCES),
        "Classifier: Operating System :: POSIX :: Linux",
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(fields) + "\n\n" + (ROOT / "README.md").read_text()


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
