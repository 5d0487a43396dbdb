"""What the tests of pages in a real browser share: the browser, and what axe finds."""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

import pytest
from axe_playwright_python.base import AxeResults
from playwright.sync_api import Browser, Page, sync_playwright

from clearhead.browser.rules import RULES, rules_module
from clearhead.inspection.page import TEXT_RULES, text_rules_module

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Open a browser for the block; where there is none, the tests skip, or fail if one is needed."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        if os.environ.get("CLEARHEAD_NEEDS_BROWSER"):
            pytest.fail("no browser; install chromium")
        pytest.skip("there is no chromium or chrome on the PATH")
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, as whom containers run.
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield opened
        opened.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


class _KeptForAnHour(_Quiet):
    def send_header(self, keyword: str, value: str) -> None:
        super().send_header(*(("Cache-Control", "max-age=3600") if keyword == "Last-Modified" else (keyword, value)))


@contextmanager
def served(directory: Path, *, is_kept: bool = False) -> Iterator[str]:
    """Serve a directory for the block; the value is its address.

    Args:
        directory: The directory.
        is_kept: Whether the browser is told to keep every file for an hour.
    """
    handler = functools.partial(_KeptForAnHour if is_kept else _Quiet, directory=directory)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def page_with_modules(browser: Browser, directory: Path, html: str, ready: str) -> Iterator[Page]:
    """Open a page that imports modules of the pages, as `./web/search.js`, for the block.

    Args:
        browser: The browser.
        directory: Is served, with the page and the modules in it.
        html: The page.
        ready: Expression that is true when the page is ready.
    """
    for folder in ("web", "translate", "explain"):
        shutil.copytree(str(files("clearhead") / "pages" / folder), directory / folder)
    (directory / RULES).write_text(rules_module())
    (directory / TEXT_RULES).write_text(text_rules_module(), encoding="utf-8")
    (directory / "index.html").write_text(html)
    with served(directory) as address:
        page = browser.new_page()
        try:
            page.goto(address)
            page.wait_for_function(f"() => Boolean({ready})")
            yield page
        finally:
            page.close()


def listen(page: Page, complaints: list[str]) -> None:
    """Note what a page says in its console, and every error and dialog."""
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))


def serious(found: AxeResults) -> list[tuple[str, list[str]]]:
    """Return the rules that are broken seriously, and where."""
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
