"""Origins, as pages have them behind `larder http`: origin.py PORT...

Their health is a file's word: health-PORT beside the test's notes (`500`, `slow`; none: well).
"""

import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        path, last = self.path, self.path.rsplit("/", 1)[-1]
        if path == "/":
            self.give(b"hello\n", {"Cache-Control": "max-age=60"})
        elif path == "/a":
            self.give(b"hello 1\n", {"Cache-Control": "max-age=60", "ETag": '"x"'})
        elif path == "/kept":
            self.give(b"kept for a bit\n", {"Cache-Control": "max-age=600"})
        elif path == "/own":
            self.give(b"from one\n", {"Cache-Control": "private"})
        elif path == "/heads":
            self.give(str(self.headers).strip().encode() + b"\n", {"Cache-Control": "no-store"})
        elif path.startswith(("/s/", "/size/")):
            self.give(bytes(int(last)), {"Cache-Control": "max-age=3600"})
        elif path == "/cut":
            self.give(bytes(1000), {}, length=1_000_000)
            self.close_connection = True
        elif path == "/health":
            self.health()
        else:
            self.give(b"no\n", {}, status=404)

    def health(self):
        try:
            with open(f"{os.environ['NOTES']}/health-{self.server.server_port}") as file:
                word = file.read().strip()
        except FileNotFoundError:
            word = "well"
        if word == "slow":
            time.sleep(5)
        self.give(b"", {}, status=500 if word == "500" else 200)

    def give(self, body, fields, status=200, length=None):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


servers = [ThreadingHTTPServer(("127.0.0.1", int(port)), Origin) for port in sys.argv[1:]]
for server in servers:
    threading.Thread(target=server.serve_forever).start()
