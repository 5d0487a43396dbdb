"""The page: self-contained, escaped, and true to the numbers it was given."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from clearhead.errors import DataError
from clearhead.inspection.explain import Candidate, Explanation, Step
from clearhead.inspection.page import MAX_PAGE_TOKENS

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Check that tags nest, and collect tags, attributes and the contents of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        else:
            self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def distributions(*shape: int) -> np.ndarray:
    weights = np.random.default_rng(5).random(shape)
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


def explanation(source: list[str], target: list[str], **changes: Any) -> Explanation:
    num_source, num_target = len(source), len(target)
    values = {
        "source": "".join(source[:-1]).strip(),
        "translation": "".join(target[:-1]).strip(),
        "score": -1.25,
        "source_tokens": source,
        "target_tokens": target,
        "encoder": distributions(3, 2, num_source, num_source),
        "decoder": distributions(1, 2, num_target, num_target),
        "cross": distributions(1, 2, num_target, num_source),
        "steps": [Step(token, 0.75, (Candidate(token, 0.75), Candidate(" so", 0.00001))) for token in target],
    }
    return Explanation(**{**values, **changes})


def data_of(page: str) -> dict[str, Any]:
    return json.loads(read(page).scripts[0])


HOSTILE = "<script>alert('x')</script><!-- & \"$title ${data}\" -->"


def test_the_page_needs_nothing_from_outside():
    page = explanation([" a", " dog", "</s>"], [" Hund", "</s>"]).to_html()
    assert "http" not in page
    assert "//" not in page.replace("</", "")
    assert "@import" not in page
    assert "url(" not in page
    for tag, attributes in read(page).tags:
        assert tag not in {"link", "img", "iframe", "object", "embed"}
        assert "src" not in attributes
        assert "href" not in attributes


def test_text_is_shown_and_never_run():
    page = explanation([HOSTILE, " dog", "</s>"], [HOSTILE, " Hund", "</s>"]).to_html()
    assert "alert('x')" not in re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
    reader = read(page)
    assert sum(tag == "script" for tag, _ in reader.tags) == 2  # the data and the page's own
    shown = "".join(reader.text)
    assert HOSTILE + " dog" in shown
    data = data_of(page)
    assert data["source"][0] == HOSTILE.replace(" ", "␣")
    assert data["written"][0] == HOSTILE.replace(" ", "␣")


def test_the_data_cannot_end_its_script_element():
    page = explanation(["</script>", "<!--<script>", "</s>"], ["</SCRIPT >", "</s>"]).to_html()
    start = page.index('id="data">') + len('id="data">')
    assert "<" not in page[start : page.index("</script>", start)]
    assert data_of(page)["source"] == ["</script>", "<!--<script>", "</s>"]


def test_the_page_holds_every_layer_and_head_in_thousandths():
    explained = explanation([" a", " dog", " runs", "</s>"], [" Hund", "</s>"])
    data = data_of(explained.to_html())
    for name in ("encoder", "decoder", "cross"):
        np.testing.assert_array_equal(data["weights"][name], np.rint(getattr(explained, name) * 1000))
    assert data["read"] == ["<s>", "␣Hund"]
    assert data["written"] == ["␣Hund", "</s>"]


def test_the_page_shows_the_steps_and_their_candidates_without_a_script():
    explained = explanation([" a", "</s>"], [" Hund", "\n", "</s>"])
    reader = read(explained.to_html())
    shown = " ".join("".join(reader.text).split())
    assert "75.0%" in shown
    assert "␣so <0.1%" in shown
    assert "↵" in shown
    assert "-1.2500 over 3 tokens" in shown
    assert sum(tag == "tr" for tag, _ in reader.tags) == 1 + 3
    assert sum(attributes.get("class") == "chosen" for _, attributes in reader.tags) == 3


def test_every_choice_has_a_label_and_both_color_schemes_are_there():
    page = explanation([" a", "</s>"], [" Hund", "</s>"]).to_html()
    reader = read(page)
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("select") == tags.count("label") == 3
    assert "prefers-color-scheme: dark" in page
    assert ("html", {"lang": "en"}) in reader.tags
    assert any(attributes.get("name") == "viewport" for _, attributes in reader.tags)


def test_a_notebook_gets_the_same_page_in_a_frame_of_its_own():
    explained = explanation([HOSTILE, "</s>"], [" Hund", "</s>"])
    reader = read(explained._repr_html_())
    ((tag, attributes),) = reader.tags
    assert tag == "iframe"
    assert attributes["srcdoc"] == explained.to_html()
    assert attributes["sandbox"] == "allow-scripts"


def test_a_sentence_too_long_for_a_page_is_refused_and_a_notebook_says_why():
    tokens = [" a"] * MAX_PAGE_TOKENS + ["</s>"]
    explained = explanation([" a", "</s>"], tokens, decoder=distributions(1, 1, 1, 1), cross=distributions(1, 1, 1, 1))
    with pytest.raises(DataError, match=f"at most {MAX_PAGE_TOKENS} tokens a side, and this sentence has 301"):
        explained.to_html()
    assert "301" in html.unescape(explained._repr_html_())
