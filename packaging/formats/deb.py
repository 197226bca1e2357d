"""A deb of Debian and what descends from it."""

import datetime
import email.utils
import hashlib
import os
import pathlib
import subprocess
import tempfile

from .common import DESCRIPTION, MAINTAINER, SUMMARY, glibc, run, version, zipped

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What a unit makes while it runs: gone with a purge, and no earlier.
STATE = ["cache/larder", "cache/larder-http", "lib/larder-annotate", "log/larder-annotate", "log/larder-http"]

SCRIPTS = {
    # An older program may refuse the settings and the packet store of a newer one.
    "preinst": """#!/bin/sh
set -e
if [ "$1" = upgrade ] && dpkg --compare-versions "$2" gt @VERSION@; then
    echo "larder $2 is installed and @VERSION@ is older: remove it first (dpkg -r larder); the configuration stays" >&2
    exit 1
fi
""",
    "postinst": """#!/bin/sh
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    # Units that were running before an upgrade go on with the new program; an upgrade that was refused changes none.
    if [ "$1" = configure ] && [ -n "$2" ]; then
        systemctl try-restart larder-dns.service larder-http.service 'larder-annotate@*.service' || true
    fi
fi
""",
    "prerm": """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl stop larder-dns.socket larder-dns.service larder-http.service 'larder-annotate@*.service' || true
fi
""",
    "postrm": f"""#!/bin/sh
set -e
if [ "$1" = purge ]; then
    for state in {" ".join(STATE)}; do
        # A link of systemd to the place of a user that exists only while the unit runs.
        rm -rf "$DPKG_ROOT/var/$state" "$DPKG_ROOT/var/${{state%%/*}}/private/${{state#*/}}"
    done
    rmdir "$DPKG_ROOT/etc/larder" 2>/dev/null || true
    # What systemctl enable made: another installation must not start them.
    for wanted in "$DPKG_ROOT"/etc/systemd/system/*.wants; do
        rm -f "$wanted/larder-dns.service" "$wanted/larder-dns.socket" "$wanted/larder-http.service"
        rm -f "$wanted"/larder-annotate@*.service
        rmdir "$wanted" 2>/dev/null || true
    done
fi
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
""",
}


def make(job):
    full = f"{version()}-{job.revision}"
    architecture = ARCHITECTURES.get(job.machine, job.machine)
    path = job.out / f"larder_{full}_{architecture}.deb"
    tree = job.tree.copy()
    tree.add("usr/share/doc/larder/changelog.Debian.gz", zipped(debian_changelog(full, job.time).encode()))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tree.write(folder)
        control = [
            "Package: larder",
            f"Version: {full}",
            f"Architecture: {architecture}",
            f"Maintainer: {MAINTAINER}",
            f"Installed-Size: {-(-tree.bytes() // 1024)}",
            f"Depends: libc6 (>= {glibc(tree.program())}), libgcc-s1",
            "Section: net",
            "Priority: optional",
            f"Description: {SUMMARY}",
            *(f" {line}" for line in DESCRIPTION),
        ]
        debian = folder / "DEBIAN"
        debian.mkdir()
        debian.chmod(0o755)
        (debian / "control").write_text("\n".join(control) + "\n")
        (debian / "conffiles").write_text("/etc/larder/larder.toml\n")
        sums = sorted(path for path in tree.files if not path.startswith("etc/"))
        (debian / "md5sums").write_text(
            "".join(f"{hashlib.md5(tree.files[path][0]).hexdigest()}  {path}\n" for path in sums)
        )
        for name, text in SCRIPTS.items():
            (debian / name).write_text(text.replace("@VERSION@", full))
            (debian / name).chmod(0o755)
        environment = dict(os.environ, SOURCE_DATE_EPOCH=str(job.time))
        for place in [folder, *folder.rglob("*")]:
            os.utime(place, (job.time, job.time))
        run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(folder), str(path), env=environment,
            stdout=subprocess.DEVNULL)
    return [path]


def debian_changelog(full, time):
    """Debian wants the packager's own changes apart; there are none but the version's."""
    day = email.utils.format_datetime(datetime.datetime.fromtimestamp(time, datetime.timezone.utc))
    entry = "  * The changes of this version are in changelog.gz."
    return f"larder ({full}) unstable; urgency=medium\n\n{entry}\n\n -- {MAINTAINER}  {day}\n"
