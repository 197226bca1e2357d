"""What all drivers of pages do: arguments, a browser, the looks of the page, its policy, its token."""

import argparse
import json
import pathlib

from browser import Browser, check, looks, policy_holds, token_is_asked
from firefox import Firefox


def drive(page, row, shows, uses, unlocked=lambda browser: None):
    """Drives a page whose pictures begin with `page`. It is there when `row` is, the script of a row; `shows` looks
    at it, also for pictures, `uses` uses it; `unlocked` looks at the page that was given its token."""
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
        browser.wait(f"{row} !== undefined", "rows are listed")
        shows(browser, bool(options.pictures))
        looks(browser, options.axe.read_text() if options.axe else None, options.pictures, page)
        uses(browser)
        # A wrong search is status 400, which browsers log as an error.
        errors = [error for error in browser.errors if "400" not in json.dumps(error)]
        check(not errors, f"errors in the console: {errors}")
        policy_holds(browser)
        token_is_asked(browser, options.locked, options.token, row)
        unlocked(browser)
    finally:
        browser.end()
    print("the page works")
