"""A copy of the repository to make mistakes in, in a place that stays, so that what was built of it is there next time."""

import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "target/mutants/copy"
BUILD = ROOT / "target/mutants/build"


def refresh():
    """Makes the copy what the work tree is: the files that git knows, and those that it would."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE,
    ).stdout.decode().split("\0")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    for path in list(COPY.rglob("*")):
        if path.is_file() and str(path.relative_to(COPY)) not in names:
            path.unlink()
    for name in names:
        source, target = ROOT / name, COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Files that are as they were keep their times, and what was built of them.
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)
