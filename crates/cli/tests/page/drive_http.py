#!/usr/bin/env python3
"""Uses the page of `larder http --ui` in a browser, as a person does: clicks and keys.

    drive_http.py FOLDER URL LOCKED_URL TOKEN [--axe FILE] [--pictures FOLDER] [--firefox]

URL is a larder with the requests of the test; LOCKED_URL one that wants TOKEN. The other arguments are those of
drive.py. Ends with status 1 and a message at the first thing that is not as it should be.
"""

from browser import charts_of_ranges, check, row_of, rows_are_sorted, rows_move, tail_is_filtered, text_is_plain
from driver import drive

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


def shows(browser, is_picture):
    # Pictures are of other traffic.
    if not is_picture:
        urls_are_text(browser)
    numbers_are_shown(browser)


def uses(browser):
    """Rows lead to the last requests; keys move and filter."""
    tail_is_filtered(browser, "missed", URL, "/news")
    browser.run("document.activeElement.blur()")
    rows_move(browser, "urls")
    rows_are_sorted(browser, "urls", URL, ("bytes", "misses", "requests"))


if __name__ == "__main__":
    drive("http-page", row_of("urls", URL), shows, uses)
