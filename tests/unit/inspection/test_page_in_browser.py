"""The page in a real browser: every view by mouse and by keyboard, its numbers against the arrays, and axe's rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from model_kinds import KINDS
from playwright.sync_api import Page, expect

from browsers import listen, serious
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.inspection.compare import ExplanationComparison, compare
from clearhead.inspection.explain import explain, with_attribution
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.neighbours import ConsultedMemory, NeighbourStep
from clearhead.inspection.summary import summary_lines
from clearhead.translation.result import MemoryMatch
from clearhead.translation.translator import Translator

MOST_MILLISECONDS = 60_000
"""That a busy machine may take for anything."""
HOSTILE = "<script>alert(1)</script>"
TEXT = f"Ein\u2009Hund {HOSTILE} كلب 犬"


@pytest.fixture(scope="module")
def explained(make_translator) -> Explanation:
    return explanation_of(make_translator, TEXT, "A <b>dog</b>\u00a0runs")


@pytest.fixture(scope="module")
def compared(make_translator) -> ExplanationComparison:
    translator = make_translator(num_decoder_layers=2, num_heads=2)
    texts = ("Ein Hund rennt", "A dog runs"), ("Ein Katze rennt", "A cat runs")
    return compare(*(explain(translator, *pair, search=False) for pair in texts))


def explanation_of(make_translator: Callable[..., Translator], text: str, target: str) -> Explanation:
    info = {"settings": {"train": {"label_smoothing": 0.1}}}
    translator = make_translator(num_decoder_layers=2, num_heads=2, info=info)
    return with_attribution(explain(translator, text, target, beam_size=3))


@pytest.fixture
def open_page(browser, complaints, tmp_path) -> Iterator[Callable[..., Page]]:
    """Return what opens an explanation from disk; whatever the browser complains of fails the test."""
    pages: list[Page] = []

    def open_(explanation: Explanation | ExplanationComparison, **options: Any) -> Page:
        file: Path = tmp_path / "page.html"
        file.write_text(explanation.to_html(), encoding="utf-8")
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 800}, **options})
        page.set_default_timeout(MOST_MILLISECONDS)
        listen(page, complaints)
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield open_
    for page in pages:
        page.close()
    assert complaints == []


@pytest.fixture(scope="module")
def page_and_url(browser, explained, all_complaints, tmp_path_factory) -> Iterator[tuple[Page, str]]:
    """Return a page that shows nothing yet, and the address of the explanation."""
    file = tmp_path_factory.mktemp("explained") / "page.html"
    file.write_text(explained.to_html(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(MOST_MILLISECONDS)
    listen(page, all_complaints)
    yield page, file.as_uri()
    page.close()


@pytest.fixture
def page(page_and_url, complaints) -> Iterator[Page]:
    """Return the page of the explanation, loaded anew; whatever the browser complains of fails the test."""
    page, url = page_and_url
    page.goto(url)
    yield page
    page.goto("about:blank")
    assert complaints == []


def number(text: str) -> float:
    """Return the only number of this text that has a point, as people read it."""
    [found] = re.findall(r"−?\d+\.\d+", text)
    return float(found.replace("−", "-"))


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-").removesuffix(" %")) for text in texts]


def assert_shown(shown: Any, true: Any, *, digits: int) -> None:
    """Require that numbers are the true ones to the digits shown: within a half of the last, and what is packed."""
    np.testing.assert_allclose(shown, true, rtol=2**-15, atol=0.5001 * 10.0**-digits + 2**-15)


def choose_head(page: Page, attention: str, layer: int, head: int) -> None:
    page.locator(f"#heads-{attention} [role=row]").nth(layer).locator("[role=gridcell]").nth(head).click()


@pytest.mark.parametrize("attention", ["cross", "decoder"])
def test_a_cell_says_the_weight_of_the_array_and_the_row_its_arithmetic(page, explained, attention):
    layer, name = 1, 1
    head = explained.head(attention, layer, name)
    choose_head(page, attention, layer, name)
    page.locator("#head-map .cells").focus()
    page.keyboard.press("Home")
    page.keyboard.press("PageUp")
    row, column = 3, 2
    for key in ["ArrowDown"] * row + ["ArrowRight"] * column:
        page.keyboard.press(key)
    assert_shown(number(page.locator("#head-map .reading").inner_text()), head.weights[row, column], digits=4)
    page.locator("nav a", has_text="Arithmetic").click()
    seen = head.mask[row]
    rows = page.locator("#row-table tbody tr")
    assert rows.count() == seen.sum()
    products = head.queries[row] @ head.keys.T
    columns = page.evaluate(
        "[...document.querySelector('#row-table tbody').rows].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    shown = np.array([numbers([*cells[1:2], *cells[3:6]]) for cells in columns])
    # Scores come back from the weights, which packing rounds.
    np.testing.assert_allclose(shown[:, 0], products[seen], rtol=1e-4, atol=2e-3)
    np.testing.assert_allclose(shown[:, 1], head.scores[row][seen], rtol=1e-4, atol=2e-3)
    assert_shown(shown[:, 3], head.weights[row][seen], digits=4)
    page.locator("#temperature").focus()
    page.keyboard.press("Home")
    tempered = np.exp(head.scores[row][seen] / 0.1 - (head.scores[row][seen] / 0.1).max())
    shares = numbers(page.locator("#row-table td.weight").all_inner_texts())
    np.testing.assert_allclose(shares, tempered / tempered.sum(), atol=3e-3)
    page.locator("#temperature-reset").click()
    assert_shown(numbers(page.locator("#row-table td.weight").all_inner_texts()), head.weights[row][seen], digits=4)


def test_arrow_keys_move_between_heads_and_not_to_masked_keys(page):
    grid = page.locator("#heads-decoder [role=grid]")
    grid.locator("[role=gridcell]").first.click()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.locator("#head-title").inner_text() == "Decoder self-attention, layer 2, head 2"
    chosen = page.locator("[role=gridcell][aria-selected=true]")
    assert chosen.count() == 1
    assert chosen.get_attribute("tabindex") == "0"
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    page.locator("#head-map .cells").focus()
    page.keyboard.press("PageUp")
    page.keyboard.press("Home")
    before = page.locator("#head-map .reading").inner_text()
    page.keyboard.press("ArrowRight")  # the first row sees the first key alone
    assert page.locator("#head-map .reading").inner_text() == before


def test_a_step_marks_its_rows_in_every_view(page, explained):
    page.locator("nav a", has_text="Steps").click()
    rows = page.locator("#steps-table tbody tr")
    shown = [rows.nth(step).locator("td").nth(1).inner_text() for step in range(len(explained.steps))]
    for text, step in zip(shown, explained.steps, strict=True):
        assert text == ("<0.1 %" if step.probability < 0.0005 else f"{100 * step.probability:.1f} %")
    smoothing = page.locator("#smoothing").inner_text()
    assert "label smoothing 0.1" in smoothing
    assert set(re.findall(r"[\d.]+ %", smoothing)) == {"10 %", "90.0 %", "100 %"}  # 90.0 %: 1 - 0.1 + 0.1 / V
    page.locator("#steps-table button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert rows.nth(2).get_attribute("class") == "picked"
    assert (
        page.locator("#head-map .row-labels .picked").inner_text()
        == page.locator("#steps-table button").nth(2).inner_text()
    )
    assert page.locator("#beam-tree .picked.beam-step").count() == 0  # this text was given, and not found
    assert page.locator("#lens-table thead th").nth(2).get_attribute("class") == "picked"
    picked = page.locator("#attribution-gradients .row-labels .label").nth(2)
    assert "picked" in (picked.get_attribute("class") or "")
    assert page.locator("#heads-cross .head-grid").evaluate("grid => grid.style.getPropertyValue('--row')") == "2"
    page.locator("#lens-table tbody button").first.click()  # and back, from another view
    assert rows.nth(0).get_attribute("class") == "picked"


def test_the_steps_of_what_was_found_are_those_of_its_search(open_page, make_translator):
    explained = explain(make_translator(), "Ein Hund", beam_size=2)
    page = open_page(explained)
    page.locator("nav a", has_text="Search").click()
    found = next(node for node in explained.to_search()["nodes"] if node["is_chosen"] and node["step"] == 3)
    page.locator("#beam-tree button").nth(found["number"]).click()
    assert page.locator("#beam-tree .beam-step").nth(2).get_attribute("class") == "beam-step picked"
    assert page.locator("#steps-table tbody tr").nth(2).get_attribute("class") == "picked"
    page.locator("#steps-table button").nth(1).click()
    assert page.locator("#beam-tree .beam-step").nth(1).get_attribute("class") == "beam-step picked"
    assert page.locator("#beam-tree button.on-path").count() == 2


def test_the_tree_and_the_lens_say_what_the_arrays_say(page, explained):
    search = explained.to_search()
    page.locator("nav a", has_text="Search").click()
    nodes = page.locator("#beam-tree button")
    assert nodes.count() == len(search["nodes"])
    shown = numbers(page.locator("#finished-table tbody td:nth-child(3)").all_inner_texts())
    assert_shown(shown, [one["score"] for one in search["finished"]], digits=3)
    nodes.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    at = page.evaluate("[...document.querySelectorAll('#beam-tree button')].indexOf(document.activeElement)")
    assert search["nodes"][at]["step"] == 2
    said = page.locator("#beam-reading").inner_text()
    score, ranked = (float(one.replace("−", "-")) for one in re.findall(r"−?\d+\.\d{3}", said)[-2:])
    assert_shown([score, ranked], [search["nodes"][at][name] for name in ("score", "rank_score")], digits=3)
    percents = page.locator("#lens-table tbody tr small").all_inner_texts()
    lens = [step.candidates[0].probability for layer in reversed(explained.lens) for step in layer]
    for text, probability in zip(percents, lens, strict=True):
        assert text == "<0.1 %" if probability < 0.0005 else abs(numbers([text])[0] - 100 * probability) <= 0.051
    page.locator("#lens-table button").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#lens-reading").inner_text().startswith("Step 1, layer 1")


def test_attribution_and_statistics_are_those_of_the_arrays(page, explained):
    page.locator("nav a", has_text="Attribution").click()
    for name, values, digits in (
        ("attention", explained.alignment, 4),
        ("gradients", explained.attribution.gradients, 3),
        ("occlusion", explained.attribution.occlusion, 3),
    ):
        page.locator(f"#attribution-{name} .cells").focus()
        for key in ("PageDown", "End"):
            page.keyboard.press(key)
        assert_shown(number(page.locator(f"#attribution-{name} .reading").inner_text()), values[-1, -1], digits=digits)
    table = page.locator("#statistics-table")
    table.locator("thead button", has_text="entropy").click()
    assert table.locator("thead [aria-sort=descending]").inner_text().startswith("entropy")
    shown = numbers(table.locator("tbody td:nth-child(3)").all_inner_texts())
    true = np.concatenate([found["entropy"].ravel() for found in explained.head_statistics.values()])
    assert_shown(shown, np.sort(true)[::-1], digits=3)
    table.locator("tbody button").first.focus()
    page.keyboard.press("ArrowDown")
    name, place = table.locator("tbody button").nth(1).inner_text().split()
    assert page.locator("#head-title").inner_text().endswith("layer {}, head {}".format(*place.split(".")))
    assert name in explained.attentions


def test_all_heads_are_there_on_paper(page, explained):
    painted = "all => all.filter(one => one.width !== 300).length"  # as wide as a canvas is that nothing was drawn on
    thumbnails = page.locator(".thumbnail canvas")
    assert thumbnails.evaluate_all(painted) < thumbnails.count()
    page.pdf()
    assert thumbnails.evaluate_all(painted) == thumbnails.count()


def test_the_memory_shows_its_pairs_and_their_probability_at_each_step(open_page, explained):
    pairs = MemoryMatch("Ein Hund", f"{HOSTILE} dog", 0.754), MemoryMatch("Kein Hund", "كلب", 1 / 3)
    others = [NeighbourStep(0.0, None, 0.0)] * (len(explained.steps) - 2)
    memory = ConsultedMemory(pairs, 0.8, (NeighbourStep(0.9, 1, 0.7), NeighbourStep(0.6, 0, 0.45), *others))
    page = open_page(replace(explained, memory=memory), color_scheme="dark", viewport={"width": 390, "height": 844})
    page.locator("nav a", has_text="Memory").click()
    shown = page.locator("#memory-pairs tbody tr")
    texts = [["1", "75 %", f"Ein Hund\n{HOSTILE} dog"], ["2", "33 %", "Kein Hund\nكلب"]]
    assert [row.locator("td").all_inner_texts() for row in shown.all()] == texts
    assert shown.locator("[dir=rtl]").all_inner_texts() == ["كلب"]
    rows, reading = page.locator("#memory-steps tbody tr"), page.locator("#memory-reading")
    for number, (row, own, step) in enumerate(zip(rows.all(), explained.steps, memory.steps, strict=True)):
        mixed = own.probability + step.weight * (step.probability - own.probability)
        *cells, most = row.locator("td").all_text_contents()
        true = 100 * np.array([own.probability, step.probability, step.weight, mixed])
        assert_shown([0 if cell == "<0.1 %" else numbers([cell])[0] for cell in cells], true, digits=1)
        assert most == {0: "pair 2", 1: "pair 1"}.get(number, "none")
        row.locator("button").click()
        assert reading.inner_text().startswith(f"Step {number + 1}, ")
        assert reading.inner_text().endswith(f" {cells[3]}.")
        picked = shown.evaluate_all("rows => rows.map(row => row.className === 'picked')")
        assert picked == [step.pair == place for place in range(2)]
    rows.first.locator("button").focus()
    page.keyboard.press("ArrowDown")
    assert rows.evaluate_all("rows => rows.map(row => row.className)") == ["", "picked", *[""] * len(others)]
    assert page.locator("#head-map .row-labels .picked").inner_text() == rows.nth(1).locator("button").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert serious(Axe().run(page)) == []
    page.locator("#theme").click()
    assert serious(Axe().run(page, options={"runOnly": ["color-contrast"]})) == []


def test_without_pairs_of_a_memory_there_is_no_section_of_them(page):
    assert page.locator("#memory").is_hidden()
    assert page.locator("nav a", has_text="Memory").is_hidden()


def test_words_that_belong_together_light_up(page, explained):
    words = page.locator("#target-words button")
    assert words.count() == len(explained.target_words)
    words.first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#alignment-reading").inner_text().startswith(f"“\u2068{explained.target_words[1].text}")
    assert page.locator("#source-words button").evaluate_all("all => all.every(one => one.style.background)")
    assert page.locator("#source-words bdi[dir=rtl]").inner_text() == "كلب"


def test_links_are_those_of_the_head_that_aligns_and_arrows_follow_a_text_from_right_to_left(open_page, explained):
    aligned = replace(explained, source="كلب" + TEXT[3:], alignment_head=AlignmentHead(1, 0, is_reading=True))
    page = open_page(aligned)
    name = "head 1 of layer 2, at the step that reads a word"
    assert page.locator("#alignment-by option").first.inner_text() == f"attention: {name}"
    assert page.locator("#roles li", has_text="was chosen to align words").locator("button").inner_text() == "2.1"
    page.locator("nav a", has_text="Attribution").click()
    page.locator("#attribution-attention .cells").focus()
    for key in ("PageUp", "Home"):
        page.keyboard.press(key)
    # The row of the first token is that of the step which has read it, the second.
    assert_shown(
        number(page.locator("#attribution-attention .reading").inner_text()), aligned.cross[1, 0, 1, 0], digits=4
    )
    assert name in page.locator("#attribution-head").inner_text()
    words = page.locator("#source-words button")
    words.first.focus()
    page.keyboard.press("ArrowLeft")
    assert words.nth(1).evaluate("word => word === document.activeElement")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def chosen_link(page: Page) -> str:
    return page.locator("#alignment-by option:checked").inner_text()


def test_the_links_are_those_of_the_head_shown_large_and_follow_it(page, explained):
    columns = [token for word in explained.source_words for token in word.tokens]
    for layer, head in ((1, 0), (0, 1)):
        choose_head(page, "cross", layer, head)
        assert chosen_link(page) == f"attention: head {head + 1} of layer {layer + 1}"
        page.locator("#target-words button").nth(1).focus()
        weights = explained.cross[layer, head][list(explained.target_words[1].tokens)][:, columns]
        words = [weights[:, [columns.index(token) for token in word.tokens]].sum() for word in explained.source_words]
        best = int(np.argmax(words))
        share = 100 * words[best] / sum(words)
        assert (
            page.locator("#alignment-reading")
            .inner_text()
            .endswith(f"{explained.source_words[best].text}\u2069” ({share:.0f} %).")
        )
    choose_head(page, "encoder", 0, 0)  # it links no word with a translation
    assert chosen_link(page) == "attention: head 2 of layer 1, the last one chosen"


def test_page_opens_with_the_attention_and_the_clearest_head_that_the_summary_names(open_page, explained):
    for aligning in (AlignmentHead(), AlignmentHead(1)):
        shown = replace(explained, alignment_head=aligning)
        summary = "\n".join(summary_lines(shown))
        page = open_page(shown)
        assert chosen_link(page) == f"attention: {re.search('where it looks is told by (.*)', summary)[1]}"
        layer, head = re.search(r"(?s)the clearest head.*  cross (\d)\.(\d)", summary).groups()
        assert page.locator("#head-title").inner_text() == f"Cross-attention, layer {layer}, head {head}"


def test_the_page_opens_with_the_head_that_aligns_words(open_page, explained):
    for layer, head in ((0, 1), (1, 0)):
        page = open_page(replace(explained, alignment_head=AlignmentHead(layer, head, is_reading=False)))
        assert page.locator("#head-title").inner_text() == f"Cross-attention, layer {layer + 1}, head {head + 1}"
        assert chosen_link(page) == f"attention: head {head + 1} of layer {layer + 1}, at the step that writes a word"


def picked(page: Page, view: str, axis: str) -> list[int]:
    """Return the places of the labels that are marked."""
    labels = page.locator(f"{view} .{axis}-labels > .label")
    return labels.evaluate_all("all => all.flatMap((one, place) => one.classList.contains('picked') ? [place] : [])")


def test_a_token_chosen_anywhere_is_marked_in_every_view(page, explained):
    choose_head(page, "cross", 1, 1)
    page.locator("nav a", has_text="Attribution").click()
    maps = ("#head-map", "#attribution-attention", "#attribution-gradients")
    place = 2
    token = explained.source_words[place].tokens[0]
    page.locator("#source-words button").nth(place).click()
    assert page.locator("#source-words .chosen").inner_text() == explained.source_words[place].text
    assert [picked(page, view, "column") for view in maps] == [[token]] * 3
    assert picked(page, "#attribution-occlusion", "column") == [place]
    for attention, mark in (("cross", "--column"), ("encoder", "--row")):
        grid = page.locator(f"#heads-{attention} .head-grid")
        assert grid.evaluate("(grid, mark) => grid.style.getPropertyValue(mark)", mark) == str(token)
    page.locator("#head-map .column-labels > .label").nth(token + 1).click()
    assert [picked(page, view, "column") for view in maps] == [[token + 1]] * 3
    page.locator("#source-words button").nth(place).click()
    choose_head(page, "encoder", 0, 0)  # the same token, not the same column
    assert picked(page, "#head-map", "row") == [token]
    page.locator("#head-map .cells").focus()
    page.keyboard.press("ArrowUp")
    choose_head(page, "cross", 0, 0)
    assert [picked(page, view, "column") for view in maps] == [[token - 1]] * 3
    page.locator("nav a", has_text="Steps").click()
    page.locator("#steps-table button").nth(3).click()
    assert [picked(page, view, "row") for view in maps] == [[3]] * 3
    choose_head(page, "decoder", 0, 0)
    assert picked(page, "#head-map", "row") == [3]  # the row that writes the token, with its name
    shown = page.locator("#steps-table button").nth(3).inner_text()
    assert page.locator("#head-map .row-labels .picked small").inner_text() == f" → {shown}"
    page.locator("#head-map .column-labels > .label").last.click()  # which row 3 cannot see, but its own row can
    last = len(explained.decoder_tokens) - 1
    assert [picked(page, "#head-map", axis) for axis in ("row", "column")] == [[last], [last]]
    page.locator("#head-map .row-labels > .label").nth(3).click()
    assert page.locator("#target-words .chosen").count() == sum(3 in word.tokens for word in explained.target_words)
    page.locator("#attribution-gradients .cells").focus()
    for key in ("PageUp", "Home"):
        page.keyboard.press(key)
    choose_head(page, "cross", 1, 0)
    assert (picked(page, "#head-map", "row"), picked(page, "#head-map", "column")) == ([0], [0])


@pytest.mark.parametrize("attention", ["cross", "decoder"])
def test_a_score_and_an_output_can_be_computed_again_from_what_the_row_shows(page, explained, attention):
    choose_head(page, attention, 1, 0)
    page.locator("nav a", has_text="Arithmetic").click()
    lists = [numbers(text.split()) for text in page.locator("#row-strips .list").all_text_contents()]
    query, key, products = map(np.array, lists)
    assert len(query) == explained.head(attention, 1, 0).queries.shape[1]
    np.testing.assert_allclose(products, query * key, atol=2e-4)
    rows = page.locator("#row-products tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.innerText))"
    )
    shown = np.array([numbers(row) for row in rows])
    count = min(8, len(query))
    np.testing.assert_array_equal(shown, np.c_[1 : count + 1, query[:count], key[:count], products[:count]])
    sums = numbers(page.locator("#row-products tfoot td").all_inner_texts())
    assert sums[-1] == pytest.approx(query @ key, abs=1e-3)
    assert products[:count].sum() + sum(sums[:-1]) == pytest.approx(sums[-1], abs=1e-3)
    text = page.locator("#row-score").inner_text()
    scale = number(text.splitlines()[0])
    assert f"The scale is 1/√d_k = 1/√{len(query)} = " in text
    assert scale == pytest.approx(len(query) ** -0.5, abs=5e-5)
    score = float(text.split("= ")[-1].split()[0].replace("−", "-"))
    assert score == pytest.approx(sums[-1] * scale, abs=2e-3)
    assert (
        page.locator("#row-mask")
        .inner_text()
        .endswith(f"its mask is 0, and its score stays {score:.3f}.".replace("-", "−"))
    )
    table = page.locator("#row-table tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.innerText))"
    )
    scores, weights = (np.array(numbers([row[at] for row in table])) for at in (3, 5))
    np.testing.assert_allclose(weights, np.exp(scores) / np.exp(scores).sum(), atol=2e-3)
    chosen = page.locator("#row-table tbody tr.picked")
    assert numbers([chosen.locator("td").nth(2).inner_text()]) == [score]
    weight = numbers([chosen.locator(".weight").inner_text()])[0]
    values = page.locator("#row-values tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.innerText))"
    )
    value, weighted, output = np.array([numbers(row[1:]) for row in values]).T
    np.testing.assert_allclose(weighted, weight * value, atol=5e-4)
    row = picked(page, "#head-map", "row")[0]
    assert_shown(output, explained.head(attention, 1, 0).outputs[row][: len(output)], digits=4)


def test_entropy_temperature_and_the_lens_have_a_gloss_that_keys_open(page):
    for name, section in (("temperature", "Arithmetic"), ("entropy", "Arithmetic"), ("logit lens", "Logit lens")):
        page.locator("nav a", has_text=section).click()
        gloss = page.locator(".gloss", has_text=f"What is the {name}?")
        assert gloss.locator("p").is_hidden()
        gloss.locator("summary").focus()
        page.keyboard.press("Enter")
        assert gloss.locator("p").is_visible()


def test_every_legend_says_what_its_colours_are(page):
    for section in ("Arithmetic", "Logit lens", "Attribution"):
        page.locator("nav a", has_text=section).click()
    choose_head(page, "decoder", 0, 0)
    legends = page.locator("#alignment-legend, .legend").evaluate_all(
        "all => all.map(one => [...one.children].map(part => part.innerText))"
    )
    assert len(legends) == 7  # links, head, strips, tree, lens, and two of attribution
    assert all(label.strip() for labels in legends for label in labels)
    hatched = page.locator("#head-legend .hidden-cell, .causal canvas").evaluate_all(
        "all => all.every(one => getComputedStyle(one).backgroundImage.includes('repeating-linear-gradient'))"
    )
    assert hatched
    assert page.locator("#head-legend").inner_text().endswith("masked")


CUT = """() => [...document.querySelectorAll('header *, #page *:not(.picture, canvas, svg *), #tour *')].filter(one => {
    const {right, left} = one.getBoundingClientRect(), {overflowX, overflowY} = getComputedStyle(one);
    const isHiding = overflowX === 'hidden' && one.scrollWidth > one.clientWidth + 2
        || overflowY === 'hidden' && one.scrollHeight > one.clientHeight + 6;
    return one.clientWidth > 0 && (isHiding || !one.closest('.scroll') && (right > innerWidth + 0.5 || left < -0.5));
}).map(one => one.outerHTML.slice(0, 200))"""
"""Elements that hide a part of their content, or reach beyond the screen outside of what can be scrolled."""


def test_no_element_is_cut_off_on_a_phone(open_page, explained):
    words = ["␣Donaudampfschiff"[1:], *explained.target_tokens[1:]]
    page = open_page(replace(explained, target_tokens=words), viewport={"width": 390, "height": 844})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws all
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    choose_head(page, "decoder", 0, 0)
    cut = page.evaluate(CUT)
    assert cut == [], "\n".join(cut)


def test_the_tour_leads_through_the_page_with_the_numbers_of_the_sentence(page, explained):
    start, tour = page.locator("#tour-start"), page.locator("#tour")
    assert tour.is_hidden()
    start.click()
    assert tour.locator("[aria-live=polite]").count() == 1
    assert page.locator("#tour-next").evaluate("button => button === document.activeElement")
    stops = []
    while True:
        stops.append(page.locator("#tour-look").inner_text())
        assert page.locator("#tour-place").inner_text() == f"{len(stops)} of 12"
        part = page.locator(".toured")
        assert part.count() == 1
        box, view = part.bounding_box(), page.viewport_size
        assert box["y"] < view["height"] / 2
        assert box["y"] + box["height"] > 50
        if len(stops) == 12:
            break
        page.keyboard.press("Enter" if len(stops) % 2 else "ArrowRight")
    layer, head = (int(text) for text in re.findall(r"head (\d) of layer (\d)", stops[1])[0][::-1])
    chosen = explained.head("cross", layer - 1, head - 1)
    assert number(stops[4]) == pytest.approx(chosen.weights[0].max(), abs=1e-4)
    place = int(chosen.weights[0].argmax())
    score = float(re.findall(r"−?\d+\.\d+", stops[5])[-1].replace("−", "-"))
    assert score == pytest.approx(chosen.scores[0, place], abs=2e-3)
    spread = -(chosen.weights[0] * np.log(chosen.weights[0])).sum()
    assert f"The entropy is {spread:.3f} nats" in stops[6]
    first = re.findall(r"−?\d+\.\d+", stops[7])[0].replace("−", "-")
    assert float(first) == pytest.approx(chosen.outputs[0, 0], abs=2e-4)
    written = explained.steps[explained.num_told :]
    least = min(step.probability for step in written)
    assert (f"{100 * least:.1f} %" if least >= 0.0005 else "<0.1 %") in stops[8]
    search = explained.to_search()
    assert stops[9].startswith(f"Considered: {len(search['nodes'])} hypotheses; finished: {len(search['finished'])}.")
    step = explained.num_told + [step.probability for step in written].index(least)
    assert f"{explained.attribution.gradients[step].max():.2f} nats" in stops[11]
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tour-place").inner_text() == "11 of 12"
    page.keyboard.press("Escape")
    assert tour.is_hidden()
    assert page.locator(".toured").count() == 0
    assert start.evaluate("button => button === document.activeElement")
    start.click()
    for _ in range(12):
        page.locator("#tour-next").click()
    assert tour.is_hidden()


NAMED = {
    "One head": "#head-map .cursor",
    "From scores to weights": "#row-table .picked",
    "Step by step": "#steps-table .picked",
    "The search": "#beam-tree button.picked",
    "Layer by layer": "#lens-table td.picked",
    "What had an effect": "#attribution-gradients .cursor",
}
"""What stops of the tour name, by their titles."""


def test_the_tour_fits_a_phone_and_breaks_no_rule_of_axe(open_page, explained):
    against = replace(explained.attribution, gradients=-1 - abs(explained.attribution.gradients))
    page = open_page(replace(explained, attribution=against), viewport={"width": 390, "height": 844})
    page.locator("#tour-start").click()
    for _ in range(12):
        box = page.locator("#tour").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] > 0.5 * 844  # half of the screen is for the page
        assert box["y"] + box["height"] <= 844
        assert page.locator("details.part:has(.toured):not([open]), details.part.toured:not([open])").count() == 0
        if named := NAMED.get(page.locator("#tour-title").inner_text()):
            shown = page.locator(named).first.bounding_box()
            assert page.locator(".top").bounding_box()["height"] <= shown["y"] + 1
            assert shown["y"] + shown["height"] <= box["y"]
            assert 0 <= shown["x"] <= shown["x"] + shown["width"] <= 390
        if page.locator("#tour-place").inner_text() == "6 of 12":
            assert serious(Axe().run(page)) == []
        said = page.locator("#tour-look").inner_text()
        page.locator("#tour-next").click()
    assert re.fullmatch(r"No token made .+ more probable; .+ lowered its log-probability least: −\d\.\d\d nats\.", said)


def test_without_queries_keys_and_lens_the_tour_leaves_them_out(open_page, explained):
    page = open_page(replace(explained, model_pass=None, lens=None, attribution=None))  # as without PyTorch
    page.locator("#tour-start").click()
    titles = []
    while page.locator("#tour").is_visible():
        titles.append(page.locator("#tour-title").inner_text())
        assert page.locator("#tour-place").inner_text() == f"{len(titles)} of 9"
        page.locator("#tour-next").click()
    assert {"Query and key", "The sum of the values", "Layer by layer"}.isdisjoint(titles)
    assert titles[-1] == "All heads in numbers"


def test_two_compared_show_what_changed_and_their_numbers(open_page, compared):
    page = open_page(compared)
    first, second = compared.first, compared.second
    assert page.locator("#sides mark").all_inner_texts() == ["Hund", "dog", "Katze", "cat"]
    cells = page.evaluate(
        "[...document.querySelector('#tokens-table tbody').rows].map(r => [...r.cells].map(c => c.innerText))"
    )
    same = [numbers([row[at].replace("<0.1", "0.0") for at in (1, 3)]) for row in cells if row[4]]
    true = [[100 * probability for probability in pair.probabilities] for pair in compared.steps]
    assert_shown(same, true, digits=1)
    shown = [float(text) for text in page.locator("#distance-grids .distance").all_inner_texts()]
    order = [compared.heads[name] for name in ("cross", "encoder", "decoder")]
    assert_shown(shown, np.concatenate([values.ravel() for values in order]), digits=2)
    page.locator("#tokens-table button").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#tokens-table tr.picked").count() == 1
    assert "beside" in page.locator("#tokens-reading").inner_text()
    page.locator("#distance-grids [role=gridcell]").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.locator("#head-title").inner_text() == "Cross-attention, layer 2, head 2"
    page.locator("#first-map .cells").focus()
    for key in ("PageUp", "End"):  # the end token, which both have: the other map follows
        page.keyboard.press(key)
    for side, one in (("first", first), ("second", second)):
        assert_shown(number(page.locator(f"#{side}-map .reading").inner_text()), one.cross[1, 1, 0, -1], digits=4)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert serious(Axe().run(page)) == []
    page.locator("#theme").click()
    assert serious(Axe().run(page, options={"runOnly": ["color-contrast"]})) == []


def test_text_stays_text_and_what_is_invisible_has_a_sign(open_page, complaints, explained):
    invisible = {"\u2009": "thin space", "\u00a0": "no-break space", "\u200b": "zero-width space", "\t": "tab"}
    tokens = [HOSTILE, *invisible, *explained.source_tokens[len(invisible) + 1 :]]
    page = open_page(replace(explained, source_tokens=tokens))
    for place, name in enumerate(invisible.values(), start=1):
        sign = page.locator("#head-map .column-labels .label").nth(place).locator(".sign")
        assert sign.get_attribute("title") == name
        assert sign.inner_text().strip()
    assert page.locator("#head-map .column-labels .label").first.inner_text() == HOSTILE
    assert page.locator("script").count() == 2
    assert HOSTILE in page.title()
    assert page.locator("#page b").count() == 0
    # Even a script that found its way into the page would not run.
    refused = """() => new Promise(done => {
        document.addEventListener("securitypolicyviolation", () => done(true));
        document.body.append(Object.assign(document.createElement("script"), {textContent: "window.ran = true"}));
        setTimeout(() => done(window.ran !== true), 5000);
    })"""
    assert page.evaluate(refused)
    assert "Content Security Policy" in complaints.pop()


def test_no_rule_of_axe_is_broken_on_a_phone_in_light_and_dark(open_page, make_translator):
    translator = make_translator(num_encoder_layers=1, num_heads=2)
    explained = with_attribution(explain(translator, "Ein", "A", beam_size=2))
    page = open_page(explained, color_scheme="light", viewport={"width": 390, "height": 844})
    parts = page.locator("details.part:not([hidden])")
    assert parts.count() == page.locator("details.part:not([open]):not([hidden])").count() == 6  # folded on a phone
    page.locator("nav a", has_text="Statistics").click()
    assert page.locator("details.part[open]").get_attribute("id") == "statistics"
    for part in parts.all():
        part.evaluate("one => one.open = true")
        part.scroll_into_view_if_needed()
    expect(page.locator(".lens").first).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert serious(Axe().run(page)) == []
    colours = "[document.body, document.querySelector('.lens')].map(one => getComputedStyle(one).backgroundColor)"
    before = page.evaluate(colours)
    page.locator("#theme").click()
    assert all(one != other for one, other in zip(page.evaluate(colours), before, strict=True))
    assert serious(Axe().run(page, options={"runOnly": ["color-contrast"]})) == []  # the rest is as it was


def test_folded_page_is_at_most_six_screens_long_on_a_phone(open_page, make_translator):
    base = make_translator(num_encoder_layers=6, num_decoder_layers=6, num_heads=8, d_model=16)  # as in the paper
    page = open_page(explain(base, "Ein Hund rennt über die Wiese. " * 3), viewport={"width": 390, "height": 844})
    page.mouse.wheel(0, 2_000)  # what is drawn when it is looked at keeps its height
    assert page.evaluate("document.documentElement.scrollHeight") <= 6 * 844


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_model_of_one_side_shows_what_it_has(open_page, make_translator, kind):
    page = open_page(explain(make_translator(**KINDS[kind]), "Ein Hund"))
    page.locator("#tour-start").click()
    for _ in range(int(page.locator("#tour-place").inner_text().split()[-1])):
        assert page.locator(".toured").is_visible()
        assert "undefined" not in page.locator("#tour").inner_text()
        page.locator("#tour-next").click()
    assert page.locator("#tour").is_hidden()
    assert page.locator("h1").inner_text().endswith({"encoder": "read", "decoder": "went on"}[kind])
    assert page.locator("#head-grids .attention").count() == 1
    assert page.locator("#attribution").is_hidden()
    assert page.locator("#steps").is_hidden() == (kind == "encoder")
    page.locator("nav a", has_text="Statistics").click()
    assert page.locator("#statistics-table tbody tr").count() > 0
