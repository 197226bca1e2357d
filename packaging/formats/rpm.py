"""An rpm of Fedora, openSUSE and what descends from them."""

import os
import pathlib
import shutil
import subprocess
import tempfile

from .common import DESCRIPTION, LICENCE, SUMMARY, glibc, run, version


def make(job):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files = folder / "files"
        job.tree.write(files)
        listed = [
            f"%config(noreplace) /{path}" if path.startswith("etc/") else f"/{path}" for path in sorted(job.tree.files)
        ]
        spec = [
            "Name: larder",
            f"Version: {version()}",
            f"Release: {job.revision}",
            f"Summary: {SUMMARY}",
            f"License: {LICENCE}",
            "AutoReqProv: no",
            f"Requires: glibc >= {glibc(job.tree.program())}",
            "%description",
            *DESCRIPTION,
            "%install",
            f"cp -a {files}/. %{{buildroot}}/",
            "%post",
            "[ ! -d /run/systemd/system ] || systemctl daemon-reload || :",
            "%preun",
            "[ $1 != 0 ] || [ ! -d /run/systemd/system ] ||",
            "    systemctl stop larder-dns.socket larder-dns larder-http 'larder-annotate@*' || :",
            "%files",
            *listed,
        ]
        (folder / "larder.spec").write_text("\n".join(spec) + "\n")
        macros = {
            "_topdir": folder / "top",
            "_rpmdir": folder / "rpms",
            "_buildhost": "localhost",
            "use_source_date_epoch_as_buildtime": 1,
            "clamp_mtime_to_source_date_epoch": 1,
            "source_date_epoch_from_changelog": 0,
            "debug_package": "%{nil}",
            "__os_install_post": "%{nil}",
            "_build_id_links": "none",
            "_binary_payload": "w9.xzdio",
        }
        defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        environment = dict(os.environ, SOURCE_DATE_EPOCH=str(job.time))
        run("rpmbuild", "-bb", *defines, str(folder / "larder.spec"), env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (made,) = (folder / "rpms").rglob("*.rpm")
        return [pathlib.Path(shutil.copy(made, job.out / made.name))]
