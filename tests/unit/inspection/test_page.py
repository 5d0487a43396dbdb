"""The page as a file: self-contained, escaped, under a policy that runs nothing else, and small.

Packed arrays are read again as docs/explanation-json.md says.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from model_kinds import KINDS
from unpacking import unpacked
from well_formed import Page

from clearhead.errors import DataError
from clearhead.inspection import explanation as module
from clearhead.inspection.compare import compare
from clearhead.inspection.explain import Step, explain
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.page import packed, packed_rows, packed_weights
from clearhead.inspection.token_steps import Candidate

HOSTILE = "<script>alert('x')</script><!-- & \"$title ${data}\" -->"


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
    return json.loads(Page(page).contents["script"][0])


def test_the_page_needs_nothing_from_outside():
    page = explanation([" a", " dog", "</s>"], [" Hund", "</s>"]).to_html()
    assert not re.search(r"https?:|@import|url\(|\bfetch\(|^import |^export ", page, re.MULTILINE)
    reader = Page(page)
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    assert not {"link", "img", "iframe", "object", "embed"} & set(reader.elements)
    for attributes in reader.attributes:
        assert "src" not in attributes
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        if "href" in attributes:
            assert attributes["href"][1:] in ids


def test_the_policy_allows_this_script_and_this_style_alone():
    reader = Page(explanation([" a", "</s>"], [" Hund", "</s>"]).to_html())
    [policy] = [given["content"] for given in reader.attributes if given.get("http-equiv") == "Content-Security-Policy"]
    _, script = reader.contents["script"]
    [style] = reader.contents["style"]
    hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in (script, style)]
    assert policy.split("; ")[:3] == ["default-src 'none'", f"script-src {hashes[0]}", f"style-src {hashes[1]}"]
    assert "unsafe" not in policy
    # Text becomes text alone: nothing in the script reads HTML, or runs what it reads.
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|Function\(", script)


def test_text_is_data_and_cannot_end_its_element():
    tokens = [HOSTILE, "</script>", "<!--<script>", "</s>"]
    page = explanation(tokens, ["</SCRIPT >", "</s>"]).to_html()
    reader = Page(page)
    assert reader.elements.count("script") == 2  # the data and the page's own
    assert "<" not in reader.contents["script"][0]
    assert "<script>alert" not in page
    assert data_of(page)["source_tokens"] == tokens
    assert "".join(reader.contents["title"]).startswith("<script>alert('x')</script>")


def test_two_compared_are_a_page_of_the_same_kind():
    first = explanation([HOSTILE, "</s>"], [" Hund", "</s>"])
    comparison = compare(first, explanation([" a", "</s>"], ["</script>", "</s>"]))
    page = comparison.to_html()
    reader = Page(page)
    assert not re.search(r"https?:|@import|url\(|\bfetch\(|^import |^export ", page, re.MULTILINE)
    assert reader.elements.count("script") == 2
    assert "<script>alert" not in page
    data = data_of(page)
    np.testing.assert_allclose(unpacked(data["first"]["cross"]), first.cross, atol=2**-15)
    assert data["first"]["vectors"] is None
    assert html.unescape(comparison._repr_html_()).startswith('<iframe srcdoc="<!doctype html>')


def test_the_page_holds_every_weight():
    explained = explanation([" a", " dog", " runs", "</s>"], [" Hund", "</s>"])
    data = data_of(explained.to_html())
    for name in ("encoder", "decoder", "cross"):
        np.testing.assert_allclose(unpacked(data[name]), getattr(explained, name), atol=2**-15)
    assert data["decoder_tokens"] == ["<s>", " Hund"]
    assert [len(layer) for layer in data["head_roles"]["encoder"]] == [2, 2, 2]


def test_a_paper_sized_page_of_thirty_tokens_is_below_two_megabytes(make_translator):
    sizes = {"d_model": 512, "num_heads": 8, "num_encoder_layers": 6, "num_decoder_layers": 6}
    texts = "Ein kleiner Hund rennt über die Wiese...", "A small dog runs across the meadow..."
    explained = explain(make_translator(**sizes), *texts, search=False)
    assert min(len(explained.source_tokens), len(explained.target_tokens)) >= 30
    page = explained.to_html()
    assert data_of(page)["vectors"]["cross"]["queries"]["type"] == "int8"
    # The rest is for the search, whose hypotheses take some 180 bytes each, and a beam of 4 considers 8 a step; and for
    # eight tokens more of a side, some 30,000 bytes each.
    assert len(page.encode()) < 2_000_000 - 180 * 8 * 30 - 4 * 30_000


def test_a_notebook_gets_the_same_page_in_a_frame_of_its_own():
    explained = explanation([HOSTILE, "</s>"], [" Hund", "</s>"])
    reader = Page(explained._repr_html_())
    [attributes] = reader.attributes
    assert reader.elements == ["iframe"]
    assert attributes["srcdoc"] == explained.to_html()
    assert attributes["sandbox"] == "allow-scripts"


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_model_of_one_side_has_a_page(make_translator, kind):
    data = data_of(explain(make_translator(**KINDS[kind]), "Ein Hund").to_html())
    assert data["cross"] is None
    assert list(data["head_roles"]) == [kind]


def test_a_sentence_too_long_for_a_page_is_refused_and_a_notebook_says_why(monkeypatch):
    monkeypatch.setattr(module, "MAX_PAGE_WEIGHTS", 100)
    explained = explanation([" a"] * 4 + ["</s>"], [" b", "</s>"])
    held = 3 * 2 * 25 + 2 * 4 + 2 * 10
    with pytest.raises(DataError, match=f"at most 100 attention weights, and this sentence has {held}"):
        explained.to_html()
    assert str(held) in html.unescape(explained._repr_html_())


def test_three_bytes_keep_the_first_sixteen_bits():
    values = np.float32(np.random.default_rng(3).normal(size=(3, 5, 7)) * 10.0 ** np.arange(-20, 15, 5))
    np.testing.assert_allclose(unpacked(packed(values)), values, rtol=2**-16)
    exact = np.array([0.0, 1.0, -2.5, 1 - 2**-16], dtype=np.float32)
    np.testing.assert_array_equal(unpacked(packed(exact)), exact)
    assert len(b64decode(packed(values)["data"])) == 3 * values.size


def test_two_bytes_keep_weights_to_the_fourth_digit_and_small_ones_in_proportion():
    weights = np.float32(np.random.default_rng(3).random((3, 5, 7)) * 10.0 ** -np.arange(0, 14, 2))
    np.testing.assert_array_less(np.abs(unpacked(packed_weights(weights)) - weights), 2**-15 * weights**0.75)
    exact = np.array([0.0, 1.0], dtype=np.float32)
    np.testing.assert_array_equal(unpacked(packed_weights(exact)), exact)
    assert len(b64decode(packed_weights(weights)["data"])) == 2 * weights.size


def test_bytes_are_rounded_to_a_254th_of_the_largest_of_a_row():
    values = np.float32(np.random.default_rng(4).normal(size=(4, 3, 9)))
    values[0, 0] = 0.0
    found = unpacked(packed_rows(values))
    limits = np.abs(values).max(axis=-1, keepdims=True) / 253
    assert (np.abs(found - values) <= limits).all()
    assert (np.abs(found).max(axis=-1) > 0).sum() == 11
