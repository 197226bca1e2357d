#!/usr/bin/env python3
"""Uses the page of `larder http --ui` in a browser, as a person does: clicks and keys.

    drive_http.py FOLDER URL LOCKED_URL TOKEN [--axe FILE] [--pictures FOLDER] [--firefox]

URL is a larder with the requests of the test; LOCKED_URL one that wants TOKEN. The other arguments are those of
drive.py. Ends with status 1 and a message at the first thing that is not as it should be.
"""

import argparse
import pathlib

from browser import Browser, charts_of_ranges, check, looks, policy_holds, row_of, rows_move, text_is_plain, token_is_asked
from firefox import Firefox

URL = "a.example/news"
# URLs in the spelling of the access log.
MARKUP = "localhost/<script>window.harmed=1</script>"
# A request that is invalid.
TURNED = "GET /\\xE2\\x80\\xAEgnp HTTP/1.1"


def urls_are_text(browser):
    """URLs of requests are text: no element comes from them, and no mark turns the line around."""
    browser.wait(row_of("urls", MARKUP) + " !== undefined", f"{MARKUP} is shown as text")
    browser.wait(row_of("tail", TURNED) + " !== undefined", f"{TURNED} is shown as text")
    text_is_plain(browser)


def numbers_are_shown(browser):
    tiles = browser.run("document.getElementById('figures').innerText")
    for word in ("Requests", "Hit ratio", "Byte hit ratio", "Coalesced", "Passed", "Errors", "Origins", "Memory", "Evicted"):
        check(word in tiles, f"no tile {word}: {tiles}")
    for table, text in (("origins", "up"), ("statuses", "404"), ("clients", "127.0.0.1"), ("missed", URL)):
        browser.wait(row_of(table, text) + " !== undefined", f"{text} is in {table}")
    charts_of_ranges(browser, 11)
    browser.wait("document.getElementById('legend').textContent.includes('2xx')", "the chart has classes")


def hands(browser):
    """A button leads to the last requests for a URL; keys move, filter and undo it."""
    rows = "document.querySelectorAll('#tail tbody tr').length"
    browser.click(f"[...{row_of('missed', URL)}.querySelectorAll('button')].find((b) => b.textContent === 'Show')")
    browser.wait(f"document.getElementById('tail-filter').value === '{URL}'", "the URL is the filter")
    shown = browser.run("[...document.querySelectorAll('#tail tbody tr')].every((row) => row.textContent.includes('/news'))")
    check(shown, "other URLs are shown")
    few = browser.run(rows)
    browser.key("Escape")
    browser.wait(f"{rows} > {few}", "Escape shows all requests")
    browser.run("document.activeElement.blur()")
    browser.key("/", "Slash", "/")
    check(browser.run("document.activeElement.id") == "tail-filter", "/ leads to the filter")
    browser.run("document.activeElement.blur()")
    rows_move(browser, "urls")
    for sort in ("bytes", "misses", "requests"):
        script = f"const s = document.getElementById('urls-sort'); s.value = '{sort}'; s.dispatchEvent(new Event('change'))"
        browser.run(f"(() => {{ {script} }})()")
        browser.wait(row_of("urls", URL) + " !== undefined", f"URLs by {sort}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("folder", "url", "locked", "token"):
        parser.add_argument(name)
    parser.add_argument("--axe", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--firefox", action="store_true")
    options = parser.parse_args()
    browser = (Firefox if options.firefox else Browser)(pathlib.Path(options.folder))
    try:
        browser.size("wide")
        browser.open(options.url)
        browser.wait(row_of("urls", URL) + " !== undefined", "URLs are listed")
        # Pictures are of other traffic.
        if not options.pictures:
            urls_are_text(browser)
        numbers_are_shown(browser)
        axe = options.axe.read_text() if options.axe else None
        looks(browser, axe, options.pictures, "http-page")
        hands(browser)
        check(not browser.errors, f"errors in the console: {browser.errors}")
        policy_holds(browser)
        token_is_asked(browser, options.locked, options.token, row_of("urls", URL))
    finally:
        browser.end()
    print("the page works")


if __name__ == "__main__":
    main()
