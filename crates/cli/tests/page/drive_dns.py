#!/usr/bin/env python3
"""Uses the page of `larder dns --ui` in a browser, as a person does: clicks and keys.

    drive_dns.py FOLDER URL LOCKED_URL TOKEN [--axe FILE] [--pictures FOLDER] [--firefox]

URL is a larder with the queries of the test; LOCKED_URL one that wants TOKEN. The other arguments are those of
drive.py. Ends with status 1 and a message at the first thing that is not as it should be.
"""

import argparse
import pathlib

from browser import Browser, charts_of_ranges, check, looks, policy_holds, row_of, rows_move, text_is_plain, token_is_asked
from firefox import Firefox

NAME = "www.shop.example."
# Names in the spelling of the query log.
MARKUP = "<script>window.harmed=1</script>.example."
TERMINAL = "\\027[31mred.example."
TURNED = "\\226\\128\\174gnp.example."
BLOCKED = "<img src=x>.ads.example.".replace(" ", "\\032")


def names_are_text(browser):
    """Names of queries are text: no element comes from them, and no mark turns the line around."""
    for name in (MARKUP, TERMINAL, TURNED):
        for table in ("names", "tail"):
            browser.wait(row_of(table, name) + " !== undefined", f"{name} is shown as text in {table}")
    browser.wait(row_of("blocked", BLOCKED) + " !== undefined", "a blocked name is shown")
    text_is_plain(browser)


def numbers_are_shown(browser):
    tiles = browser.run("document.getElementById('figures').innerText")
    for word in ("Queries", "Hit ratio", "Hits take", "Misses take", "SERVFAIL", "Blocked", "Dropped", "Upstreams", "Cache"):
        check(word in tiles, f"no tile {word}: {tiles}")
    browser.wait(row_of("upstreams", "up") + " !== undefined", "an upstream is up")
    browser.wait(row_of("clients", "127.0.0.1") + " !== undefined", "a client is listed")
    charts_of_ranges(browser, 9)
    browser.wait("document.getElementById('legend').textContent.includes('NOERROR')", "the chart has codes")


def hands(browser):
    """A button leads to the last responses for a name; keys move, filter and undo it; the list can be held."""
    rows = "document.querySelectorAll('#tail tbody tr').length"
    browser.click(f"[...{row_of('names', NAME)}.querySelectorAll('button')].find((b) => b.textContent === 'Show')")
    browser.wait(f"document.getElementById('tail-filter').value === '{NAME}'", "the name is the filter")
    shown = browser.run("[...document.querySelectorAll('#tail tbody tr')].every((row) => row.textContent.includes('www.shop'))")
    check(shown, "other names are shown")
    few = browser.run(rows)
    browser.key("Escape")
    browser.wait(f"{rows} > {few}", "Escape shows all responses")
    browser.run("document.activeElement.blur()")
    browser.key("/", "Slash", "/")
    check(browser.run("document.activeElement.id") == "tail-filter", "/ leads to the filter")
    browser.type("no such name")
    browser.wait("document.getElementById('tail').textContent.includes('None of the last')", "no response matches")
    browser.key("Escape")
    browser.click("document.getElementById('tail-pause')")
    check(browser.run("document.getElementById('tail-pause').getAttribute('aria-pressed')") == "true", "pause is pressed")
    browser.click("document.getElementById('tail-pause')")
    rows_move(browser, "names")
    for sort in ("misses", "failures", "clients", "responses"):
        script = f"const s = document.getElementById('names-sort'); s.value = '{sort}'; s.dispatchEvent(new Event('change'))"
        browser.run(f"(() => {{ {script} }})()")
        browser.wait(row_of("names", NAME) + " !== undefined", f"names by {sort}")


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
        browser.wait(row_of("names", NAME) + " !== undefined", "names are listed")
        # Pictures are of other traffic.
        if not options.pictures:
            names_are_text(browser)
        numbers_are_shown(browser)
        axe = options.axe.read_text() if options.axe else None
        looks(browser, axe, options.pictures, "dns-page")
        hands(browser)
        check(not browser.errors, f"errors in the console: {browser.errors}")
        policy_holds(browser)
        token_is_asked(browser, options.locked, options.token, row_of("names", NAME))
    finally:
        browser.end()
    print("the page works")


if __name__ == "__main__":
    main()
