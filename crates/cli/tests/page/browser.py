"""Chromium over the pipe of its DevTools protocol, and checks that all pages of larder share.

Needs Python 3 (standard library only) and Chromium.
"""

import base64
import json
import os
import re
import subprocess
import sys
import time

PATIENCE_S = 60
SIZES = {"wide": (1280, 900), "middle": (800, 900), "narrow": (360, 740)}


def fail(text):
    sys.exit(f"{sys.argv[0]}: {text}")


def check(is_so, text):
    if not is_so:
        fail(text)


class Browser:
    """Chromium, and one page in it."""

    themes = ("light", "dark")

    def __init__(self, folder):
        commands, responses = os.pipe(), os.pipe()
        self.errors = []
        self.number, self.results, self.buffer, self.session = 0, {}, b"", None
        self.downloads = folder / "downloads"
        self.downloads.mkdir()
        self.taken = set()

        def ends():
            # Its ends of the pipes are 3 and 4; they may have those numbers here, crosswise.
            to, out = os.dup(commands[0]), os.dup(responses[1])
            to, out = (os.dup(fd) for fd in (to, out)) if {to, out} & {3, 4} else (to, out)
            os.dup2(to, 3)
            os.dup2(out, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        flags += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank"]
        log = (folder / "chromium.log").open("wb")
        self.process = subprocess.Popen(
            ["chromium", *flags], preexec_fn=ends, pass_fds=(3, 4), stdout=log, stderr=log
        )
        os.close(commands[0])
        os.close(responses[1])
        self.commands, self.responses = commands[1], responses[0]
        os.set_blocking(self.responses, False)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))

    def send(self, method, **params):
        """Sends a command, and returns its result."""
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        begun = time.monotonic()
        while number not in self.results:
            check(time.monotonic() < begun + PATIENCE_S, f"{method}: no response from Chromium")
            self.receive()
        message = self.results.pop(number)
        check("error" not in message, f"{method}: {message.get('error')}")
        return message["result"]

    def receive(self):
        """Takes the messages that have arrived."""
        try:
            self.buffer += os.read(self.responses, 1 << 20)
        except BlockingIOError:
            time.sleep(0.01)
        *whole, self.buffer = self.buffer.split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self.results[message["id"]] = message
            else:
                self.event(message)

    def event(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"])

    def run(self, script):
        """The value of a script, or of its promise."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        check("exceptionDetails" not in result, f"{script}: {result.get('exceptionDetails')}")
        return result["result"].get("value")

    def wait(self, script, what):
        """Waits until a script gives a true value, and returns it."""
        begun = time.monotonic()
        while time.monotonic() < begun + PATIENCE_S:
            self.receive()
            # An element has no value outside of the page.
            value = self.run(f"((value) => (value instanceof Node ? true : value))({script})")
            if value:
                return value
            time.sleep(0.05)
        fail(f"never: {what}; {self.run('document.body.innerText')[:3000]}")

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'", "the page is loaded")

    def place_of(self, script):
        """The middle of the element that a script gives, in the window."""
        self.wait(f"Boolean({script})", f"{script} exists")
        return self.run(
            f"(() => {{ const e = {script}; e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )

    def click(self, script):
        """Clicks the element that a script gives, with the mouse."""
        place = self.place_of(script)
        for kind in ("mousePressed", "mouseReleased"):
            mouse = dict(type=kind, x=place[0], y=place[1], button="left", clickCount=1)
            self.send("Input.dispatchMouseEvent", **mouse)

    def key(self, key, code=None, text=None):
        names = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "/": 191}
        params = dict(key=key, code=code or key, windowsVirtualKeyCode=names.get(key, 0))
        if text:
            params["text"] = text
        self.send("Input.dispatchKeyEvent", type="keyDown", **params)
        self.send("Input.dispatchKeyEvent", type="keyUp", **{**params, "text": ""})

    def type(self, text):
        self.send("Input.insertText", text=text)

    def size(self, name):
        width, height = SIZES[name]
        metrics = dict(width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setDeviceMetricsOverride", **metrics)

    def theme(self, theme):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.wait(f"document.documentElement.dataset.theme === '{theme}'", f"the colors are {theme}")

    def downloaded(self, stem):
        """The next file that is complete, of a name that begins with this expression."""
        # Browsers reserve the name by an empty file and write to another one. That of Firefox may have the same
        # ending; if it is moved, Firefox can't finish, and the next download does not begin. So files stay, and
        # Chromium replaces one of the same name.
        expected = re.compile(rf"{stem}( ?\(\d+\))?\.pcapng")
        begun = time.monotonic()
        while time.monotonic() < begun + PATIENCE_S:
            self.receive()
            for path in filter(lambda path: expected.fullmatch(path.name), self.downloads.iterdir()):
                status = path.stat()
                file = (path, status.st_ino, status.st_mtime_ns)
                if status.st_size > 0 and file not in self.taken:
                    self.taken.add(file)
                    return path
            time.sleep(0.05)
        fail(f"no {stem}.pcapng was downloaded, there are {sorted(path.name for path in self.downloads.iterdir())}")

    def end(self):
        self.process.terminate()
        self.process.wait()


def row_of(table, text):
    """The script that gives the row of a table with a text."""
    return f"[...document.querySelectorAll('#{table} tbody tr')].find((row) => row.textContent.includes({json.dumps(text)}))"


def looks(browser, axe, pictures, page):
    """No part is wider than the window; axe-core finds nothing serious; pictures."""
    for theme in browser.themes:
        browser.theme(theme)
        for size in SIZES:
            browser.size(size)
            # The charts are drawn in the new width.
            browser.run("window.scrollTo(0, 0)")
            browser.wait(
                "document.documentElement.scrollWidth <= window.innerWidth", f"the page fits {size}"
            )
            if axe and size != "middle":
                found = browser.run(
                    f"{axe}\n;axe.run().then(({{violations}}) => violations.filter(({{impact}}) =>"
                    " ['serious', 'critical'].includes(impact)).map(({id, nodes}) => `${id}: ${nodes[0].html}`))"
                )
                check(not found, f"axe-core, {theme}, {size}: {found}")
            if pictures and ((size, theme) in (("wide", "light"), ("wide", "dark"), ("narrow", "light"))):
                draw(browser, pictures, page, theme if size == "wide" else "narrow")
    browser.size("wide")


def draw(browser, folder, page, name):
    """A picture of the page."""
    width, _ = SIZES["narrow" if name == "narrow" else "wide"]
    tall = dict(width=width, height=1500, deviceScaleFactor=1, mobile=False)
    browser.send("Emulation.setDeviceMetricsOverride", **tall)
    time.sleep(1)
    shot = browser.send("Page.captureScreenshot", format="png", captureBeyondViewport=False)
    (folder / f"{page}-{name}.png").write_bytes(base64.b64decode(shot["data"]))
    browser.size("narrow" if name == "narrow" else "wide")


def policy_holds(browser):
    """A script that is added to the page does not run."""
    script = "const s = document.createElement('script'); s.textContent = 'window.harmed = 1'; document.body.append(s); s.remove()"
    browser.run(f"(() => {{ {script} }})()")
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.harmed = 2\">')")
    time.sleep(0.2)
    check(browser.run("window.harmed === undefined"), "the policy lets added scripts run")


def text_is_plain(browser):
    """No element of the main part comes from data, and no control character is in the text."""
    for place in ("main script", "main img", "main style", "main a[href^='javascript']"):
        check(browser.run(f"document.querySelectorAll(\"{place}\").length") == 0, f"{place} is there")
    check(browser.run("window.harmed === undefined"), "a name was run")
    text = browser.run("document.body.textContent")
    odd = [letter for letter in text if ord(letter) in (*range(0x0E, 0x20), *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
    check(not odd, f"control characters: {odd}")


def charts_of_ranges(browser, charts):
    """Each range has its number of charts."""
    for range_name in ("1m", "24h", "30d", "1h"):
        browser.click(f"document.querySelector('[data-range=\"{range_name}\"]')")
        browser.wait(
            f"document.querySelector('[data-range=\"{range_name}\"]').getAttribute('aria-pressed') === 'true'"
            f" && document.querySelectorAll('#charts svg').length === {charts} && document.querySelector('#traffic svg')",
            f"charts of {range_name}",
        )


def rows_move(browser, table):
    """Arrows move between the rows of a table."""
    first = f"document.querySelector('#{table} tbody tr').querySelector('button')"
    browser.run(f"{first}.focus()")
    browser.key("ArrowDown")
    check(browser.run("document.activeElement.closest('tr').rowIndex") == 2, "down: the second row")
    browser.key("ArrowUp")
    check(browser.run("document.activeElement.closest('tr').rowIndex") == 1, "up: the first row")
    browser.run("document.activeElement.blur()")


def token_is_asked(browser, url, token, row):
    """A larder with a token shows nothing before it has it; `row` is the script of a row that it then shows."""
    browser.open(url)
    browser.wait("!document.getElementById('token-form').hidden", "the page asks for the token")
    check(browser.run("document.querySelectorAll('tbody tr').length") == 0, "rows without a token")
    for text, shown in (("wrong", "document.getElementById('token-note').textContent.includes('wrong')"),
                        (token, row + " !== undefined")):
        browser.run("document.getElementById('token').focus()")
        browser.type(text)
        browser.key("Enter", text="\r")
        browser.wait(shown, f"after the token {text}: {shown}")
    browser.wait("document.getElementById('token-form').hidden", "the form is hidden")


def tail_is_filtered(browser, table, text, part):
    """The button of a row leads to the last rows with its text, of which each has this part; keys filter, and undo it."""
    rows = "document.querySelectorAll('#tail tbody tr').length"
    browser.click(f"[...{row_of(table, text)}.querySelectorAll('button')].find((b) => b.textContent === 'Show')")
    browser.wait(f"document.getElementById('tail-filter').value === {json.dumps(text)}", "the text is the filter")
    every = f"every((row) => row.textContent.includes({json.dumps(part)}))"
    check(browser.run(f"[...document.querySelectorAll('#tail tbody tr')].{every}"), "other rows are shown")
    few = browser.run(rows)
    browser.key("Escape")
    browser.wait(f"{rows} > {few}", "Escape shows all rows")
    browser.run("document.activeElement.blur()")
    browser.key("/", "Slash", "/")
    check(browser.run("document.activeElement.id") == "tail-filter", "/ leads to the filter")


def rows_are_sorted(browser, table, text, orders):
    """A table has a row with this text in each order."""
    for order in orders:
        script = f"const s = document.getElementById('{table}-sort'); s.value = '{order}'; s.dispatchEvent(new Event('change'))"
        browser.run(f"(() => {{ {script} }})()")
        browser.wait(row_of(table, text) + " !== undefined", f"{table} by {order}")
