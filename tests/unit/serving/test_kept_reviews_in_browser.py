"""The button of the translation page of `clearhead serve --reviews`, in a real browser: from a file, or a text, to its
review and the corrected document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from browsers import listen, serious

MODEL = Path(__file__).parents[2] / "compat" / "0.1.0" / "run"
CATALOGUE = 'msgid "drei null"\nmsgstr ""\n\nmsgid "eins %s"\nmsgstr ""\n'
expect.set_options(timeout=60_000)


@pytest.fixture
def kept(tmp_path) -> Path:
    return tmp_path / "reviews"


@pytest.fixture
def open_page(browser, start_server, kept, complaints) -> Iterator[Callable[[], Page]]:
    """Return what opens the translation page; whatever it or a review complains of fails the test."""
    server = start_server(f"de-en={MODEL}", "--reviews", str(kept))
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.on("page", lambda page: listen(page, complaints))

    def open_() -> Page:
        page = context.new_page()
        page.goto(server.url)
        page.locator("#from").select_option("de")
        page.locator("#into").select_option("en")
        return page

    yield open_
    context.close()
    assert server.end() == 0
    assert complaints == []


def review_opened_by(button: Locator) -> Page:
    with button.page.context.expect_page() as opened:
        button.click()
    expect(opened.value.locator("#done")).to_contain_text("of")
    assert re.search("/reviews/[0-9a-f]{32}/$", opened.value.url)
    return opened.value


def test_a_translated_file_is_reviewed_and_downloaded(open_page, kept):
    page = open_page()
    page.locator("#file").set_input_files([{"name": "a.po", "mimeType": "", "buffer": CATALOGUE.encode()}])
    review = review_opened_by(page.locator("#file-list button", has_text="Review"))
    expect(review.locator("#done")).to_have_text("0 of 2 done")
    assert serious(Axe().run(review)) == []
    review.locator("#find").fill("EINS")
    review.keyboard.press("Enter")
    expect(review.locator("#where")).to_contain_text("entry 2")
    expect(review.locator("#suggestions button")).not_to_have_count(0)  # the model was asked
    review.locator("#target").fill("one %s")
    review.keyboard.press("Control+Enter")
    expect(review.locator("#done")).to_have_text("1 of 2 done")
    expect(review.locator("#saved")).to_have_text("written to a_en.po")
    with review.expect_download() as download:
        review.locator("#download").click()
    assert download.value.suggested_filename == "a_en.po"
    assert 'msgid "eins %s"\nmsgstr "one %s"\n' in download.value.path().read_text(encoding="utf-8")
    for key in ("/", "Escape"):  # all segments again
        review.keyboard.press(key)
    review.locator("#target").fill("typed, not saved")
    address = review.url
    review.close()
    link = page.locator("#file-list a", has_text="Review")
    assert link.evaluate("one => one.href") == address
    again = review_opened_by(link)
    expect(again.locator("#done")).to_have_text("1 of 2 done")
    expect(again.locator("#unsaved")).to_have_text("1 text typed, not saved")
    assert [path.name for path in kept.iterdir()] == [address.split("/")[-2]]


def test_a_text_is_reviewed_as_paragraphs(open_page, kept):
    page = open_page()
    expect(page.locator("#review")).to_be_hidden()
    page.locator("#source").fill("drei null\n\neins zwei")
    review = review_opened_by(page.locator("#review"))
    expect(review.locator("#done")).to_have_text("0 of 2 done")
    expect(page.locator("#message-text")).to_have_text(f"The review is at {review.url}")
    review.keyboard.press("Control+Enter")
    expect(review.locator("#done")).to_have_text("1 of 2 done")
    assert [path.name for path in kept.glob("*/text_en.txt")] == ["text_en.txt"]


def test_a_review_that_is_refused_opens_no_tab(open_page, complaints):
    page = open_page()
    page.route("**/reviews", lambda route: route.fulfill(status=403, json={"error": "no more reviews"}))
    page.locator("#file").set_input_files([{"name": "a.po", "mimeType": "", "buffer": CATALOGUE.encode()}])
    button = page.locator("#file-list button", has_text="Review")
    button.click()
    expect(page.locator("#file-list [role=status]")).to_contain_text("no more reviews")
    expect(button).to_be_enabled()
    assert page.context.pages == [page]
    [complaint] = complaints
    assert "403" in complaint
    complaints.clear()
