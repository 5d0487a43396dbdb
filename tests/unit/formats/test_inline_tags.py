"""Tags of a translation: whatever it says, each element of the source comes once, and well nested."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.formats.inline_tags import Tag, repaired_tags, tokens

TAG = re.compile(r"</?[gx][0-9]+/?>")


def words_of(text: str) -> str:
    return TAG.sub("", text)


def nesting(text: str) -> list[str]:
    """Return the tags, and check that they are well nested."""
    stack: list[str] = []
    tags = TAG.findall(text)
    for tag in tags:
        if tag.startswith("</"):
            assert stack.pop() == tag.replace("/", "")
        elif not tag.endswith("/>"):
            stack.append(tag)
    assert stack == []
    return tags


@st.composite
def sources(draw) -> str:
    """Text with well nested tags, numbered as they come."""
    number = 0

    def content(depth: int) -> str:
        nonlocal number
        parts = []
        for _ in range(draw(st.integers(0, 3))):
            match draw(st.sampled_from(["words", "alone", "pair"])):
                case "alone":
                    number += 1
                    parts.append(f"<x{number}/>")
                case "pair" if depth < 3:
                    number += 1
                    mine = number
                    parts.append(f"<g{mine}>{content(depth + 1)}</g{mine}>")
                case _:
                    parts.append(draw(st.sampled_from(["a", " b ", "cd e", " ", "猫"])))
        return "".join(parts)

    return content(0)


PIECES = ["<g1>", "</g1>", "<g2>", "</g2>", "<x1/>", "<x2/>", "<g3>", "</g3>", "<x3/>", "</g99>", "<x99/>"]
PIECES += ["<g", "1>", "/", "<", "wort", " ", "zwei Worte", "猫犬"]


@given(sources(), st.lists(st.sampled_from(PIECES)).map("".join))
def test_repaired_tags_has_every_element_once_and_well_nested(source, translation):
    whole, repairs = repaired_tags(translation, source)
    assert sorted(nesting(whole)) == sorted(nesting(source))
    assert repaired_tags(whole, source) == (whole, ())
    assert repairs or whole == translation
    kept, said = words_of(whole).replace(" ", ""), words_of(translation).replace(" ", "")
    assert kept == said or TAG.search(said)  # around a tag that went, another might come together; it goes too


@given(sources())
def test_repaired_tags_keeps_valid_tags(source):
    assert repaired_tags(source, source) == (source, ())


@pytest.mark.parametrize(
    ("translation", "source", "whole", "repair"),
    [
        ("<g2>b</g2> <g1>a</g1>", "<g1>a</g1> <g2>b</g2>", "<g2>b</g2> <g1>a</g1>", None),
        ("ein <g7>Hund</g7>", "a dog", "ein Hund", "<g7> is not in the source"),
        ("<x1/>a<x1/>", "a<x1/>", "<x1/>a", "<x1/> comes again"),
        ("<g1>a</g1> <g1>b</g1>", "<g1>a</g1>", "<g1>a</g1> b", "<g1> comes again"),
        ("<x1>", "<x1/>", "<x1/><x1>", "<x1/> is missing"),
        ("a <g1>b", "a <g1>b</g1>", "a <g1>b</g1>", "<g1> has no end"),
        ("a</g1> b", "<g1>a</g1> b", "<g1>a</g1> b", "</g1> has no beginning"),
        ("</g1>a<g1>b", "<g1>a</g1>", "a<g1>b</g1>", "</g1> comes again or too early"),
        (
            "<g1>a <g2>b</g1> c</g2>",
            "<g1>a</g1><g2>b</g2>",
            "<g1>a <g2>b</g2></g1> c",
            "<g2> reaches over the end of <g1>",
        ),
        ("ein Hund", "a <g1>dog</g1>", "<g1>ein Hund</g1>", "<g1> is missing"),
        ("<g1>ein Hund</g1>!", "<g1>a <g2>dog</g2></g1>!", "<g1><g2>ein Hund</g2></g1>!", "<g2> is missing"),
        ("ein Hund", "<g1>a <g2>dog</g2></g1>", "<g1><g2>ein Hund</g2></g1>", "<g2> is missing"),
        ("Sieh jetzt hin.", "Look <x1/> now.", "Sieh jetzt <x1/> hin.", "<x1/> is missing"),
        ("Hallo Welt", "<x1/>Hello world", "<x1/>Hallo Welt", "<x1/> is missing"),
        ("Hallo Welt", "<x1/> Hello world", "<x1/> Hallo Welt", "<x1/> is missing"),
        ("Hallo Welt", "Hello world<x1/>", "Hallo Welt<x1/>", "<x1/> is missing"),
        ("Hallo große Welt", "Hello big<x1/> world", "Hallo große<x1/> Welt", "<x1/> is missing"),
        ("", "<g1>a</g1><x2/>", "<g1><x2/></g1>", "<g1> is missing"),
        ("<g<g9>1>", "a", " ", "<g9> is not in the source"),
    ],
)
def test_repaired_tags_mends_each_kind_of_damage_and_says_so(translation, source, whole, repair):
    assert repaired_tags(translation, source)[0] == whole
    if repair is None:
        assert repaired_tags(translation, source)[1] == ()
    else:
        assert any(words.startswith(repair) for words in repaired_tags(translation, source)[1])


@given(sources(), st.lists(st.sampled_from(PIECES)).map("".join))
def test_repaired_tags_has_every_link_once_and_not_nested(source, translation):
    links = {tag.number for tag in tokens(source) if isinstance(tag, Tag) and tag.form == "open" and tag.number % 2}
    whole, _ = repaired_tags(translation, source, links)
    assert sorted(nesting(whole)) == sorted(nesting(source))
    assert repaired_tags(whole, source, links) == (whole, ())
    nested = {links_in(text, links) for text in (source, whole)}
    assert True not in nested or links_in(source, links)


def links_in(text: str, links: set[int]) -> bool:
    """Return whether a link is inside another."""
    depth = 0
    for tag in tokens(text):
        if isinstance(tag, Tag) and tag.number in links and tag.form != "alone":
            depth += 1 if tag.form == "open" else -1
            if depth > 1:
                return True
    return False


LINKED = "See <g1>Monday</g1>, <g2>the <g3>first</g3></g2> and <g4><x5/></g4>."


@pytest.mark.parametrize(
    ("translation", "source", "whole"),
    [
        ("Siehe A, B <x5/>.", LINKED,
         "Siehe A, B <g4><x5/></g4>. <g1>Monday</g1> <g2><g3>the first</g3></g2>"),
        ("<g1>A <g2>der <g3>B</g3></g2></g1><g4><x5/></g4>", LINKED,
         "<g1>A der <g3>B</g3></g1><g4><x5/></g4> <g2>the first</g2>"),
        ("<g1></g1>A <g2><g3>B</g3></g2><g4><x5/></g4>", LINKED,
         "A <g2><g3>B</g3></g2><g4><x5/></g4> <g1>Monday</g1>"),
        ("<g1>A <x5/></g1> <g2><g3>B</g3></g2>", LINKED, "<g1>A <x5/></g1> <g2><g3>B</g3></g2> <g4></g4>"),
        ("Lies mehr.", "<g1>Read more</g1>.", "<g1>Lies mehr.</g1>"),
        ("Lies hier mehr.", "Read about it <g1>here</g1>.", "Lies hier mehr. <g1>here</g1>"),
        ("A <g1>b</g1>", "<g1>a <g2>b</g2></g1>", "A <g1><g2>b</g2></g1>"),
    ],
)  # fmt: skip
def test_repaired_tags_appends_a_lost_link_with_its_words(translation, source, whole):
    links = {1, 2, 4} if "x5" in source else {1, 2}
    assert repaired_tags(translation, source, links)[0] == whole


def test_a_text_of_many_tags_is_mended_in_one_pass():
    size = 20_000
    source = "".join(f"<g{n}>" for n in range(1, size)) + "a" + "".join(f"</g{n}>" for n in range(size - 1, 0, -1))
    assert repaired_tags("b", source)[0] == source.replace("a", "b")
    assert len(tokens(repaired_tags("".join(f"b</g{n}>" for n in range(1, size)), source)[0])) == 3 * (size - 1)
