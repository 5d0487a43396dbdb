"""`clearhead review` and its page together, in a real browser: a catalogue is corrected, also over a killed server."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import clearhead
from processes import finish, start, wait_for_review

TESTS = Path(__file__).parents[2]
MODEL = TESTS / "compat" / "0.1.0" / "run"
CATALOGUE = """\
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "drei null"
msgstr ""

msgid "eins %s"
msgstr ""

msgid "sieben"
msgstr "seven"
"""
expect.set_options(timeout=60_000)


@pytest.fixture
def catalogue(tmp_path) -> Path:
    path = tmp_path / "numbers.po"
    path.write_text(CATALOGUE, encoding="utf-8")
    return path


@pytest.fixture
def review(catalogue, tmp_path) -> Iterator[Callable]:
    """Return what starts the command, and returns the process and the address of the page, always the same one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes = []

    def start_() -> tuple:
        log = tmp_path / f"{len(processes)}.log"
        log.touch()
        options = ("--port", str(port))
        processes.append(start(["review", str(catalogue), str(MODEL), *options], log))
        return processes[-1], wait_for_review(processes[-1], log)

    yield start_
    for process in processes:
        process.kill()
        finish(process)


def entries(path: Path) -> dict[str, tuple[str, bool]]:
    """Return the text of each entry, and whether it is finished."""
    found = clearhead.read_document(path).segments
    return {one.text: (one.translation, one.is_finished) for one in found}


def wait_for(page: Page, path: Path, source: str, wanted: tuple[str, bool]) -> None:
    for _ in range(1_200):
        if entries(path)[source] == wanted:
            return
        page.wait_for_timeout(50)
    assert entries(path)[source] == wanted


def test_the_command_says_what_its_documentation_shows(review, catalogue, tmp_path):
    _, address = review()
    page = (TESTS.parent / "docs" / "documents.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"clearhead: messages\.po: .*segments done.*\n", page)
    said = shown.replace("messages.po", str(catalogue)).replace("http://127.0.0.1:5000/", address)
    assert said in (tmp_path / "0.log").read_text(encoding="utf-8")


def test_a_catalogue_is_corrected_and_a_killed_server_loses_nothing(browser, review, catalogue):
    process, address = review()
    page = browser.new_page()
    page.goto(address)
    expect(page.locator("#done")).to_have_text("1 of 3 done")
    expect(page.locator("#mirror .word")).not_to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("EINS")
    page.keyboard.press("Enter")
    expect(page.locator("#where")).to_contain_text("entry 2")
    page.locator("#target").fill("one")
    expect(page.locator("#flags")).to_contain_text("%s")
    expect(page.locator(".code.missing")).to_contain_text("%s")
    page.keyboard.press("Control+,")
    expect(page.locator("#flags")).to_have_text("Nothing looks wrong.")
    page.keyboard.press("Control+Enter")
    wait_for(page, catalogue, "eins %s", ("one%s", True))
    process.kill()
    finish(process)
    for key in ("Escape", "/", "Escape"):  # out of the field; all segments again
        page.keyboard.press(key)
    expect(page.locator("#message-text")).to_contain_text("The server does not answer")
    review()
    page.locator("#retry").click()
    expect(page.locator("#done")).to_have_text("2 of 3 done")
    expect(page.locator("#where")).to_contain_text("entry 1")
    page.locator("#target").fill("three zero zero")
    page.keyboard.press("Control+Enter")
    wait_for(page, catalogue, "drei null", ("three zero zero", True))
    expect(page.locator("#none")).to_have_text("All segments are done.")
    page.locator("#undo").click()
    expect(page.locator("#done")).to_have_text("2 of 3 done")
    assert entries(catalogue)["sieben"] == ("seven", True)
    page.close()
