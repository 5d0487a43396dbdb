"""The page of a review in a real browser, over a small server: by the keyboard alone, and with nothing typed lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from fake_review import GAPPED, FakeReview, segment, served_review
from playwright.sync_api import Locator, Page, expect

from browsers import listen, serious
from every_run import slow

expect.set_options(timeout=60_000)
AT_ONCE = (
    "const later = setTimeout; setTimeout = (run, wait, ...all) => later(run, wait <= 1000 ? 0 : 60 * wait, ...all)"
)
"""Texts are checked and alternatives asked for at once; the server is asked again when the page is told to."""
HOSTILE = "<img src=x onerror=alert(1)></script><b>$name"


@pytest.fixture
def review() -> FakeReview:
    others = [segment(number, f"Satz {number} vom Hund.", f"Sentence {number} of the dog.") for number in range(1, 7)]
    others[5]["state"] = "finished"
    return FakeReview([GAPPED, *others])


@pytest.fixture
def open_page(browser, review) -> Iterator[Callable[..., Page]]:
    """Return what opens the page, in one browser; a second call opens a second tab. Complaints fail the test."""
    complaints: list[str] = []
    contexts = []
    with served_review(review) as address:

        def open_(**options: Any) -> Page:
            if not contexts:
                contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options}))
                contexts[0].add_init_script(AT_ONCE)
                contexts[0].on("page", lambda page: listen(page, complaints))
            page = contexts[0].new_page()
            page.goto(address)
            expect(page.locator("#done")).to_contain_text(" done")
            return page

        yield open_
        for context in contexts:
            context.close()
    assert [one for one in complaints if not re.search("Failed to load resource", one)] == []


def active(page: Page) -> Locator:
    """Return the place of the segment in the editor."""
    return page.locator("#where")


def state(review: FakeReview, number: int) -> tuple[str, str]:
    one = review.segments[number]
    return one["text"], one["state"]


def idle(page: Page, review: FakeReview, number: int, wanted: tuple[str, str]) -> None:
    """Wait until the server has a segment as wanted."""
    for _ in range(600):
        if state(review, number) == wanted:
            return
        page.wait_for_timeout(50)
    assert state(review, number) == wanted


def test_a_document_is_reviewed_by_the_keyboard_alone(open_page, review):
    page = open_page()
    expect(active(page)).to_contain_text("line 1 · to do")
    expect(page.locator("#done")).to_have_text("1 of 7 done")
    page.keyboard.press("1")  # the first match, whole
    target = page.locator("#target")
    expect(target).to_have_value("Open %s in the <g1>window</g1>.")
    expect(target).to_be_focused()
    page.keyboard.press("Control+2")
    expect(target).to_have_value("Open %s.")
    page.keyboard.press("Control+z")
    expect(target).to_have_value("Open %s in the <g1>window</g1>.")
    page.keyboard.press("Control+Enter")
    expect(active(page)).to_contain_text("line 2 ")
    expect(target).to_be_focused()
    idle(page, review, 0, ("Open %s in the <g1>window</g1>.", "edited"))
    page.keyboard.press("Control+Enter")  # as it is
    idle(page, review, 1, ("Sentence 1 of the dog.", "accepted"))
    expect(page.locator("#done")).to_have_text("3 of 7 done")
    page.keyboard.type(" Yes.")
    page.keyboard.press("Escape")
    expect(page.locator("#editor")).to_be_focused()
    for key, line in (("ArrowDown", 4), ("j", 5), ("k", 4), ("ArrowUp", 3)):
        page.keyboard.press(key)
        expect(active(page)).to_contain_text(f"line {line} ")
    expect(target).to_have_value("Sentence 2 of the dog. Yes.")
    page.keyboard.press("e")
    page.keyboard.press("Control+Shift+Enter")
    idle(page, review, 2, ("Sentence 2 of the dog. Yes.", "open"))
    expect(active(page)).to_contain_text("line 4 ")
    page.keyboard.press("Alt+ArrowUp")
    expect(active(page)).to_contain_text("line 3 ")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    expect(page.locator(".row")).to_have_count(3)
    page.keyboard.press("a")
    expect(page.locator(".row")).to_have_count(7)
    page.keyboard.press("o")
    expect(page.locator(".row")).to_have_count(4)
    page.keyboard.press("Enter")
    for line in (4, 5, 6):
        page.keyboard.press("Control+Enter")
        expect(active(page)).to_contain_text(f"line {line} ")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#none")).to_have_text("All segments are done.")
    expect(page.locator("#done")).to_have_text("7 of 7 done")
    assert page.title() == "7/7 · messages.po · review"
    assert state(review, 6) == ("Sentence 6 of the dog.", "finished")  # never asked to change


def test_undo_takes_back_what_is_typed_and_then_what_was_saved(open_page, review):
    page = open_page()
    target = page.locator("#target")
    for text in ("A", "B"):
        target.fill(text)
        page.keyboard.press("Control+Enter")
    idle(page, review, 1, ("B", "edited"))
    expect(active(page)).to_contain_text("line 3 ")
    page.keyboard.type(" and")
    while target.input_value() != "Sentence 2 of the dog.":  # in one step, or in a few where an answer came between
        page.keyboard.press("Control+z")
    assert "POST /undo" not in review.asked
    page.keyboard.press("Control+z")
    expect(active(page)).to_contain_text("line 2 · to do")
    expect(target).to_have_value("Sentence 1 of the dog.")
    expect(page.locator("#announcement")).to_have_text("Undone: line 2.")
    expect(page.locator("#suggestions .suggested").first).to_have_text("B")  # to choose it again
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(active(page)).to_contain_text("line 1 · to do")
    assert [state(review, number) for number in (0, 1)] == [
        (GAPPED["text"], "open"),
        ("Sentence 1 of the dog.", "open"),
    ]
    page.keyboard.press("u")
    expect(page.locator("#message-text")).to_have_text("There is nothing to undo.")
    page.keyboard.press("d")
    expect(page.locator(".row")).to_have_count(1)


def test_terms_and_placeholders_are_checked_as_one_types(open_page):
    page = open_page()
    expect(page.locator("#flags li")).to_have_text("A code is missing: %s")
    missing = page.locator(".code.missing")
    target = page.locator("#target")
    target.fill("Open it.")
    expect(missing).to_have_count(4)
    assert missing.last.inner_text().split() == ["✗", "Menü", "=", "menu", "bar", "|", "menu", ",", "is", "missing"]
    expect(page.locator("#flags li")).to_have_text("A placeholder of the source is missing: %s, <g1>, </g1>")
    page.keyboard.press("End")
    for _ in range(4):
        count = missing.count()
        page.keyboard.press("Control+,")
        expect(missing).to_have_count(count - 1)
    expect(target).to_have_value("Open it.%s<g1></g1>menu bar")
    expect(page.locator("#flags li")).to_have_text("Nothing looks wrong.")
    expect(page.locator("#announcement")).to_have_text("Nothing looks wrong.")


def test_alternatives_and_links_come_on_demand_and_links_go_with_an_edit(open_page, review):
    source, text = "🐶 Hund läuft", "the 🐶 runs"
    review.segments[0] = segment(0, source, text, file="a dog ran")
    review.alternatives, review.links = ["a dog runs"], [[0, 1], [1, 0], [2, 2]]
    page = open_page()
    expect(page.locator("#suggestions .suggested")).to_have_text(["a dog ran", "a dog runs", source])
    expect(page.locator("#mirror .word")).to_have_count(3)
    after = ["Satz 1 vom Hund.", "Sentence 1 of the dog."]  # in the document
    expect(page.locator("#nearby-segments dd")).to_have_text(after)
    page.locator("#original .word").nth(2).hover()
    expect(page.locator("#mirror .linked")).to_have_text("runs")
    expect(page.locator("#reading")).to_have_text(re.compile("läuft.* became .*runs"))
    target = page.locator("#target")
    target.focus()
    page.keyboard.press("Home")
    expect(page.locator("#original .linked")).to_have_text("Hund")
    page.keyboard.type("All ")
    expect(page.locator("#mirror .word")).to_have_count(0)  # which word it comes from is not known
    page.keyboard.press("Control+2")
    expect(target).to_have_value("a dog runs")
    with page.context.expect_page() as opened:
        page.keyboard.press("Control+i")
    assert opened.value.url.endswith("/segments/0/inside")


def test_typed_text_survives_a_killed_server_and_a_closed_page(open_page, review):
    page = open_page()
    context, target = page.context, page.locator("#target")
    context.route("**/*", lambda route: route.abort("connectionrefused"))
    for text in ("One %s.", "Two."):
        target.fill(text)
        page.keyboard.press("Control+Enter")
    message = page.locator("#message-text")
    expect(message).to_contain_text("The server does not answer; 2 changes waiting here")
    target.fill("Three")
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator("#unsaved")).to_have_text("3 texts typed, not saved")
    page.close()
    context.unroute("**/*")
    page = open_page()  # the browser has them
    target = page.locator("#target")
    expect(target).to_have_value("One %s.")
    expect(page.locator("#unsaved")).to_have_text("3 texts typed, not saved")
    target.focus()
    context.route("**/*", lambda route: route.abort("connectionrefused"))
    for _ in range(3):
        page.keyboard.press("Control+Enter")
    assert [state(review, number)[1] for number in range(3)] == ["open"] * 3
    expect(page.locator("#message-text")).to_contain_text("3 changes waiting here")
    context.unroute("**/*")
    page.locator("#retry").click()
    for number, text in enumerate(("One %s.", "Two.", "Three")):
        idle(page, review, number, (text, "edited"))
    expect(page.locator("#message-text")).to_have_text("")
    expect(page.locator("#unsaved")).to_be_hidden()
    assert [one for one in review.asked if "POST" in one] == [f"POST /segments/{number}" for number in range(3)]
    assert page.evaluate("Object.keys(localStorage)") == []


@pytest.mark.parametrize("is_mine", [False, True])
def test_a_text_saved_by_another_tab_is_shown_and_not_overwritten(open_page, review, is_mine):
    one, other = open_page(), open_page()
    one.locator("#target").fill("Theirs %s.")
    one.keyboard.press("Control+Enter")
    idle(one, review, 0, ("Theirs %s.", "edited"))
    other.locator("#target").fill("Mine %s.")
    other.keyboard.press("Control+Enter")
    expect(other.locator("#message-text")).to_contain_text("Not saved, line 1: this segment was changed")
    assert state(review, 0) == ("Theirs %s.", "edited")
    other.locator("#unsaved").click()
    expect(other.locator("#target")).to_have_value("Mine %s.")
    expect(other.locator("#theirs")).to_have_text("Theirs %s.")
    other.locator("#keep-mine" if is_mine else "#take-theirs").click()
    expect(other.locator("#unsaved")).to_be_hidden()
    idle(other, review, 0, ("Mine %s." if is_mine else "Theirs %s.", "edited"))
    assert review.segments[0]["revision"] == 1 + is_mine


def test_a_text_that_the_format_cannot_have_stays_in_the_field_with_the_reason(open_page, review):
    page = open_page()
    review.refusals = [(422, {"error": "character 3 is no XML"}), (409, {"error": "it changed", "changed": True})]
    page.locator("#target").fill("A\x0b %s")
    expect(page.locator("#flags")).to_contain_text("This text cannot be saved: a control character")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#message-text")).to_have_text("Not saved, line 1: character 3 is no XML")
    expect(page.locator("#done")).to_have_text("1 of 7 done")
    expect(page.locator(".row").first).to_contain_text("not saved")
    page.locator("#unsaved").click()
    expect(page.locator("#target")).to_have_value("A\x0b %s")
    expect(page.locator("#problem")).to_contain_text("Character 3 is no XML")
    page.locator("#target").fill("A %s")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#message-text")).to_have_text("Not saved, line 1: it changed")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator("#target")).to_have_value("A %s")
    page.keyboard.press("Control+Enter")
    idle(page, review, 0, ("A %s", "edited"))


def test_segments_with_the_same_source_get_the_translation_and_can_be_accepted(open_page, review):
    for number in (3, 5):
        review.segments[number]["source"] = GAPPED["source"]
    page = open_page()
    target = page.locator("#target")
    target.fill("Open %s.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".row").nth(3)).to_contain_text("Open %s.")
    for line in (2, 3, 4, 5):
        expect(active(page)).to_contain_text(f"line {line} ")
        page.keyboard.press("Control+Enter")
    idle(page, review, 3, ("Open %s.", "accepted"))
    expect(active(page)).to_contain_text("line 6 ")
    expect(target).to_have_value("Open %s.")
    expect(page.locator("#message-text")).to_have_text("")


def test_segments_with_a_text_are_found(open_page, review):
    page = open_page()
    page.keyboard.press("/")
    page.keyboard.type("SATZ 3")  # no key of it has its meaning of the list
    page.keyboard.press("Enter")
    expect(page.locator(".row")).to_have_count(1)
    expect(active(page)).to_contain_text("line 4 ")
    page.keyboard.press("/")
    page.keyboard.type(" vom Mond")
    page.keyboard.press("Enter")
    expect(page.locator("#none")).to_be_visible()
    expect(page.locator("#none")).to_have_text("No segment of these has this text.")
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(page.locator(".row")).to_have_count(6)
    assert page.locator("#find").input_value() == ""


def test_ten_thousand_segments_are_shown_by_the_page_and_none_is_passed_over(open_page, review):
    long = "Ein langer Satz. " * 9_000
    review.segments = [segment(number, f"Satz {number}", f"Sentence {number}") for number in range(10_000)]
    review.segments[1] = segment(1, long, long)
    page = open_page()
    expect(page.locator("#count-open")).to_have_text("10,000")
    expect(page.locator(".row")).to_have_count(50)
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    assert page.locator("*").count() < 1_000
    for _ in range(49):
        page.keyboard.press("Alt+ArrowDown")
    expect(page.locator("#range")).to_have_text("50–99 of 9,999")  # line 1 is done
    expect(active(page)).to_contain_text("line 51 ")
    expect(page.locator(".row")).to_have_count(50)
    page.keyboard.press("Alt+ArrowUp")
    expect(active(page)).to_contain_text("line 51 ")
    expect(page.locator("#range")).to_have_text("1–50 of 9,999")
    assert page.locator("*").count() < 1_000


def test_texts_of_a_document_are_never_markup(open_page, review):
    flag = {"kind": HOSTILE, "meaning": HOSTILE, "severity": "serious", "detail": HOSTILE}
    match = {"source": HOSTILE, "target": f"1{HOSTILE}", "similarity": 0.8}
    fields = {"flags": [flag], "matches": [match], "place": HOSTILE, "context": HOSTILE, "placeholders": [HOSTILE]}
    term = {"source": HOSTILE, "target": [HOSTILE], "found": False}
    review.segments = [segment(number, HOSTILE, HOSTILE, terms=[term], **fields) for number in range(2)]
    review.name = HOSTILE
    review.alternatives, review.links = [f"2{HOSTILE}"], [[0, 0]]
    page = open_page()
    expect(page.locator("#suggestions .suggested")).to_have_text([f"1{HOSTILE}", f"2{HOSTILE}", HOSTILE])
    review.refusals = [(422, {"error": HOSTILE})]
    page.keyboard.press("Control+Enter")
    expect(page.locator("#message-text")).to_have_text(f"Not saved, {HOSTILE}: {HOSTILE}")
    assert page.locator("#name").inner_text() == HOSTILE
    assert page.locator("body :is(img, b, script:not([type]))").count() == 0


@pytest.mark.parametrize(
    ("width", "theme"), [(390, "light"), slow(1280, "dark"), slow(390, "dark"), slow(1280, "light")]
)
def test_page_fits_phones_and_breaks_no_rule_of_axe(open_page, review, width, theme):
    review.segments[2]["source"] = "Wort" * 100
    page = open_page(viewport={"width": width, "height": 844}, color_scheme=theme)
    expect(page.locator("#flags li")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert serious(Axe().run(page)) == []
    field, accept = (page.locator(one).bounding_box() for one in ("#target", "#accept"))
    assert accept["y"] + accept["height"] < 844  # with the field in sight
    assert field["y"] > page.locator("#header").bounding_box()["height"]
    page.locator("#accept").click()
    expect(active(page)).to_contain_text("line 2 ")
    page.locator("#after").click()
    expect(active(page)).to_contain_text("line 3 ")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.locator("#shortcuts-open").click()
    assert serious(Axe().run(page)) == []
    box = page.locator("#shortcuts").bounding_box()
    assert (box["x"] >= 0, box["x"] + box["width"] <= width) == (True, True)


def test_each_side_is_in_its_own_direction(open_page, review):
    review.languages, review.direction = ("en", "ar"), ("ltr", "rtl")
    match = {"source": "A dog.", "target": "كلب.", "similarity": 0.75}
    review.segments = [segment(number, "Two dogs.", "كلبان.", matches=[match]) for number in range(2)]
    page = open_page()
    expect(page.locator("#languages")).to_have_text("English → Arabic")
    sides = [("ltr", "en"), ("rtl", "ar")]
    for places in (("#original", "#target"), (".row:last-child .text >> nth=0", ".row:last-child .text >> nth=1")):
        for place, side in zip(places, sides, strict=True):
            own = page.locator(place)
            assert (own.get_attribute("dir"), own.get_attribute("lang")) == side
    assert page.locator("#suggestions .suggested").first.get_attribute("dir") == "rtl"
    assert page.locator("#suggestions .compared").first.get_attribute("dir") == "ltr"
    assert page.evaluate("getComputedStyle(document.querySelector('#mirror')).direction") == "rtl"
    review.languages = ("en", None)  # the text itself tells
    page.reload()
    assert page.locator("#target").get_attribute("dir") == "auto"


def test_progress_says_whether_the_document_is_written(open_page, review):
    page = open_page()
    ask = "document.dispatchEvent(new Event('visibilitychange', {bubbles: true}))"
    page.evaluate(ask)
    expect(page.locator("#saved")).to_have_text("written to messages.po")
    assert page.locator("#saved").get_attribute("title") == "/a/messages.po"
    review.problem = "messages.po was changed outside; nothing is written to it"
    page.evaluate(ask)
    expect(page.locator("#saved")).to_have_text(review.problem)
    expect(page.locator("#saved")).to_have_class(re.compile("serious"))
