"""Runs the public conformance tests for HTTP caches (http-tests/cache-tests) through larder, and compares what fails with a list.

    python3 tests/oracles/caching.py target/debug/larder FOLDER [--tests FOLDER]

FOLDER is where the tests are installed by npm (the package http-cache-tests, 0.4.5); with --tests they are taken as they are from a
folder that has them with their dependencies. Needs node and npm. An origin of the tests answers what each test says, larder
stands before it, and a client asks and looks at what came from where.

What may fail is in caching_failing.tsv, each with why; what has the version before its name is expected otherwise by later versions of the
tests. Ends with 1 where something else fails, or something on the list passes.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

VERSION = "0.4.5"
PACKAGE = f"http-cache-tests@{VERSION}"
ORIGIN, CACHE = 18000, 18080
LIST = """
import(process.argv[1]).then(suites => {
  const all = {};
  for (const suite of suites.default) for (const test of suite.tests) {
    if (!test.browser_only) all[test.id] = test.kind || 'required';
  }
  console.log(JSON.stringify(all));
});
"""


def install(folder):
    """The tests, where npm puts them."""
    tests = folder / "node_modules" / "http-cache-tests"
    if not tests.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return tests


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(port, process):
    for _ in range(200):
        if process.poll() is not None:
            sys.exit(f"{process.args[0]} ended with {process.returncode}")
        if answers(port):
            return
        time.sleep(0.05)
    sys.exit(f"nobody listens at port {port}")


def end(process):
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(20)


def run(larder, tests, extra):
    """What the client says of each test."""
    engine = tests / "test-engine" if (tests / "test-engine").exists() else tests
    scratch = tempfile.mkdtemp()
    environment = {
        "PATH": os.environ["PATH"],
        "npm_package_config_protocol": "http",
        "npm_package_config_port": str(ORIGIN),
        "npm_config_protocol": "http",
        "npm_config_port": str(ORIGIN),
        "npm_config_base": f"http://127.0.0.1:{CACHE}",
        "npm_package_config_base": f"http://127.0.0.1:{CACHE}",
        "npm_package_config_id": "",
        "npm_package_config_pidfile": f"{scratch}/pid",
        "npm_config_pidfile": f"{scratch}/pid",
    }
    server = ["node", str(engine / "server" / "server.mjs")]
    cache = [larder, "http", "--listen", f"127.0.0.1:{CACHE}", "--origin", f"http://127.0.0.1:{ORIGIN}", *extra]
    # What runs node may itself be started by another program: all of them are one group, and end as one.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    for port in (ORIGIN, CACHE):
        if answers(port):
            sys.exit(f"127.0.0.1:{port} is another program's")
    origin = subprocess.Popen(server, env=environment, cwd=tests, **quiet)
    try:
        wait_for(ORIGIN, origin)
        process = subprocess.Popen(cache, **quiet)
        try:
            wait_for(CACHE, process)
            client = ["node", "--no-warnings", str(engine / "cli.mjs")]
            done = subprocess.run(client, env=environment, cwd=tests, capture_output=True, timeout=300)
            if process.poll() is not None:
                sys.exit(f"larder ended with {process.returncode}")
            return json.loads(done.stdout)
        finally:
            end(process)
    finally:
        end(origin)


def main():
    larder, folder, *rest = sys.argv[1:]
    tests = pathlib.Path(rest[1]) if rest[:1] == ["--tests"] else install(pathlib.Path(folder).resolve())
    index = (tests / "tests" / "index.mjs").resolve().as_uri()
    listed = subprocess.run(["node", "--no-warnings", "-e", LIST, index], capture_output=True, check=True)
    kinds = json.loads(listed.stdout)
    results = run(larder, tests, [])
    text = (pathlib.Path(__file__).parent / "caching_failing.tsv").read_text()
    known = dict(line.split("\t", 1) for line in text.splitlines() if line and not line.startswith("#"))
    is_later = rest[:1] == ["--tests"]
    old = {name.removeprefix(f"{VERSION}:"): why for name, why in known.items() if ":" in name}
    known = {name: why for name, why in known.items() if ":" not in name} | ({} if is_later else old)
    failing = {name for name in kinds if results.get(name) is not True and kinds[name] != "check"}
    wrong = 0
    for name in sorted(failing - set(known)):
        print(f"fails: {name}: {results.get(name)}")
        wrong += 1
    for name in sorted(name for name in known if name in kinds and name not in failing):
        print(f"passes, and is on the list: {name}")
        wrong += 1
    for kind in ("required", "optimal"):
        total = [name for name in kinds if kinds[name] == kind]
        passed = [name for name in total if name not in failing]
        print(f"cache-tests: {kind}: {len(passed)} of {len(total)} passed")
    sys.exit(1 if wrong else 0)


main()
