"""Runs h2spec, the conformance tests for HTTP/2 and HPACK by Moto Ishizawa, through larder over TLS; all of them, the strict ones too, must pass.

    python3 tests/oracles/h2spec.py target/debug/larder PATH/TO/h2spec

h2spec is built in the folder of that name; larder has the feature `encrypted`. An origin that answers GET and POST stands behind it: once what it says is kept and once it is not.
The certificate is made by openssl. Ends with 1 where a test fails, or where fewer are run than there are.
"""

import http.server
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

TESTS = 146
CLOSING = re.compile(r"^(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", re.MULTILINE)


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    control = "no-store"

    def log_message(self, *_):
        pass

    def answer(self):
        body = b"an answer\n"
        self.send_response(200)
        self.send_header("Cache-Control", self.control)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while (size := int(self.rfile.readline().split(b";")[0] or b"0", 16)) > 0:
                self.rfile.read(size + 2)
            while self.rfile.readline().strip():
                pass
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer()

    do_GET = do_POST
    do_HEAD = do_POST


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Many tests break off what they began."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(larder, h2spec, folder, control):
    Origin.control = control
    origin = Quiet(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    port = free_port()
    command = [
        larder, "http", "--listen", "127.0.0.1:0", "--listen-tls", f"127.0.0.1:{port}",
        "--tls-cert", folder / "chain.pem", "--tls-key", folder / "key.pem",
        "--origin", f"http://127.0.0.1:{origin.server_address[1]}",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            done = subprocess.run(
                [h2spec, "-t", "-k", "-h", "127.0.0.1", "-p", str(port), "-o", "5", "-S"],
                capture_output=True,
                text=True,
                timeout=600,
            )
            if server.poll() is not None:
                sys.exit(f"larder ended with {server.returncode}")
        finally:
            server.terminate()
            server.wait(20)
            origin.shutdown()
    closing = CLOSING.search(done.stdout)
    if closing is None:
        sys.exit(f"h2spec did not come to its end:\n{done.stdout}{done.stderr}")
    count, passed, _, _ = map(int, closing.groups())
    is_good = passed == count >= TESTS
    if not is_good:
        print("\n".join(line for line in done.stdout.splitlines() if "\u00d7" in line))
    print(f"h2spec, {control}: {passed} of {count} passed")
    return is_good


def main():
    larder, h2spec = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        make += ["-keyout", folder / "key.pem", "-out", folder / "chain.pem", "-days", "2", "-subj", "/CN=localhost"]
        subprocess.run(make, check=True, capture_output=True)
        results = [run(larder, h2spec, folder, control) for control in ("no-store", "max-age=60")]
    sys.exit(0 if all(results) else 1)


main()
