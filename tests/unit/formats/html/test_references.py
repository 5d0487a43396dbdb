"""Character references are read as the HTML standard says, sections 13.2.5.72 to 13.2.5.80."""

from __future__ import annotations

import pytest

from clearhead.formats.html.document import read_html
from clearhead.formats.html.references import habits, resolved


@pytest.mark.parametrize(
    ("reference", "character"),
    [
        ("&#65;", "A"),
        ("&#x41;", "A"),
        ("&#0000000000000000065;", "A"),
        ("&#X000000000041", "A"),
        ("&#12345678901;", "\ufffd"),  # beyond Unicode
        ("&#x110000;", "\ufffd"),
        ("&#" + "9" * 9_999 + ";", "\ufffd"),
        ("&#0;", "\ufffd"),
        ("&#xD800;", "\ufffd"),  # half of a surrogate pair
        ("&#128;", "€"),  # the table of windows-1252
        ("&#x96;", "–"),
        ("&#159;", "Ÿ"),
        ("&#x81;", "\x81"),  # not in the table
        ("&#1;", "\x01"),
        ("&#x7f;", "\x7f"),
        ("&#xFFFE;", "\ufffe"),  # noncharacters stay
        ("&#xFDD0;", "\ufdd0"),
        ("&#1114111;", "\U0010ffff"),
    ],
)
def test_numeric_references_are_resolved_as_html_defines(reference, character):
    for is_attribute in (False, True):
        assert resolved(f"x{reference} y", is_attribute=is_attribute) == f"x{character} y"


@pytest.mark.parametrize(
    ("written", "in_text", "in_attribute"),
    [
        ("&amp;", "&", "&"),
        ("&amp", "&", "&"),
        ("&#65 &#x41!", "A A!", "A A!"),
        ("&copy=1", "©=1", "&copy=1"),
        ("&copyright", "©right", "&copyright"),
        ("&notit;", "¬it;", "&notit;"),
        ("&notin;", "∉", "∉"),
        ("&ampx&", "&x&", "&ampx&"),
        ("&hellip", "&hellip", "&hellip"),
        ("&hellip;", "…", "…"),
        ("&#;&#x;&;&", "&#;&#x;&;&", "&#;&#x;&;&"),
        ("&#&#65;", "&#A", "&#A"),
        ("&unknown;", "&unknown;", "&unknown;"),
    ],
)
def test_references_without_a_semicolon_end_as_in_browsers(written, in_text, in_attribute):
    assert resolved(written) == in_text
    assert resolved(written, is_attribute=True) == in_attribute


def test_a_page_writes_its_odd_references_again(read_text, translated):
    page = '<p title="x&notit; &#0128;">a &#128; b &#000000000150; c &#xFFFE; d</p>'
    document = read_text(read_html, page)
    assert [segment.text for segment in document.segments] == ["x&notit; €", "a € b – c \ufffe d"]
    assert habits(page) == {8364: "&#0128;", 8211: "&#000000000150;", 0xFFFE: "&#xFFFE;"}
    assert translated(document).decode() == (
        '<p title="X&amp;NOTIT; &#0128;">A &#0128; B &#000000000150; C &#xFFFE; D</p>'
    )
