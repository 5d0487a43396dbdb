"""The page at `/` in a real browser, over a real server: what it shows is what the interface answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect

from browsers import listen, serious
from clearhead.text.word_links import words_of
from every_run import slow

MOST_MILLISECONDS = 60_000
"""That a busy machine may take for anything."""
expect.set_options(timeout=MOST_MILLISECONDS)
TIMERS = (
    "const later = setTimeout; setTimeout = (run, wait, ...all) => later(run, wait === 250 ? 0 : 99 * wait, ...all)"
)
"""What is typed is asked for at once, and what is shown stays, except where a test stops the clock."""

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
SENTENCE = "Zwei Männer sitzen auf einer Bank."
TEXT = f"Ein kleiner Hund rennt.\n\n  犬が走る。 Ein Hund.\n{SENTENCE}"


@pytest.fixture(scope="module")
def new_context(browser, server, all_complaints) -> Callable[..., BrowserContext]:
    """Return a function that makes a browser that has kept nothing; it notes what that complains of."""

    def make(**options: Any) -> BrowserContext:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(MOST_MILLISECONDS)
        context.add_init_script(TIMERS)
        context.on("page", lambda page: listen(page, all_complaints))
        context.on("request", lambda one: one.url.startswith(server.url) or all_complaints.append(one.url))
        return context

    return make


@pytest.fixture
def open_page(new_context, server, complaints) -> Iterator[Callable[..., Page]]:
    """Return what opens the page in a browser of its own; whatever it complains of fails the test."""
    contexts = []

    def open_(*, prepare: Callable[[Page], object] = lambda _: None, **options: Any) -> Page:
        contexts.append(new_context(**options))
        page = contexts[-1].new_page()
        prepare(page)
        page.goto(server.url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def own_page(open_page) -> Page:
    """Return the page in a browser of its own, for what cannot be undone: clocks, permissions, what is kept."""
    page = open_page()
    choose(page, "de", "en")
    return page


@pytest.fixture(scope="module")
def shared_page(new_context) -> Iterator[Page]:
    context = new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def page(shared_page, server, complaints, monkeypatch) -> Iterator[Page]:
    """Return the page in a browser that has kept nothing, after others have used it."""
    listening = []
    on = shared_page.on

    def note_and_listen(event: Any, handler: Any) -> None:
        listening.append((event, handler))
        on(event, handler)

    shared_page.goto(server.url)
    choose(shared_page, "de", "en")
    monkeypatch.setattr(shared_page, "on", note_and_listen)
    yield shared_page
    for event, handler in listening:
        shared_page.remove_listener(event, handler)
    shared_page.unroute_all()
    shared_page.evaluate("localStorage.clear(); sessionStorage.clear()")
    shared_page.goto("about:blank")
    assert complaints == []


def choose(page: Page, source: str, target: str) -> None:
    page.locator("#from").select_option(source)
    page.locator("#into").select_option(target)


def translate(page: Page, text: str) -> Locator:
    """Type a text; return its translation, when it is there."""
    page.locator("#source").fill(text)
    translation = page.locator("#translation")
    expect(translation).to_have_attribute("aria-busy", "false")  # it was true before the text was written
    return translation


def answer(client, text: str, **fields: Any) -> dict[str, Any]:
    body = {"text": text, "source": "de", "target": "en", **fields}
    return client.post("/v1/translate", json=body).json()["translations"][0]


def stream(*translations: dict[str, Any]) -> str:
    """Return events as the server sends them."""
    usual = {"index": 0, "score": 0.0, "tokens": [], "alignment": [], "alternatives": [], "sentences": []}
    flags = {"truncated": False, "source_truncated": False, "output_truncated": False, "warnings": []}
    events = [("translation", {**usual, **flags, "warning_details": {}, **one}) for one in translations]
    end = {"model": "de-en", "source": "de", "target": "en", "confidence": None}
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in [*events, ("done", end)])


def answering(**answers: str) -> Callable[[Route], None]:
    """Return what answers a request for lines with what was made up for each."""

    def fulfil(route: Route) -> None:
        lines = route.request.post_data_json["text"]
        made = [{"index": index, "source": line, "text": answers[line]} for index, line in enumerate(lines)]
        route.fulfill(body=stream(*made), content_type="text/event-stream")

    return fulfil


def marked(page: Page, side: str) -> list[int]:
    """Return the numbers of the words of a side that are marked."""
    script = "words => words.flatMap((word, at) => word.matches('.pointed, .linked') ? [at] : [])"
    return page.locator(f"#{side} .word").evaluate_all(script)


def test_a_text_and_its_translation_are_linked_word_by_word(page, client):
    found = answer(client, TEXT, alignments=True)
    links = [tuple(link) for link in found["alignment"]]
    translation = translate(page, TEXT)
    assert translation.evaluate("one => one.textContent") == found["text"]
    assert page.locator("#mirror").evaluate("one => one.textContent") == TEXT
    for side, text in (("mirror", TEXT), ("translation", found["text"])):
        assert page.locator(f"#{side} .word").all_text_contents() == [text[a:b] for a, b in words_of(text)]
    source, target = links[-1]
    words = translation.locator(".word")
    words.nth(target).hover()
    assert marked(page, "mirror") == sorted(one for one, other in links if other == target)
    # The words of the source lie behind what is written in.
    box = page.locator("#mirror .word").nth(source).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert marked(page, "translation") == sorted(other for one, other in links if one == source)
    assert "became" in page.locator("#reading").inner_text()
    translation.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    last = len(words_of(found["text"])) - 2
    assert marked(page, "translation") == [last]
    assert marked(page, "mirror") == sorted(one for one, other in links if other == last)


def stop_clock(page: Page) -> None:
    """Let no time pass on the page but what `page.clock.run_for` lets."""
    page.clock.install(time=0)
    page.clock.pause_at(3_600)


def test_only_the_last_text_is_asked_for_and_what_was_asked_before_is_broken_off(own_page):
    page = own_page
    asked, broken = [], []
    page.on("request", lambda one: asked.append(one.post_data_json["text"][0]))
    page.on("requestfailed", lambda one: broken.append(one.post_data_json["text"][0]))
    stop_clock(page)

    def answer_the_second(route: Route) -> None:  # the first is never answered
        if route.request.post_data_json["text"] != ["Ein Hund"]:
            answering(**{"Ein Hund rennt": "second"})(route)

    page.route("**/v1/translate", answer_the_second)
    source, translation = page.locator("#source"), page.locator("#translation")
    source.press_sequentially("Ein Hund", delay=0)
    page.clock.run_for(249)
    assert asked == []
    with page.expect_request("**/v1/translate"):
        page.clock.run_for(1)
    source.press_sequentially(" rennt", delay=0)
    page.clock.run_for(250)
    expect(translation).to_have_text("second")
    assert (asked, broken) == (["Ein Hund", "Ein Hund rennt"], ["Ein Hund"])


def test_the_composition_of_an_input_method_is_translated_when_it_ends(own_page):
    page = own_page
    asked = []
    page.on("request", lambda one: one.url.endswith("/v1/translate") and asked.append(one.post_data_json["text"]))
    page.route("**/v1/translate", answering(日本="Japan"))
    stop_clock(page)
    page.locator("#source").click()
    tool = page.context.new_cdp_session(page)
    for text in ("n", "に", "にh", "にほ", "にほn", "にほん"):
        tool.send("Input.imeSetComposition", {"text": text, "selectionStart": len(text), "selectionEnd": len(text)})
        page.clock.run_for(1_000)
    assert asked == []
    tool.send("Input.insertText", {"text": "日本"})
    page.clock.run_for(1_000)
    expect(page.locator("#translation")).to_have_text("Japan")
    assert asked == [["日本"]]


def test_a_line_that_is_known_is_not_asked_for_again(page):
    asked = []
    page.on("request", lambda one: one.url.endswith("/v1/translate") and asked.append(one.post_data_json["text"]))
    translate(page, "Ein Hund.\nZwei Hunde.\n")
    translate(page, "Ein Hund.\nZwei Hunde.\nEin Mann.")
    assert asked == [["Ein Hund.\n", "Zwei Hunde.\n"], ["Ein Mann."]]
    page.keyboard.press("Control+Enter")
    expect(page.locator("#translation")).to_have_attribute("aria-busy", "false")
    assert asked[2:] == [["Ein Hund.\n", "Zwei Hunde.\n", "Ein Mann."]]


def choices(client, text: str) -> list[str]:
    """Return the translations that a sentence can have, without the white space around them."""
    found = [answer(client, text)["text"], *(one["text"] for one in answer(client, text, num_best=5)["alternatives"])]
    return list(dict.fromkeys(one.strip() for one in found))


def test_a_sentence_has_alternatives_and_can_be_looked_into(page, client):
    translation = translate(page, TEXT)
    [own, other, *_] = wanted = choices(client, SENTENCE)
    before = translation.evaluate("one => one.textContent")
    translation.locator(".sentence").nth(2).locator(".word").first.click()
    expect(page.locator("#sentence-source")).to_have_text(SENTENCE)
    shown = page.locator("#sentence-choices button")
    expect(shown).to_have_count(len(wanted))
    assert [text.split() for text in shown.all_text_contents()] == [text.split() for text in wanted]
    shown.nth(1).click()
    expect(shown.nth(1)).to_have_attribute("aria-pressed", "true")
    assert translation.evaluate("one => one.textContent") == before[: before.rindex(own)] + other
    with page.context.expect_page() as opened:
        page.locator("#inside").click()
    inside = opened.value
    expect(inside.locator("#page")).to_be_visible()
    assert "".join(inside.locator("#source-words bdi").all_text_contents()) == SENTENCE.replace(" ", "")
    assert json.loads(inside.locator("#explanation").text_content())["translation"] == other
    inside.locator("nav a", has_text="Arithmetic").click()
    expect(inside.locator("#row-strips .strip")).not_to_have_count(0)  # queries, keys and values are there
    inside.reload()
    expect(inside.locator("#page")).to_be_visible()
    inside.close()


@pytest.mark.parametrize("is_split", [False, True])
def test_another_translation_of_a_sentence_leaves_the_links_of_the_others(page, is_split):
    """Whether the server sends a line whole or its sentences one by one."""
    parts = [("Ein Hund.", "A dog."), (" Zwei Hunde.", " Two dogs.")]
    line = {
        "source": "Ein Hund. Zwei Hunde.",
        "text": "A dog. Two dogs.",
        "alignment": [[0, 0], [1, 1], [2, 2], [3, 3]],
    }
    line["sentences"] = [{"source": source.strip(), "text": text.strip(), "score": 0.0} for source, text in parts]
    split = [{"source": source, "text": text, "alignment": [[0, 0], [1, 1]]} for source, text in parts]
    others = {"translations": [{"alternatives": [{"text": "This is one dog."}]}]}

    def fulfil(route: Route) -> None:
        if route.request.post_data_json.get("stream"):
            route.fulfill(body=stream(*(split if is_split else [line])), content_type="text/event-stream")
        else:
            route.fulfill(json=others)

    page.route("**/v1/translate", fulfil)
    translation = translate(page, line["source"])
    assert translation.locator(".sentence").all_inner_texts() == ["A dog.", "Two dogs."]
    translation.locator(".sentence").first.click()
    page.locator("#sentence-choices button").nth(1).click()
    expect(translation).to_have_text("This is one dog. Two dogs.")
    words = translation.locator(".word")
    for word, source in ((0, []), (3, []), (4, [2]), (5, [3])):
        words.nth(word).hover()
        assert marked(page, "mirror") == source


def test_a_line_that_is_not_whole_yet_has_no_other_sentences(own_page):
    """A choice among them would be kept as the whole line."""
    page = own_page
    begun, _, _ = stream({"source": "Ein Hund.", "text": "A dog."}).partition("event: done")
    page.route("**/v1/translate", lambda route: route.fulfill(body=begun, content_type="text/event-stream"))
    stop_clock(page)
    page.locator("#source").fill("Ein Hund. Zwei Hunde.")
    page.clock.run_for(250)
    expect(page.locator("#message-text")).to_contain_text("The server broke off")
    page.locator("#translation .word").first.click()
    expect(page.locator("#announcement")).to_have_text("The rest of this line is not translated yet.")
    expect(page.locator("#sentence")).to_be_hidden()


def test_a_file_that_is_dropped_is_translated_and_one_that_cannot_be_is_refused(page, client, complaints):
    content = "Ein Hund.\n\nZwei Männer.\n"
    url = client.post("/translate_file", files={"file": ("a.txt", content)}, data={"source": "de", "target": "en"})
    wanted = client.get(url.json()["translatedFileUrl"]).text
    counts = f"2 segments, {url.json()['toCheck']} to check"
    files = "text => { const all = new DataTransfer(); all.items.add(new File([text], 'Mein Text.txt')); return all; }"
    data = page.evaluate_handle(files, content)
    page.dispatch_event("body", "dragenter", {"dataTransfer": data})
    expect(page.locator("#drop")).to_be_visible()
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    expect(page.locator("#drop")).to_be_hidden()
    with page.expect_download() as download:
        page.locator("#file-list a").first.click()
    assert download.value.suggested_filename == "Mein_Text_en.txt"
    assert download.value.path().read_text(encoding="utf-8") == wanted
    with page.context.expect_page() as opened:
        page.locator("#file-list a", has_text=counts).click()
    expect(opened.value.locator("h1")).to_have_text("Translation report: Mein_Text.txt")
    opened.value.close()
    page.locator("#file").set_input_files(
        [
            {"name": "<img src=x onerror=alert(1)>.exe", "mimeType": "", "buffer": b"x"},
            {"name": "broken.docx", "mimeType": "", "buffer": b"x"},
            {"name": "empty.html", "mimeType": "", "buffer": b""},
        ]
    )
    rows = page.locator("#file-list li")
    expect(rows.nth(3)).to_contain_text("the file is empty")
    expect(rows.nth(1)).to_contain_text(".exe files are not read as documents")
    expect(rows.nth(2)).to_contain_text("broken.docx")
    expect(rows.nth(2).locator(".serious")).not_to_be_empty()
    large = page.evaluate_handle(files, "x" * 10_485_761)
    page.dispatch_event("body", "drop", {"dataTransfer": large})
    expect(rows.nth(4)).to_contain_text("10,485,760 are the most")
    rows.nth(1).get_by_text("Remove").click()
    expect(rows).to_have_count(4)
    assert [one for one in complaints if "400" in one] == complaints
    complaints.clear()


def test_page_escapes_text_and_shows_warnings(page, complaints):
    usual = {"source": HOSTILE, "text": HOSTILE, "warnings": ["numbers", "new_kind"], "truncated": True}
    said = {**usual, "source_truncated": True, "warning_details": {"numbers": "12", "new_kind": HOSTILE}}
    body = stream(said)
    page.route("**/v1/translate", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    translation = translate(page, HOSTILE)
    assert translation.inner_text() == HOSTILE
    assert page.locator("#notes li").all_inner_texts() == [
        "The text was cut: it is longer than the model reads",
        "A number of the source is missing, or a number is invented: 12",
        f"New_kind: {HOSTILE}",
    ]
    page.locator("#history summary").click()
    expect(page.locator("#history-list")).to_contain_text(HOSTILE)
    assert page.locator("main :is(script, img)").count() == 0
    page.unroute_all()
    page.route("**/v1/translate", lambda route: route.fulfill(status=500, json={"error": HOSTILE}))
    page.keyboard.press("Control+Enter")
    expect(page.locator("#message-text")).to_have_text(f"{HOSTILE}.")
    assert ["500" in one for one in complaints] == [True]
    complaints.clear()


def test_a_sentence_that_looks_wrong_is_marked_with_the_reason(page):
    one = {
        "source": "Es sind 12.",
        "text": "There are.",
        "sentences": [{"source": "Es sind 12.", "text": "There are."}],
    }
    wrong = {"warnings": ["numbers"], "warning_details": {"numbers": "12"}, "alignment": [[0, 0]]}
    body = stream({**one, **wrong}, {"index": 1, "source": "Gut.", "text": "Good."})
    page.route("**/v1/translate", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    translation = translate(page, "Es sind 12.\nGut.")
    reason = "A number of the source is missing, or a number is invented: 12"
    flagged = translation.locator(".flagged")
    expect(flagged).to_have_text("There are.")
    expect(flagged).to_have_attribute("data-reason", reason)
    page.locator("#translation .word").first.hover()
    shown = page.locator("#reason")
    expect(shown).to_have_text(reason)
    expect(shown).to_be_visible()
    page.locator("#translation .word").last.hover()
    expect(shown).to_be_hidden()
    page.locator("#source").press("Tab")
    translation.focus()
    page.keyboard.press("Home")
    expect(shown).to_be_visible()
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()
    expect(page.get_by_role("list", name="What looks wrong")).to_contain_text("12")


def test_the_history_stays_in_the_browser_until_it_is_cleared_or_off(own_page):
    page = own_page
    entries = page.locator("#history-list button")
    translate(page, "Ein Hund.")
    translate(page, "Ein Hund. Zwei")  # typed on
    translate(page, "犬が走る。")
    page.locator("#history summary").click()
    expect(entries).to_have_count(2)
    page.reload()
    expect(page.locator("#into")).to_have_value("en")  # the languages are remembered as well
    page.locator("#history summary").click()
    expect(entries.nth(1)).to_contain_text("German → English")
    entries.nth(1).click()
    expect(page.locator("#source")).to_have_value("Ein Hund. Zwei")
    expect(page.locator("#translation .word")).not_to_have_count(0)
    page.locator("#history-clear").click()
    expect(entries).to_have_count(0)
    kept = "Object.entries(localStorage).join()"
    assert "Hund" not in page.evaluate(kept)
    page.locator("#history-on").uncheck()
    translate(page, "Zwei Hunde.")
    expect(entries).to_have_count(0)
    page.reload()
    assert "Hund" not in page.evaluate(kept)
    assert not page.locator("#history-on").is_checked()
    page.locator("#history summary").click()
    other = page.context.new_page()  # a second tab; what one clears, the other does not keep again
    other.goto(page.url)
    other.locator("#history summary").click()
    other.locator("#history-on").check()
    expect(page.locator("#history-on")).to_be_checked()
    translate(page, "Zwei Hunde.")
    expect(other.locator("#history-list button")).to_have_count(1)
    other.locator("#history-clear").click()
    expect(entries).to_have_count(0)


def test_translation_page_works_by_keyboard_alone(own_page, client):
    page = own_page
    translation = translate(page, "Ein Hund.")
    wanted = choices(client, "Ein Hund.")
    page.locator("#source").focus()
    focused = "document.activeElement.id"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "clear"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "translation"
    assert marked(page, "translation") == [0]
    page.keyboard.press("Enter")
    expect(page.locator("#sentence-choices button")).to_have_count(len(wanted))
    assert page.evaluate(focused) == "sentence-title"
    for _ in range(3):  # "Close", then the first two
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert translation.evaluate("one => one.textContent") == wanted[1]
    page.keyboard.press("Escape")
    expect(page.locator("#sentence")).to_be_hidden()
    assert page.evaluate(focused) == "translation"
    page.keyboard.press("Control+Enter")
    expect(translation).to_have_attribute("aria-busy", "false")
    assert marked(page, "translation") == [0]  # though the words are new
    with page.context.expect_page() as opened:
        page.keyboard.press("Shift+Enter")
    opened.value.close()
    page.keyboard.press("Control+/")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#shortcuts")).to_be_hidden()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("Control+Shift+Enter")
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == answer(client, "Ein Hund.")["text"]
    page.keyboard.press("Control+Shift+S")
    assert [page.locator(f"#{side}").input_value() for side in ("from", "into")] == ["en", "de"]
    expect(page.locator("#source")).to_have_value(answer(client, "Ein Hund.")["text"].rstrip())


LANGUAGES = [
    {"code": "ar", "name": "Arabic", "targets": ["en"]},
    {"code": "de", "name": "German", "targets": ["ar"]},
    {"code": "en", "name": "English", "targets": []},
]
MODELS = [
    {"name": "ar-en", "sources": ["ar"], "targets": ["en"], "parameters": 1},
    {"name": "de-ar", "sources": ["de"], "targets": ["ar"], "parameters": 1},
]


def test_page_shows_text_direction_and_unserved_language_pairs(open_page):
    def serve_others(page: Page) -> None:
        page.route("**/languages", lambda route: route.fulfill(json=LANGUAGES))
        page.route("**/v1/models", lambda route: route.fulfill(json={"models": MODELS}))
        page.route("**/v1/translate", answering(**{"Ein Hund.": "كلب يجري", "كلب يجري": "A dog."}))
        page.route("**/detect", lambda route: route.fulfill(json=[{"language": "ar", "confidence": 90.0}]))

    page = open_page(prepare=serve_others)
    expect(page.locator("#model-choice")).to_be_hidden()
    choose(page, "de", "ar")
    translation = translate(page, "Ein Hund.")
    direction = "one => getComputedStyle(one).direction"
    assert [page.locator(f"#{one}").evaluate(direction) for one in ("source", "translation")] == ["ltr", "rtl"]
    translation.focus()
    page.keyboard.press("ArrowLeft")  # onward, in this script
    assert marked(page, "translation") == [1]
    problem = (
        "No model translates Arabic into German: here Arabic is translated into English, and German from no language."
    )
    expect(page.locator("#swap")).to_have_attribute("aria-disabled", "true")
    expect(page.locator("#swap")).to_have_attribute("title", f"Swap the languages: not possible. {problem}")
    expect(page.locator("#pairs")).to_have_text("Here: Arabic into English; German into Arabic.")
    groups = page.locator("#into optgroup")
    assert [groups.nth(number).get_attribute("label") for number in range(2)] == ["From German", "No model from German"]
    assert [groups.nth(number).inner_text().strip() for number in range(2)] == ["Arabic", "English (from Arabic)"]
    page.locator("#from").select_option("ar")
    assert groups.evaluate_all("all => all.map((one) => one.label)") == ["From Arabic", "No model from Arabic"]
    page.locator("#from").select_option("de")
    page.locator("#into").select_option("ar")
    page.locator("#swap").click(force=True)  # it says why
    expect(page.locator("#message-text")).to_have_text(problem)
    expect(page.locator("#file-open")).to_be_enabled()
    page.locator("#into").select_option("en")
    problem = "No model translates German into English: here German is translated into Arabic, and English from Arabic."
    for text in ("Ein Hund.", ""):
        page.locator("#source").fill(text)
        expect(page.locator("#message-text")).to_have_text(problem)
        expect(page.locator("#file-note")).to_have_text(problem)
    expect(page.locator("#file-open")).to_be_disabled()
    choose(page, "auto", "ar")
    page.locator("#source").fill("كلب يجري")
    expect(translation).to_have_text("A dog.")  # detected as Arabic, which goes into English
    assert page.locator("#from option:checked").inner_text() == "Arabic (detected)"
    assert page.locator("#source").evaluate(direction) == "rtl"


def test_terms_go_with_the_text_where_the_server_takes_them(open_page):
    asked = []

    def serve_others(page: Page) -> None:
        applied = {"name": "", "size": 1_200, "model": "de-ar", "source": "de", "target": "ar"}
        models = {"models": MODELS, "terms": [{"name": "cars", "size": 3}], "default_terms": [applied]}
        page.route("**/languages", lambda route: route.fulfill(json=LANGUAGES))
        page.route("**/v1/models", lambda route: route.fulfill(json=models))
        page.on("request", lambda one: one.method == "POST" and asked.append(one.post_data_json))
        use = {"source": "Hund", "target": "كلب", "form": "", "reason": "unmet"}
        said = {"source": "Ein Hund.", "text": "x", "terms": [use]}
        answer = {"body": stream(said), "content_type": "text/event-stream"}
        page.route("**/v1/translate", lambda route: route.fulfill(**answer))

    page = open_page(prepare=serve_others)
    choose(page, "de", "ar")
    page.locator("#terms summary").click()
    page.locator("#terms-list").select_option("own")
    page.locator("#terms-own").fill("Hund = كلب | كلاب\nKatze\n= x\nMaus = |")
    translate(page, "Ein Hund.")
    expect(page.locator("#terms-problem")).to_contain_text("“Katze”, “= x”, “Maus = |”")
    expect(page.locator("#notes")).to_have_text("The term “\u2068Hund\u2069” is not translated as “\u2068كلب\u2069”")
    page.locator("#terms-list").select_option("list cars")
    expect(page.locator("#translation")).to_have_attribute("aria-busy", "false")
    page.locator("#terms-list").select_option("")
    expect(page.locator("#translation")).to_have_attribute("aria-busy", "false")
    assert [one.get("terms") for one in asked] == [[{"source": "Hund", "target": ["كلب", "كلاب"]}], "cars", None]
    # What the server applies to these languages is shown, also while the terms are folded.
    expect(page.locator("#terms-list option:checked")).to_have_text("the server's (1,200)")
    expect(page.locator("#terms summary")).to_have_text("Terms the server's (1,200)")
    choose(page, "ar", "en")
    expect(page.locator("#terms-list option:checked")).to_have_text("none")
    expect(page.locator("#terms summary")).to_have_text("Terms")


def test_page_requests_a_model_without_languages_by_its_name(open_page):
    asked = []

    def serve_others(page: Page) -> None:
        page.route("**/languages", lambda route: route.fulfill(json=[]))
        models = [{"name": "mine", "sources": [], "targets": [], "parameters": 1}]
        page.route("**/v1/models", lambda route: route.fulfill(json={"models": models}))
        page.on("request", lambda one: one.method == "POST" and asked.append(one.post_data_json))
        page.route("**/v1/translate", answering(a="b"))

    assert translate(open_page(prepare=serve_others), "a").inner_text() == "b"
    assert {**asked[0], "alignments": 0, "stream": 0} == {"model": "mine", "text": ["a"], "alignments": 0, "stream": 0}


def test_page_shows_refusals_and_retries_where_useful(own_page, complaints):
    page = own_page
    message, translation = page.locator("#message-text"), page.locator("#translation")
    stop_clock(page)
    asked = []
    page.on("request", lambda one: asked.append(one.url))
    busy = {"status": 429, "headers": {"retry-after": "5"}, "json": {"error": "Slowdown: 2 per minute"}}
    page.route("**/v1/translate", lambda route: route.fulfill(**busy))
    page.locator("#source").fill("Ein Hund.")
    page.clock.run_for(250)
    expect(message).to_have_text("Slowdown: 2 per minute. Asking again in 5 seconds.")
    page.keyboard.press("Escape")
    expect(message).to_have_text("")  # and is not asked again by itself
    page.clock.run_for(10_000)
    assert len(asked) == 1
    page.route("**/v1/translate", lambda route: route.fulfill(status=400, json={"error": "no such model"}))
    page.keyboard.press("Control+Enter")
    page.clock.run_for(1)
    expect(message).to_contain_text("o such model")
    expect(translation).to_have_attribute("aria-busy", "false")  # nothing more comes
    page.route("**/v1/translate", lambda route: route.fulfill(**busy))
    page.keyboard.press("Control+Enter")
    page.clock.run_for(1)
    expect(message).to_have_text("Slowdown: 2 per minute. Asking again in 5 seconds.")
    asked.clear()
    page.locator("#source").fill("Ein Hund rennt.")  # no reason to ask earlier
    page.clock.run_for(4_990)
    assert asked == []
    page.route("**/v1/translate", lambda route: route.abort())
    page.evaluate("Object.defineProperty(navigator, 'onLine', {value: true})")  # this machine may have no network
    page.clock.run_for(20)
    expect(message).to_have_text("The server does not answer. Asking again in 2 seconds.")
    keys = []

    def ask_for_key(route: Route) -> None:
        keys.append(route.request.headers.get("authorization"))
        if keys[-1] == "Bearer secret":
            route.continue_()
        else:
            route.fulfill(status=403, json={"error": "Invalid API key"})

    page.route("**/v1/translate", ask_for_key)
    page.locator("#retry").click()
    page.clock.run_for(10)
    expect(message).to_have_text("The server does not know this API key.")
    page.locator("#key").fill("secret")
    page.keyboard.press("Enter")
    page.clock.run_for(10)
    expect(translation.locator(".word")).not_to_have_count(0)
    expect(message).to_have_text("")
    assert keys == [None, "Bearer secret"]
    kept = "[localStorage, sessionStorage].map(one => JSON.stringify(one).includes('secret'))"
    assert page.evaluate(kept) == [False, True]
    assert all(one.startswith("Failed to load resource") for one in complaints)
    complaints.clear()


def test_a_text_that_is_too_long_is_not_asked_for(page, server):
    asked = []
    page.on("request", lambda one: asked.append(one.url))
    page.locator("#source").fill("a😀" * 10_000 + "b")
    expect(page.locator("#count")).to_have_text("20,001 of 20,000 characters")
    page.locator("#source").fill("ein Hund " * 100_000)
    expect(page.locator("#message")).to_contain_text("more than 20,000 characters")
    expect(page.locator("#count")).to_have_text("900,000 of 20,000 characters")
    assert asked == []


@pytest.mark.parametrize("width", [1280, slow(390)])
def test_no_rule_of_axe_is_broken_in_light_and_dark(open_page, width):
    page = open_page(viewport={"width": width, "height": 844}, color_scheme="light")
    choose(page, "de", "en")
    translate(page, TEXT).locator(".word").first.click()
    expect(page.locator("#sentence-choices button")).not_to_have_count(0)
    page.locator("#history summary").click()
    page.locator("#translation .word").nth(1).hover()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert serious(Axe().run(page)) == []
    if width < 1280:  # which has other boxes, in the same colours
        return
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    assert serious(Axe().run(page, options={"runOnly": ["color-contrast"]})) == []
    page.locator("#shortcuts-open").click()
    assert serious(Axe().run(page)) == []
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
