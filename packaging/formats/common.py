"""What all formats share: the tree of files, the program in it, versions and times."""

import dataclasses
import gzip
import io
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "packaging"
UNITS = ["larder-annotate@.service", "larder-dns.service", "larder-dns.socket", "larder-http.service"]
SUMMARY = "Names for IP traffic, a DNS server and an HTTP cache"
DESCRIPTION = [
    "larder annotate puts the domain name beside every IP address in captured",
    "traffic. larder dns is a caching DNS server, and larder http a cache in front",
    "of web servers.",
]
LICENCE = "MIT OR Apache-2.0"
# What the program of packages has and the default build leaves out. None of it needs a C compiler.
FEATURES = "parquet"
MAINTAINER = "The larder project <larder@localhost>"


def run(*command, **more):
    return subprocess.run(command, check=True, **more)


def said(*command):
    return run(*command, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip()


def version():
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(r'^version = "([^"]+)"', text, re.MULTILINE)[1]


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH") or said("git", "log", "-1", "--format=%ct"))


def compile_program():
    """The release build for the glibc of this machine."""
    return compiled("build", "--features", FEATURES, place="release")


def compile_lab():
    """The release build of the simulator and the benchmarks."""
    return compiled("build", place="release", package="larder-lab", program="larder-lab")


def compile_module():
    """The release build of the module for Python."""
    manifest = ["--manifest-path", "bindings/Cargo.toml", "--lib"]
    return compiled("build", *manifest, place="release", package="larder-python", program="lib_larder.so")


def compile_static():
    """The release build that needs no library: musl's, as zig brings it.

    The musl of rustup brings a slower memcpy.
    """
    target = f"{os.uname().machine}-unknown-linux-musl"
    return compiled("zigbuild", "--target", target, "--features", FEATURES, place=f"{target}/release")


def compiled(*command, place, package="larder-cli", program="larder"):
    """A program, without the paths of this machine."""
    cargo = os.environ.get("CARGO_HOME", str(pathlib.Path.home() / ".cargo"))
    flags = [f"--remap-path-prefix={ROOT}=larder", f"--remap-path-prefix={cargo}=cargo"]
    target = ROOT / "target" / "packaging"
    environment = dict(os.environ, CARGO_ENCODED_RUSTFLAGS="\x1f".join(flags), CARGO_TARGET_DIR=str(target))
    run("cargo", *command, "--release", "--locked", "-p", package, cwd=ROOT, env=environment)
    return target / place / program


def needs_libraries(program):
    return "INTERP" in said("readelf", "--program-headers", "--wide", str(program))


def zipped(data):
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.write(data)
    return packed.getvalue()


# The configuration that packages have. Every setting with its help is in the examples of their documentation.
CONFIGURATION = """# Settings of larder annotate, larder dns and larder http, in a table for each: [annotate], [dns], [http].
# /usr/share/doc/larder/examples/larder.toml has all of them with their help, and so has larder init;
# larder show-config shows those in force, and larder doctor whether a program would run with them.
"""


class Tree:
    """The files of a package, by their paths from the root: bytes and mode."""

    def __init__(self):
        self.files = {}

    def add(self, path, data, mode=0o644):
        self.files[path] = (data, mode)

    def copy(self):
        other = Tree()
        other.files = dict(self.files)
        return other

    def write(self, folder):
        for path, (data, mode) in self.files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            place.chmod(mode)
        for place in [folder, *folder.rglob("*")]:
            if place.is_dir():
                place.chmod(0o755)

    def program(self):
        return self.files["usr/bin/larder"][0]

    def bytes(self):
        return sum(len(data) for data, _ in self.files.values())


def stripped(binary):
    """The program without its symbols."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / binary.name
        shutil.copy(binary, copy)
        run("strip", "--strip-all", str(copy))
        return copy.read_bytes()


def tree_of(binary, prefix):
    """Everything below `prefix`, and what is below /etc."""
    tree = Tree()
    tree.add(f"{prefix}/bin/larder", stripped(binary), 0o755)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        program = str(binary)
        (folder / "man").mkdir()
        run(program, "man", "-o", str(folder / "man"), stderr=subprocess.DEVNULL)
        for page in sorted((folder / "man").iterdir()):
            tree.add(f"{prefix}/share/man/man1/{page.name}.gz", zipped(page.read_bytes()))
        places = {
            "bash": "bash-completion/completions/larder",
            "zsh": "zsh/vendor-completions/_larder",
            "fish": "fish/vendor_completions.d/larder.fish",
        }
        for shell, place in places.items():
            tree.add(f"{prefix}/share/{place}", run(program, "completions", shell, stdout=subprocess.PIPE).stdout)
        every = b""
        for name in ["annotate", "dns", "http"]:
            every += run(program, "init", name, "-o", "-", stdout=subprocess.PIPE).stdout + b"\n"
    for unit in UNITS:
        text = (HERE / unit).read_text().replace("/usr/local/bin/larder", "/usr/bin/larder")
        tree.add(f"{prefix}/lib/systemd/system/{unit}", text.encode())
    for board in sorted((HERE / "grafana").glob("*.json")):
        tree.add(f"{prefix}/share/larder/grafana/{board.name}", board.read_bytes())
    for rules in sorted((HERE / "prometheus").glob("*.yml")):
        tree.add(f"{prefix}/share/larder/prometheus/{rules.name}", rules.read_bytes())
    tree.add(f"{prefix}/share/doc/larder/README.md", (ROOT / "README.md").read_bytes())
    tree.add(f"{prefix}/share/doc/larder/changelog.gz", zipped((ROOT / "CHANGELOG.md").read_bytes()))
    # Each package has the text of the one; that of the other is in every distribution, and in the archive.
    mit = (ROOT / "LICENSE-MIT").read_text()
    also = "On Debian the text of the Apache License is /usr/share/common-licenses/Apache-2.0."
    tree.add(f"{prefix}/share/doc/larder/copyright", f"License: {LICENCE}\n\n{mit}\n{also}\n".encode())
    tree.add(f"{prefix}/share/doc/larder/examples/larder.toml", every)
    # Short: where the packager's text changes, an upgrade asks operators who changed the file what to do.
    tree.add("etc/larder/larder.toml", CONFIGURATION.encode())
    return tree


def glibc(program):
    """The oldest glibc that has what the program with these bytes uses."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(program)
        file.flush()
        text = said("objdump", "-T", file.name)
    found = {tuple(map(int, number.split("."))) for number in re.findall(r"GLIBC_([0-9.]+)", text)}
    return ".".join(map(str, max(found, default=(2, 17))))


@dataclasses.dataclass
class Job:
    """What the packages of one run have in common."""

    out: pathlib.Path
    time: int
    machine: str
    revision: int = 1
    # The files of the package, with the program for glibc, and with the one that needs no library.
    tree: Tree | None = None
    static: Tree | None = None
    # The simulator and the benchmarks.
    lab: bytes | None = None
    # The module for Python, for glibc.
    module: bytes | None = None
