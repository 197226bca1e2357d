"""Firefox over WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/), with the methods of browser.Browser.

Needs Python 3 (standard library only) and firefox-esr. Its colors are dark: nothing in the protocol changes them.
"""

import base64
import json
import os
import re
import select
import socket
import struct
import subprocess
import time

from browser import PATIENCE_S, SIZES, Browser, check

# Keys that are no characters, as WebDriver numbers them.
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "ArrowUp": "\ue013"}


def value_of(remote):
    """The value that the protocol describes; `None` for what is no data."""
    kind, value = remote["type"], remote.get("value")
    if kind == "array":
        return [value_of(item) for item in value]
    if kind == "object":
        return {key: value_of(item) for key, item in value}
    return value if kind in ("string", "number", "boolean") else None


class WebSocket:
    """The client's end of a WebSocket (RFC 6455): whole messages of text."""

    def __init__(self, host, port, path):
        self.socket = socket.create_connection((host, port), PATIENCE_S)
        key = base64.b64encode(os.urandom(16)).decode()
        fields = f"Host: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        fields += f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        self.socket.sendall(f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode())
        self.bytes = b""
        while b"\r\n\r\n" not in self.bytes:
            self.more(PATIENCE_S)
        head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
        check(b" 101 " in head, f"no WebSocket: {head}")
        self.parts = b""

    def more(self, wait_s):
        """Receives bytes, if some come in time."""
        if not select.select([self.socket], [], [], wait_s)[0]:
            return False
        received = self.socket.recv(1 << 20)
        check(received, "Firefox closed the connection")
        self.bytes += received
        return True

    def send(self, text):
        payload, mask = text.encode(), os.urandom(4)
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
        if size > 0xFFFF:
            length = b"\xff" + struct.pack(">Q", size)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        self.socket.sendall(b"\x81" + length + mask + masked)

    def frame(self):
        """The next frame that is complete: its first byte and what it carries."""
        if len(self.bytes) < 2:
            return None
        first, size, at = self.bytes[0], self.bytes[1] & 0x7F, 2
        if size > 125:
            at = 4 if size == 126 else 10
            if len(self.bytes) < at:
                return None
            size = int.from_bytes(self.bytes[2:at], "big")
        if len(self.bytes) < at + size:
            return None
        payload, self.bytes = self.bytes[at : at + size], self.bytes[at + size :]
        return first, payload

    def messages(self, wait_s):
        """The messages that have arrived."""
        self.more(wait_s)
        while frame := self.frame():
            first, payload = frame
            if first & 0x0F > 2:
                continue
            self.parts += payload
            if first & 0x80:
                whole, self.parts = self.parts, b""
                yield whole.decode()


class Firefox(Browser):
    """Firefox, and one page in it."""

    themes = ("dark",)

    def __init__(self, folder):
        self.errors, self.number, self.results = [], 0, {}
        self.downloads = folder / "downloads"
        self.downloads.mkdir()
        self.taken = set()
        profile = folder / "firefox"
        profile.mkdir()
        settings = {
            "browser.download.dir": str(self.downloads),
            "browser.download.folderList": 2,
            "browser.download.always_ask_before_handling_new_types": False,
            "layout.css.prefers-color-scheme.content-override": 0,
            "toolkit.telemetry.reportingpolicy.firstRun": False,
        }
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items()]
        (profile / "user.js").write_text("".join(lines))
        log = folder / "firefox.log"
        flags = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0", "about:blank"]
        # Of the user that runs the test it wants neither settings nor services.
        environment = {**os.environ, "HOME": str(folder), "MOZ_CRASHREPORTER_DISABLE": "1"}
        with log.open("wb") as out:
            self.process = subprocess.Popen(["firefox-esr", *flags], stdout=out, stderr=out, env=environment)
        begun = time.monotonic()
        while not (said := re.search(r"BiDi listening on ws://([\d.]+):(\d+)", log.read_text(errors="replace"))):
            check(self.process.poll() is None, f"Firefox ended: {log.read_text(errors='replace')}")
            check(time.monotonic() < begun + PATIENCE_S, "Firefox does not listen")
            time.sleep(0.05)
        self.socket = WebSocket(said[1], int(said[2]), "/session")
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=["log.entryAdded"])
        self.page = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def send(self, method, **params):
        self.number += 1
        number = self.number
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        begun = time.monotonic()
        while number not in self.results:
            check(time.monotonic() < begun + PATIENCE_S, f"{method}: no response from Firefox")
            self.receive(0.05)
        message = self.results.pop(number)
        check(message["type"] == "success", f"{method}: {message.get('message')}")
        return message["result"]

    def receive(self, wait_s=0):
        for message in map(json.loads, self.socket.messages(wait_s)):
            if message.get("id") is not None:
                self.results[message["id"]] = message
            elif message.get("method") == "log.entryAdded" and message["params"]["level"] in ("error", "warn"):
                self.errors.append(message["params"]["text"])

    def run(self, script):
        target = {"context": self.page}
        result = self.send("script.evaluate", expression=script, target=target, awaitPromise=True, userActivation=True)
        check(result["type"] == "success", f"{script[:500]}: {result.get('exceptionDetails')}")
        return value_of(result["result"])

    def open(self, url):
        self.send("browsingContext.navigate", context=self.page, url=url, wait="complete")

    def act(self, kind, name, actions, **more):
        source = {"type": kind, "id": name, "actions": actions, **more}
        self.send("input.performActions", context=self.page, actions=[source])

    def click(self, script):
        x, y = (round(part) for part in self.place_of(script))
        actions = [{"type": "pointerMove", "x": x, "y": y}]
        actions += [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        self.act("pointer", "mouse", actions, parameters={"pointerType": "mouse"})

    def key(self, key, code=None, text=None):
        self.type([KEYS.get(key, key)])

    def type(self, text):
        actions = [{"type": kind, "value": letter} for letter in text for kind in ("keyDown", "keyUp")]
        self.act("key", "keyboard", actions)

    def size(self, name):
        width, height = SIZES[name]
        viewport = {"width": width, "height": height}
        self.send("browsingContext.setViewport", context=self.page, viewport=viewport, devicePixelRatio=1)

    def theme(self, theme):
        self.wait(f"document.documentElement.dataset.theme === '{theme}'", f"the colors are {theme}")
