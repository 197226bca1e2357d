"""What the installers share: the libraries that cargo builds, and files that are replaced while programs use them."""

import json
import os
import pathlib
import re
import subprocess
import sys


def build(folder, debug):
    """The libraries of the crate in a folder, by their names, and their version."""
    options = [] if debug else ["--release"]
    command = ["cargo", "build", "--lib", "--locked", "--message-format=json-render-diagnostics", *options]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    for message in map(json.loads, done.stdout.splitlines()):
        is_ours = message["reason"] == "compiler-artifact" and message["manifest_path"] == str(folder / "Cargo.toml")
        if is_ours and "cdylib" in message["target"]["kind"]:
            built = {pathlib.Path(name).name: pathlib.Path(name) for name in message["filenames"]}
            return built, re.search(r"[#@](\d[^#@]*)$", message["package_id"])[1]
    sys.exit("install: cargo built no library")


def replace(target, make):
    """Makes a file under another name, then gives it its own."""
    temporary = target.with_name(target.name + ".new")
    temporary.unlink(missing_ok=True)
    make(temporary)
    os.replace(temporary, target)


def install(main, place):
    """Runs an installer, and says what to do where it fails; `place` is the option that names the folder."""
    try:
        main()
    except FileNotFoundError as error:
        sys.exit(f"install: {error}; it needs cargo (rustup), and a {place} that can be made")
    except OSError as error:
        sys.exit(f"install: {error}; give a {place} that you may write to")
    except subprocess.CalledProcessError:
        sys.exit("install: cargo failed, for the reason above")
