#!/usr/bin/env python3
"""Uses the page of `larder annotate --ui` in a browser, as a person does: clicks, keys, downloads.

    drive.py FOLDER URL LOCKED_URL TOKEN [--axe FILE] [--pictures FOLDER] [--firefox]

URL is a larder with the recording of the test; LOCKED_URL one that wants TOKEN. FOLDER gets the browser's
profile and what it downloads. With --axe the rules of axe-core are checked, with --pictures the page is drawn
light, dark and narrow. The browser is Chromium, or Firefox with --firefox.

Needs Python 3 (standard library only), the browser and tshark. Ends with status 1 and a message at the first
thing that is not as it should be.
"""

import subprocess
import urllib.parse

from browser import charts_of_ranges, check, row_of, rows_move, text_is_plain
from driver import drive

NAME = "www.shop.example"
MARKUP = "<script>window.harmed=1</script>.example"
TERMINAL = "\\x1b[31mred.example"
TURNED = "\\xe2\\x80\\xaegnp.example"


def button(table, text, title):
    return f"[...({row_of(table, text)} || document.body).querySelectorAll('td button')].find((b) => b.textContent === '{title}')"


def packets(path):
    """How many packets tshark finds in a file."""
    run = subprocess.run(["tshark", "-n", "-r", path], capture_output=True, text=True, check=False)
    check(run.returncode == 0, f"tshark: {run.stderr}")
    return len(run.stdout.splitlines())


def searches(browser):
    """A row leads to its flows and its packets; a wrong search is reported; times limit a search."""
    for name in (MARKUP, TERMINAL, TURNED):
        browser.click(button("new", name, "Flows"))
        browser.wait(row_of("flows", name) + " !== undefined", f"the flows of {name} are shown")
    browser.click(button("names", NAME, "Flows"))
    browser.wait(row_of("flows", NAME) + " !== undefined", "the flows of a name are shown")
    check(browser.run("document.activeElement.id") == "results-title", "the flows have the focus")
    check(NAME in urllib.parse.unquote(browser.run("location.hash")), "the search is in the address")
    browser.click(button("flows", NAME, "Packets"))
    check(packets(browser.downloaded("larder")) > 0, "a flow has no packets")
    browser.click(button("unresolved", "198.51.100.66", "Packets"))
    check(packets(browser.downloaded("larder")) > 0, "a row has no packets")
    browser.key("Escape")
    browser.wait("document.getElementById('results').hidden", "Escape closes the flows")
    browser.run("document.activeElement.blur()")
    browser.key("/", "Slash", "/")
    check(browser.run("document.activeElement.id") == "query", "/ leads to the search")
    check(browser.run("document.getElementById('query').value") == NAME, "/ is no part of the search")
    browser.run("document.getElementById('query').value = ''")
    browser.type("*.shop.example")
    browser.key("Enter", text="\r")
    browser.wait("document.getElementById('results-note').textContent.includes('flow')", "a search by keys")
    browser.run("document.getElementById('query').value = ''; document.getElementById('query').focus()")
    browser.type("(a")
    browser.key("Enter", text="\r")
    note = browser.wait(
        "document.getElementById('query-note').className === 'error' && document.getElementById('query-note').textContent",
        "a wrong search is reported",
    )
    check("(a" in note and "^" in note, f"the place is not shown: {note}")
    browser.click("document.getElementById('from')")
    browser.run("document.getElementById('from').focus()")
    browser.key("ArrowRight")
    browser.wait("document.getElementById('picked').textContent.includes(' to ')", "a time is picked")
    browser.click(button("names", NAME, "Flows"))
    browser.wait("document.getElementById('results-note').textContent.includes('flow')", "a search in a time")
    browser.click("document.getElementById('whole')")
    browser.click("document.getElementById('results-close')")
    browser.click("document.querySelector('#segments button')")


def names_are_text(browser):
    """Names of packets are text: no element comes from them, and no mark turns the line around."""
    for name in (MARKUP, TERMINAL, TURNED):
        browser.wait(row_of("new", name) + " !== undefined", f"{name} is shown as text")
    text_is_plain(browser)


def shows(browser, _is_picture):
    browser.wait("document.querySelector('#legend li')", "traffic has names")
    browser.wait(row_of("conflicts", "www.bank.example") + " !== undefined", "a conflict is listed")
    names_are_text(browser)
    charts_of_ranges(browser, 6)


def uses(browser):
    searches(browser)
    rows_move(browser, "names")
    check(packets(browser.downloaded(r"\d{8}")) > 0, "a segment has no packets")


def segments_are_there(browser):
    browser.click("document.querySelector('#segments button')")
    check(packets(browser.downloaded(r"\d{8}")) > 0, "a segment has no packets")


if __name__ == "__main__":
    drive("page", row_of("names", NAME), shows, uses, segments_are_there)
