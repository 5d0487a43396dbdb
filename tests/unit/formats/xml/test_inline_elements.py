"""Inline elements as short tags: which tag each becomes, and the same number for the same element in every language."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.formats.xml.events import read_events
from clearhead.formats.xml.inline_elements import (
    MAX_SIZE,
    InlineElement,
    InlineSegment,
    TagNumbers,
    read_segment,
    split_segment,
)
from clearhead.text.placeholders import PLACEHOLDER


@pytest.fixture
def segment(tmp_path: Path):
    def read(content: str) -> InlineSegment:
        (tmp_path / "a.xml").write_text(f"<seg>{content}</seg>", encoding="utf-8")
        events = read_events(str(tmp_path / "a.xml"))
        next(events)
        found = read_segment(events)
        assert list(events) == []  # its end tag was the last thing that was read
        return found

    return read


@pytest.mark.parametrize(
    ("content", "text"),
    [
        # TMX 1.4b: section 4.2, content markup
        ("a <ph x='48'>&lt;br/&gt;</ph> b <ph x='1567'>{0}</ph>", "a <x1/> b <x2/>"),
        ("<bpt i='1' x='2'>&lt;b&gt;</bpt>bold<ept i='1'>&lt;/b&gt;</ept>.", "<g1>bold</g1>."),
        ("<bpt i='1'>{\\b</bpt>a<bpt i='2'>{\\i</bpt>b<ept i='1'>}</ept>c<ept i='2'>}</ept>", "<g1>a<g2>b</g1>c</g2>"),
        ("<it pos='begin' x='1'>&lt;b&gt;</it>a <ut x='2'>{x}</ut>", "<x1/>a <x2/>"),
        ("the <hi type='term'>big <hi>red</hi></hi> dog", "the big red dog"),
        ("a<ph x='1'>&lt;img alt='<sub>picture of a <ph>x</ph> dog</sub>'&gt;</ph>b", "a<x1/>b"),
        ("a<bpt i='1'>(</bpt>b", "a<x1/>b"),
        ("a<ept i='1'>)</ept>b", "a<x1/>b"),
        # XLIFF 1.2: section 2.4, inline elements
        ("<g id='1'>a<g id='2'>b</g></g><x id='3'/>", "<g1>a<g2>b</g2></g1><x3/>"),
        ("<bx id='7' rid='1'/>a<ex id='8' rid='1'/><bx id='9'/>b<ex id='9'/>", "<g1>a</g1><g2>b</g2>"),
        ("<bpt id='1'>[b]</bpt>a<ept id='1'>[/b]</ept><ph id='2'>%s</ph>", "<g1>a</g1><x2/>"),
        ("<g id='1'>a</g><x id='1'/><ph id='1'/>", "<g1>a</g1><x2/><x3/>"),
        ("<mrk mtype='protected'>OpenXLIFF</mrk> <mrk mtype='seg' mid='1'>a</mrk>", "OpenXLIFF a"),
        # XLIFF 2.0: section 4.7, inline content
        ("<pc id='1'>a<ph id='2'/></pc><sc id='3'/>b<ec startRef='3'/>", "<g1>a<x2/></g1><g3>b</g3>"),
        ("<ec id='9' isolated='yes'/>a<sc id='1' isolated='yes'/>", "<x1/>a<x2/>"),
        ("<sm id='1' translate='no'/>a<em startRef='1'/> <mrk id='2' type='term'>b</mrk>", "a b"),
        ("bell <cp hex='0007'/>, <cp hex='1F600'/>", "bell \x07, \U0001f600"),
        # what none of them has
        ("<b>a</b><br/>c", "<g1>a</g1><g2></g2>c"),
        # the same element twice, and without anything that tells them apart
        ("<x id='1'/>a<x id='1'/>", "<x1/>a<x1/>"),
        ("<ph>a</ph>b<ph>a</ph>", "<x1/>b<x2/>"),
        # white space: section 3 of docs/formats.md
        (" a\n\t b\r\nc&#13;d\u2028e ", " a \t b c d\u2028e "),
        ("a&#13;&#10;b", "a b"),
        ("&lt;b&gt; &amp;amp;", "<b> &amp;"),
    ],
)
def test_an_element_becomes_a_tag(segment, content, text):
    assert TagNumbers().text(segment(content)) == text


@pytest.mark.parametrize(
    ("source", "target", "texts"),
    [
        ("<ph x='5'/>a<ph x='9'/>", "<ph x='9'/>b<ph x='5'/>", ("<x1/>a<x2/>", "<x2/>b<x1/>")),
        ("<ph/>a<ph/>", "b<ph/><ph/>", ("<x1/>a<x2/>", "b<x1/><x2/>")),
        (
            "<bpt i='1' x='1'/>a<ept i='1'/><bpt i='2' x='2'/>b<ept i='2'/>",
            "<bpt i='1' x='2'/>B<ept i='1'/><bpt i='2' x='1'/>A<ept i='2'/>",
            ("<g1>a</g1><g2>b</g2>", "<g2>B</g2><g1>A</g1>"),
        ),
        ("<g id='1'>a</g>", "b<g id='2'>c</g><g id='1'>d</g>", ("<g1>a</g1>", "b<g2>c</g2><g1>d</g1>")),
        ("<pc id='1'>a</pc>", "<sc id='1'/>b<ec startRef='1'/>", ("<g1>a</g1>", "<g1>b</g1>")),
    ],
)
def test_the_same_element_has_the_same_number_on_both_sides(segment, source, target, texts):
    numbers = TagNumbers()
    assert (numbers.text(segment(source)), numbers.text(segment(target))) == texts


def test_tags_are_placeholders(segment):
    text = TagNumbers().text(segment("<g id='1'>a</g> <x id='2'/>" + "<x/>" * 1_000))
    found = PLACEHOLDER.findall(text)
    assert found[:3] == ["<g1>", "</g1>", "<x2/>"]
    assert found[-1] == "<x1002/>"
    assert PLACEHOLDER.sub("", text) == "a "


@pytest.mark.parametrize("code", ["", "D800", "110000", "x", "-1", "9" * 50])
def test_what_is_no_character_is_a_defect(segment, code):
    assert segment(f"a<cp hex='{code}'/>b<x/>").defect == f'<cp hex="{code[:20]}"/> is no character'


def test_a_text_without_end_is_a_defect_and_is_let_go(segment):
    assert segment("x" * (MAX_SIZE // 1000)).defect is None
    found = segment("y" * (MAX_SIZE + 1))
    assert found.defect == "its text is longer than 10,000,000 characters"
    assert sum(map(len, found.parts)) <= MAX_SIZE
    elements = segment("<x/>" * (MAX_SIZE // 100 + 1))
    assert elements.defect == found.defect
    assert len(elements.parts) == 100_000
    assert segment("犬<!-- -->" * (MAX_SIZE // 100)).defect == found.defect
    assert segment(f"<x id='{'y' * 900_000}'/>" * 12).defect == found.defect


def test_blank_is_what_has_neither_words_nor_elements(segment):
    assert segment(" \n<mrk mtype='seg' mid='1'> </mrk>").is_blank
    assert not segment(" <x id='1'/>").is_blank
    assert not segment("a").is_blank


def test_a_text_is_cut_into_its_segments(segment):
    found = split_segment(
        segment("<mrk mtype='seg' mid='1'>One.</mrk>\n<g id='1'><mrk mtype='seg' mid='b'>T<x id='2'/>o.</mrk></g>")
    )
    assert found == {
        "1": (1, InlineSegment(["One."], 104)),
        "b": (2, InlineSegment(["T", InlineElement("x", "alone", "id=2"), "o."], 307)),
    }
    assert split_segment(segment("One. <mrk mtype='term'>Two.</mrk>")) == {}
    assert split_segment(segment("<mrk mtype='seg' mid='1'>One.</mrk> and more")) == {}
    assert split_segment(segment("<mrk mtype='seg'>One.</mrk> <mrk mtype='seg'>Two.</mrk>")) == {}
    assert split_segment(segment("<mrk mtype='seg' mid='1'>One<cp hex='x'/>.</mrk>")) == {}


def test_an_end_belongs_to_the_last_beginning_of_its_name():
    begin, end = InlineElement("bpt", "begin", "", "1"), InlineElement("ept", "end", "", "1")
    assert TagNumbers().text(InlineSegment([begin, "a", begin, "b", end, "c", end])) == "<x1/>a<g2>b</g2>c<x3/>"
