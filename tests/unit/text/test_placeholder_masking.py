"""Placeholders become signs and come back; pairs have the same ones on both sides."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.text.placeholder_masking import Protected, protect, protect_pair, protect_target, without_signs
from clearhead.text.placeholders import NUM_ALONE, NUM_PAIRS, SIGNS, placeholder

ALONE, OPENING, CLOSING = SIGNS[:16], SIGNS[16:24], SIGNS[24:]

PARTS = [
    "%s",
    "%1$ld",
    "%%",
    ":name",
    "$x$",
    "<0>",
    "</0>",
    "{% if x %}",
    "{% endif %}",
    "%(name)s",
    "{0}",
    "<b>",
    "</b>",
    "<br/>",
    '<a href="x">',
    "</a>",
    "&amp;",
    "https://a.org/b",
    "a@b.de",
]
texts = st.lists(st.sampled_from([*PARTS, " ", "Wort", "100 %", "<", ">", SIGNS[3], SIGNS[17]])).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s von %d, %s", f"{ALONE[0]} von {ALONE[1]}, {ALONE[0]}"),
        ("<b>%s</b>", OPENING[0] + ALONE[0] + CLOSING[0]),
        ("<b>a <i>b</i></b>", f"{OPENING[0]}a {OPENING[1]}b{CLOSING[1]}{CLOSING[0]}"),
        ("<b>a <i>b</b></i>", f"{ALONE[0]}a {OPENING[0]}b{ALONE[1]}{CLOSING[0]}"),
        ("<br/> </b> <p>", f"{ALONE[0]} {ALONE[1]} {ALONE[2]}"),
        ("<p>a<br> %s</p>", f"{OPENING[0]}a{ALONE[0]} {ALONE[1]}{CLOSING[0]}"),
        ("<0>a</0> {% if x %}b{% endif %}", f"{OPENING[0]}a{CLOSING[0]} {OPENING[1]}b{CLOSING[1]}"),
        ("{{% note %}}a{{% /note %}}, {% include x %}", f"{OPENING[0]}a{CLOSING[0]}, {ALONE[0]}"),
        ("Nichts, auch nicht 50 %", "Nichts, auch nicht 50 %"),
    ],
)
def test_placeholders_become_signs_in_their_order(text, expected):
    assert protect(text).text == expected


@given(texts)
def test_protect_and_restored_round_trip(text):
    protected = protect(text)
    assert protected.restored(protected.text) == text


def test_a_translation_may_have_them_in_another_order():
    protected = protect("%s gives <b>{x}</b>")
    assert protected.restored(f"{OPENING[0]}{ALONE[1]}{CLOSING[0]} de {ALONE[0]}") == "<b>{x}</b> de %s"


def test_special_character_in_the_text_itself_is_restored():
    protected = protect(f"{ALONE[0]} %s")
    assert protected.text == f"{ALONE[0]} {ALONE[1]}"
    assert protected.restored(f"{ALONE[1]} {ALONE[0]}") == f"%s {ALONE[0]}"


def test_more_placeholders_than_signs_stay_as_they_are():
    braces, tags = [f"{{{n}}}" for n in range(NUM_ALONE + 3)], [f"<b{n}></b{n}>" for n in range(NUM_PAIRS + 2)]
    pairs = [opening + closing for opening, closing in zip(OPENING, CLOSING, strict=True)]
    expected = [*ALONE, *braces[NUM_ALONE:], *pairs, *tags[NUM_PAIRS:]]
    assert protect("".join(braces + tags)).text == "".join(expected)


def test_a_model_without_signs_reads_text_as_it_is():
    assert protect("%s", 0) == Protected("%s")


@given(texts, texts)
def test_a_pair_has_the_same_signs_on_both_sides_and_loses_nothing(source, target):
    own = [sign for sign in SIGNS if sign in source + target]
    protected = protect_pair(source, target)
    counts = [Counter(sign for sign in text if sign in SIGNS and sign not in own) for text in protected]
    assert counts[0] == counts[1]
    # A sign replaces the same text everywhere: with that text restored, both sides are unchanged.
    for text, original in zip(protected, (source, target), strict=True):
        named: set[str] = set()
        pattern = ""
        for part in text:
            if part not in counts[0]:
                pattern += re.escape(part)
            elif part in named:
                pattern += f"(?P=s{SIGNS.index(part)})"
            else:
                named.add(part)
                pattern += f"(?P<s{SIGNS.index(part)}>.+?)"
        assert re.fullmatch(pattern, original, re.DOTALL)


def test_a_pair_shares_what_both_sides_have_as_often_as_both_have_it():
    source, target = protect_pair("%s und %s, {x} <b>a</b>", "{x}, %s <i>a</i> <b>c</b>")
    a, x, opening, closing = (sign for sign in source if sign in SIGNS)
    assert source == f"{a} und %s, {x} {opening}a{closing}"
    assert target == f"{x}, {a} <i>a</i> {opening}c{closing}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 von 12, 7", f"{ALONE[0]} von {ALONE[1]}, {ALONE[0]}"),
        ("1,250.5 um 20:15 am 2016-05-03.", f"{ALONE[0]} um {ALONE[1]} am {ALONE[2]}."),
        ("%1$s 50 % B2 2nd v1.2 x=3", f"{ALONE[0]} {ALONE[1]} % B2 2nd v1.2 x={ALONE[2]}"),
    ],
)
def test_numbers_are_placeholders_if_that_is_asked_for(text, expected):
    protected = protect(text, with_numbers=True)
    assert protected.text == expected
    assert protected.restored(protected.text) == text
    assert protect_target(protected, text) == expected
    assert protect_pair(text, "nichts", with_numbers=True) == (text, "nichts")
    source, target = protect_pair("1.250 Hunde, 3 Katzen", "1,250 dogs, 3 cats", with_numbers=True)
    assert (source[:13], target[:12]) == ("1.250 Hunde, ", "1,250 dogs, ")
    assert source[13] == target[12] in ALONE


def test_over_many_pairs_every_sign_is_used():
    used = "".join(protect_pair(f"%s <b>x{number}</b>", "%s <b>y</b>")[0] for number in range(400))
    assert set(SIGNS) <= set(used)


def test_a_pair_without_anything_in_common_stays_as_it_is():
    assert protect_pair("%s", "{0}") == ("%s", "{0}")


def test_a_target_has_the_signs_of_its_source():
    source = protect("%s <b>a</b> %s {x}")
    assert (
        protect_target(source, "<b>A</b> %s, {y} %s%s") == f"{OPENING[0]}A{CLOSING[0]} {ALONE[0]}, {{y}} {ALONE[0]}%s"
    )
    assert protect_target(protect("a"), "%s") == "%s"


def test_ten_thousand_placeholders_are_paired():
    names = [f"{{x{number}}}" for number in range(10_000)]
    repeated = "%s " * 10_000
    source, target = protect_pair(repeated + " ".join(names), repeated + " ".join(reversed(names)))
    assert source[0] == target[0]
    assert source.count(source[0]) == target.count(source[0]) == 10_000
    assert sum(sign in source for sign in ALONE) == NUM_ALONE


def test_a_vocabulary_learns_from_text_without_signs():
    assert without_signs(f"a{ALONE[5]}b {CLOSING[7]}") == "a b  "


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("See :func:`open` and ``a b``.", [":func:`open`", "``a b``"]),
        (
            "See :ref:`the text <label>`, `code` and `a link <https://a.org>`_.",
            [":ref:`", " <label>`", "`code`", "`", " <https://a.org>`_"],
        ),
        ("A **bold** word, *one* more, 2 * 3 and f(*args, **kwargs).", ["**", "**", "*", "*", "*", "**"]),
        ("|version| of a|b", ["|version|"]),
    ],
)
def test_marks_of_markdown_and_restructuredtext_are_placeholders(text, kept):
    assert placeholder().findall(text) == kept


def test_a_mark_and_what_ends_it_are_one():
    text = "A **bold** word, *one* more, f(*args) and **kwargs"
    (bold, unbold), (begin, end) = zip(OPENING[:2], CLOSING[:2], strict=True)
    assert protect(text).text == (
        f"A {bold}bold{unbold} word, {begin}one{end} more, f({ALONE[0]}args) and {ALONE[1]}kwargs"
    )
