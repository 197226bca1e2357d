#!/usr/bin/env python3
"""Uses the page of `larder annotate --ui` in a browser, as a person does: clicks, keys, downloads.

    drive.py FOLDER URL LOCKED_URL TOKEN [--axe FILE] [--pictures FOLDER] [--firefox]

URL is a larder with the recording of the test; LOCKED_URL one that wants TOKEN. FOLDER gets the browser's
profile and what it downloads. With --axe the rules of axe-core are checked, with --pictures the page is drawn
light, dark and narrow. The browser is Chromium, or Firefox with --firefox.

Needs Python 3 (standard library only), the browser and tshark. Ends with status 1 and a message at the first
thing that is not as it should be.
"""

import argparse
import json
import pathlib
import subprocess
import urllib.parse

import browser as browser_module
from browser import Browser, charts_of_ranges, check, looks, policy_holds, row_of, rows_move, text_is_plain
from firefox import Firefox

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
    check(packets(browser.downloaded()) > 0, "a flow has no packets")
    browser.click(button("unresolved", "198.51.100.66", "Packets"))
    check(packets(browser.downloaded()) > 0, "a row has no packets")
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


def token_is_asked(browser, url, token):
    """A larder with a token shows nothing before it has it; segments come with it."""
    browser_module.token_is_asked(browser, url, token, row_of("names", NAME))
    browser.click("document.querySelector('#segments button')")
    check(packets(browser.downloaded()) > 0, "a segment has no packets")


def main():
    parser = argparse.ArgumentParser()
    for name in ("folder", "url", "locked", "token"):
        parser.add_argument(name)
    parser.add_argument("--axe", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--firefox", action="store_true")
    options = parser.parse_args()
    folder = pathlib.Path(options.folder)
    browser = (Firefox if options.firefox else Browser)(folder)
    try:
        browser.size("wide")
        browser.open(options.url)
        browser.wait(row_of("names", NAME) + " !== undefined", "names are listed")
        browser.wait("document.querySelector('#legend li')", "traffic has names")
        browser.wait(row_of("conflicts", "www.bank.example") + " !== undefined", "a conflict is listed")
        names_are_text(browser)
        charts_of_ranges(browser, 6)
        axe = options.axe.read_text() if options.axe else None
        looks(browser, axe, options.pictures, "page")
        searches(browser)
        rows_move(browser, "names")
        check(packets(browser.downloaded()) > 0, "a segment has no packets")
        # A wrong search is status 400, which browsers log as an error.
        errors = [error for error in browser.errors if "400" not in json.dumps(error)]
        check(not errors, f"errors in the console: {errors}")
        policy_holds(browser)
        token_is_asked(browser, options.locked, options.token)
    finally:
        browser.end()
    print("the page works")


if __name__ == "__main__":
    main()
