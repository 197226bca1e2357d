#!/usr/bin/env python3
"""Uses the page of `larder dns --ui` in a browser, as a person does: clicks and keys.

    drive_dns.py FOLDER URL LOCKED_URL TOKEN [--axe FILE] [--pictures FOLDER] [--firefox]

URL is a larder with the queries of the test; LOCKED_URL one that wants TOKEN. The other arguments are those of
drive.py. Ends with status 1 and a message at the first thing that is not as it should be.
"""

import argparse
import pathlib

from browser import Browser, check, looks, policy_holds, row_of
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
    for place in ("main script", "main img", "main style", "main a[href^='javascript']"):
        check(browser.run(f"document.querySelectorAll(\"{place}\").length") == 0, f"{place} is there")
    check(browser.run("window.harmed === undefined"), "a name was run")
    text = browser.run("document.body.textContent")
    odd = [letter for letter in text if ord(letter) in (*range(0x0E, 0x20), *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
    check(not odd, f"control characters: {odd}")


def numbers_are_shown(browser):
    tiles = browser.run("document.getElementById('figures').innerText")
    for word in ("Queries", "Hit ratio", "Hits take", "Misses take", "SERVFAIL", "Blocked", "Dropped", "Upstreams", "Cache"):
        check(word in tiles, f"no tile {word}: {tiles}")
    browser.wait(row_of("upstreams", "up") + " !== undefined", "an upstream is up")
    browser.wait(row_of("clients", "127.0.0.1") + " !== undefined", "a client is listed")
    for range_name in ("1m", "24h", "30d", "1h"):
        browser.click(f"document.querySelector('[data-range=\"{range_name}\"]')")
        browser.wait(
            f"document.querySelector('[data-range=\"{range_name}\"]').getAttribute('aria-pressed') === 'true'"
            " && document.querySelectorAll('#charts svg').length === 9 && document.querySelector('#traffic svg')",
            f"charts of {range_name}",
        )
    browser.wait("document.getElementById('legend').textContent.includes('NOERROR')", "the chart has codes")


def hands(browser):
    """A button leads to the last responses for a name; keys move, filter and undo it; the list can be held."""
    rows = "document.querySelectorAll('#tail tbody tr').length"
    browser.click(f"[...{row_of('names', NAME)}.querySelectorAll('button')].find((b) => b.textContent === 'Responses')")
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
    first = "document.querySelector('#names tbody tr').querySelector('button')"
    browser.run(f"{first}.focus()")
    browser.key("ArrowDown")
    check(browser.run("document.activeElement.closest('tr').rowIndex") == 2, "down: the second row")
    browser.key("ArrowUp")
    check(browser.run("document.activeElement.closest('tr').rowIndex") == 1, "up: the first row")
    browser.run("document.activeElement.blur()")
    for sort in ("misses", "failures", "clients", "responses"):
        script = f"const s = document.getElementById('names-sort'); s.value = '{sort}'; s.dispatchEvent(new Event('change'))"
        browser.run(f"(() => {{ {script} }})()")
        browser.wait(row_of("names", NAME) + " !== undefined", f"names by {sort}")


def token_is_asked(browser, url, token):
    """A larder with a token shows nothing before it has it."""
    browser.open(url)
    browser.wait("!document.getElementById('token-form').hidden", "the page asks for the token")
    check(browser.run("document.querySelectorAll('#names tr').length") == 0, "rows without a token")
    for text, shown in (("wrong", "document.getElementById('token-note').textContent.includes('wrong')"),
                        (token, row_of("names", NAME) + " !== undefined")):
        browser.run("document.getElementById('token').focus()")
        browser.type(text)
        browser.key("Enter", text="\r")
        browser.wait(shown, f"after the token {text}: {shown}")
    browser.wait("document.getElementById('token-form').hidden", "the form is hidden")


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
        names_are_text(browser)
        numbers_are_shown(browser)
        axe = options.axe.read_text() if options.axe else None
        looks(browser, axe, options.pictures, "dns-page")
        hands(browser)
        check(not browser.errors, f"errors in the console: {browser.errors}")
        policy_holds(browser)
        token_is_asked(browser, options.locked, options.token)
    finally:
        browser.end()
    print("the page works")


if __name__ == "__main__":
    main()
