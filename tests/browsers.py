"""What the tests of pages in a real browser share: the browser, and what axe finds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.base import AxeResults
from playwright.sync_api import Browser, sync_playwright

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


def serious(found: AxeResults) -> list[tuple[str, list[str]]]:
    """Return the rules that are broken seriously, and where."""
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
