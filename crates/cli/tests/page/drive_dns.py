#!/usr/bin/env python3
"""Uses the page of `larder dns --ui` in a browser, as a person does: clicks and keys.

    drive_dns.py FOLDER URL LOCKED_URL TOKEN [--axe FILE] [--pictures FOLDER] [--firefox]

URL is a larder with the queries of the test; LOCKED_URL one that wants TOKEN. The other arguments are those of
drive.py. Ends with status 1 and a message at the first thing that is not as it should be.
"""

from browser import charts_of_ranges, check, row_of, rows_are_sorted, rows_move, tail_is_filtered, text_is_plain
from driver import drive

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


def shows(browser, is_picture):
    # Pictures are of other traffic.
    if not is_picture:
        names_are_text(browser)
    numbers_are_shown(browser)


def uses(browser):
    """Rows lead to the last responses; keys move and filter; the list can be held."""
    tail_is_filtered(browser, "names", NAME, "www.shop")
    browser.type("no such name")
    browser.wait("document.getElementById('tail').textContent.includes('None of the last')", "no response matches")
    browser.key("Escape")
    browser.click("document.getElementById('tail-pause')")
    check(browser.run("document.getElementById('tail-pause').getAttribute('aria-pressed')") == "true", "pause is pressed")
    browser.click("document.getElementById('tail-pause')")
    rows_move(browser, "names")
    rows_are_sorted(browser, "names", NAME, ("misses", "failures", "clients", "responses"))


if __name__ == "__main__":
    drive("dns-page", row_of("names", NAME), shows, uses)
