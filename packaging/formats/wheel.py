"""Wheels for pip: the program as a script, with the module for Python in the wheel for glibc, and one for the program
that needs no library; and `larder-lab` in a wheel of its own, which `larder-net[lab]` asks for.

The name on an index of Python packages is `larder-net`: `larder` belongs to another project there.
"""

import base64
import dataclasses
import datetime
import hashlib
import zipfile

from .archive import LICENCES
from .common import LICENCE, ROOT, SUMMARY, Tree, glibc, version

# The oldest Python whose stable interface the module needs, as bindings/python/Cargo.toml says.
PYTHON = (3, 10)
# That whose pip installs a wheel without a module.
PYTHON_OF_PIP = (3, 8)

# The musl that the tag names: pip asks for at least this one. The program itself brings its own.
MUSL = "1_2"


@dataclasses.dataclass
class Project:
    """A name on an index of Python packages, and the program that it installs."""

    name: str
    program: str
    summary: str
    # Further fields of the metadata.
    fields: list[str]

    def stem(self):
        """As names of files and folders have it."""
        return f"{self.name.replace('-', '_')}-{version()}"


NET = Project(
    "larder-net",
    "larder",
    SUMMARY,
    ["Provides-Extra: lab", f"Requires-Dist: larder-net-lab=={version()}; extra == 'lab'"],
)
LAB = Project("larder-net-lab", "larder-lab", "What a cache is worth: simulator, model and benchmarks of larder", [])


def make(job):
    made = [make_wheel(job, NET, job.tree.program(), module=job.module)]
    if job.static:
        made.append(make_wheel(job, NET, job.static.program(), f"musllinux_{MUSL}"))
    return made


def make_lab(job):
    return [make_wheel(job, LAB, job.lab)]


def add_files(wheel, project, program, module):
    """What a wheel installs: the program, in the folder of scripts, and a package for Python."""
    wheel.add(f"{project.stem()}.data/scripts/{project.program}", program, 0o755)
    if module:
        wheel.add("larder/_larder.abi3.so", module, 0o755)
        for source in (ROOT / "bindings/python/larder").iterdir():
            if source.is_file():
                wheel.add(f"larder/{source.name}", source.read_bytes())


def make_wheel(job, project, program, platform=None, module=None):
    """`platform`: the library that the program needs; without one, the oldest glibc that has what it uses."""
    platform = platform or f"manylinux_{oldest_glibc(program, module)}"
    python = f"cp{PYTHON[0]}{PYTHON[1]}-abi3" if module else "py3-none"
    tag = f"{python}-{platform}_{job.machine}"
    about = f"{project.stem()}.dist-info"
    wheel = Tree()
    add_files(wheel, project, program, module)
    # By the specification, what is about the wheel stands at the end of the archive.
    late = Tree()
    for licence in LICENCES:
        late.add(f"{about}/{licence}", (ROOT / licence).read_bytes())
    late.add(f"{about}/METADATA", metadata(project, PYTHON if module else PYTHON_OF_PIP).encode())
    lines = ["Wheel-Version: 1.0", "Generator: larder", "Root-Is-Purelib: false", f"Tag: {tag}"]
    late.add(f"{about}/WHEEL", "".join(f"{line}\n" for line in lines).encode())
    files = [*sorted(wheel.files.items()), *sorted(late.files.items())]
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, (data, _) in files)
    files.append((f"{about}/RECORD", (f"{record}{about}/RECORD,,\n".encode(), 0o644)))
    path = job.out / f"{project.stem()}-{tag}.whl"
    moment = datetime.datetime.fromtimestamp(job.time, datetime.timezone.utc).timetuple()[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, (data, mode) in files:
            entry = zipfile.ZipInfo(name, moment)
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=9)
    return path


def oldest_glibc(*programs):
    """The oldest that has what all of them use, as a tag has it."""
    needed = (glibc(program).split(".") for program in programs if program)
    return "_".join(max(needed, key=lambda number: [int(part) for part in number]))


def metadata(project, python):
    fields = [
        "Metadata-Version: 2.1",
        f"Name: {project.name}",
        f"Version: {version()}",
        f"Summary: {project.summary}",
        f"License: {LICENCE}",
        *(f"License-File: {licence}" for licence in LICENCES),
        "Classifier: Operating System :: POSIX :: Linux",
        f"Requires-Python: >={python[0]}.{python[1]}",
        *project.fields,
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(fields) + "\n\n" + (ROOT / "README.md").read_text()


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
