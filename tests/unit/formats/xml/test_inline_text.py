"""Inline elements as numbered tags: the same in pairs, documents and memories, and in both languages of a unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.formats import SentencePair, Wanted, read_pairs
from clearhead.formats.document_files import read_document
from clearhead.formats.tmx.pairs import open_tmx
from clearhead.formats.xml.elements import MAX_SIZE, PART_SIZE, XmlElement, elements
from clearhead.formats.xml.events import text_events
from clearhead.formats.xml.inline_text import TagNumbers
from clearhead.text.placeholders import placeholder
from clearhead.translation.memory import TranslationMemory
from every_run import slow

FILES = {
    "xliff 1.2": (
        "a.xlf",
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" '
        'target-language="de"><body><trans-unit id="1"><source>{0}</source><target>{0}</target></trans-unit></body>'
        "</file></xliff>",
    ),
    "xliff 2": (
        "a.xliff",
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de"><file id="f">'
        '<unit id="1"><segment><source>{0}</source><target>{0}</target></segment></unit></file></xliff>',
    ),
    "tmx": (
        "a.tmx",
        '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>{0}</seg></tuv>'
        '<tuv xml:lang="de"><seg>{0}</seg></tuv></tu></body></tmx>',
    ),
}
TEXTS = [
    # XLIFF 1.2: section 2.4, inline elements
    ("xliff 1.2", "<g id='1'>a<g id='2'>b</g></g><x id='3'/>", "<g1>a<g2>b</g2></g1><x3/>"),
    ("xliff 1.2", "<bx id='7' rid='1'/>a<ex id='8' rid='1'/><bx id='9'/>b<ex id='9'/>", "<g1>a</g1><g2>b</g2>"),
    ("xliff 1.2", "<bpt id='1'>[b]</bpt>a<ept id='1'>[/b]</ept><ph id='2'>%s</ph>", "<g1>a</g1><x2/>"),
    ("xliff 1.2", "<bpt id='1'/>a<bpt id='2'/>b<ept id='1'/>c<ept id='2'/>", "<g1>a<x2/>b</g1>c<x3/>"),
    ("xliff 1.2", "<it id='1' pos='open'>[b]</it>a <ph id='2'>x<sub>picture of a dog</sub></ph>", "<x1/>a <x2/>"),
    ("xliff 1.2", "<g id='1'>a</g><x id='1'/><ph id='1'/><x id='1'/>", "<g1>a</g1><x2/><x3/><x4/>"),
    ("xliff 1.2", "Press <mrk mtype='term'>Save</mrk> now", "Press <g1>Save</g1> now"),
    ("xliff 1.2", "Keep <mrk mtype='protected'>Open<x id='1'/></mrk> safe", "Keep <x1/> safe"),
    ("xliff 1.2", "a <mrk mtype='seg' mid='1'>b</mrk> <mrk mtype='seg' mid='2'>c</mrk>", "a <g1>b</g1> <g2>c</g2>"),
    ("xliff 1.2", "<g id='1'/>a<g id='2'></g>b<g id='3'><!-- x --></g>", "<x1/>a<x2/>b<x3/>"),
    ("xliff 1.2", "<g id='1'><bpt id='2'>x</bpt></g>a<ept id='2'>y</ept>", "<g1><x2/></g1>a<x3/>"),
    ("xliff 1.2", "\n   Wrapped <g id='1'>text\n   over</g>\n\n   lines\n  ", "Wrapped <g1>text over</g1> lines"),
    ("xliff 1.2", "<x id='START_TAG_DIV_1'/>a<x id='CLOSE_TAG_DIV'/> <x id='INTERPOLATION'/>", "<g1>a</g1> <x2/>"),
    ("xliff 1.2", "<x id='CLOSE_LINK'/>a<x id='START_LINK'/> <x id='LINE_BREAK'/>", "<x1/>a<x2/> <x3/>"),
    ("xliff 1.2", "<ph id='1'>&lt;b&gt;</ph>a<ph id='2'>&lt;br/&gt;&lt;/b&gt;</ph>", "<x1/>a<x2/>"),
    ("xliff 1.2", "<ph id='1'>&lt;b&gt;</ph>a<ph id='2'>&lt;br&gt;</ph><ph id='3'>&lt;/b&gt;</ph>", "<g1>a<x2/></g1>"),
    # XLIFF 2.0: section 4.7, inline content
    ("xliff 2", "<pc id='1'>a<ph id='2'/></pc><sc id='3'/>b<ec startRef='3'/>", "<g1>a<x2/></g1><g3>b</g3>"),
    ("xliff 2", "<sc id='1'/>a<sc id='2'/>b<ec startRef='1'/>c<ec startRef='2'/>", "<g1>a<x2/>b</g1>c<x3/>"),
    ("xliff 2", "<ec id='9' isolated='yes'/>a<sc id='1' isolated='yes'/>", "<x1/>a<x2/>"),
    (
        "xliff 2",
        "<mrk id='m' type='term'>a</mrk> <pc id='1'><mrk id='n'>b</mrk></pc>",
        "<g1>a</g1> <g2><g3>b</g3></g2>",
    ),
    ("xliff 2", "a <mrk id='m' translate='no'>b <pc id='1'>c</pc></mrk>", "a <x1/>"),
    ("xliff 2", "<sm id='1' translate='no'/>a<em startRef='1'/>", "<x1/>"),
    ("xliff 2", "bell <cp hex='0007'/>, <cp hex='no character'/>", "bell <x1/>, <x2/>"),
    # TMX 1.4b: section 4.2, content markup
    ("tmx", "a <ph x='48'>&lt;br/&gt;</ph> b <ph x='1567'>{{0}}</ph>", "a <x1/> b <x2/>"),
    ("tmx", "<bpt i='1' x='2'>&lt;b&gt;</bpt>bold<ept i='1'>&lt;/b&gt;</ept>.", "<g1>bold</g1>."),
    ("tmx", "<bpt i='1'>b</bpt>a<bpt i='2'>i</bpt>b<ept i='1'/>c<ept i='2'/>", "<g1>a<x2/>b</g1>c<x3/>"),
    ("tmx", "<bpt i='1'/>a<bpt i='1'/>b<ept i='1'/>c<ept i='1'/>", "<g1>a<g2>b</g2>c</g1>"),
    ("tmx", "<it pos='begin' x='1'>&lt;b&gt;</it>a <ut x='2'>{{x}}</ut>", "<x1/>a <x2/>"),
    ("tmx", "the <hi type='term'>big <hi>red</hi></hi> dog", "the <g1>big <g2>red</g2></g1> dog"),
    ("tmx", "a<ph x='1'>&lt;img alt='<sub>a <ph>x</ph> dog</sub>'&gt;</ph>b", "a<x1/>b"),
    ("tmx", "a<bpt i='1'>(</bpt>b <ept i='2'>)</ept>", "a<x1/>b <x2/>"),
    # what none of them has, and white space
    ("tmx", "<b>a</b><br/>c", "<g1>a</g1><x2/>c"),
    ("tmx", "a \t b\n\t c&#13;&#10;d \u2028 e", "a \t b c d \u2028 e"),
    ("tmx", "&lt;b&gt; &amp;amp;", "<b> &amp;"),
]


def element(content: str) -> XmlElement:
    _, found = elements(text_events(f"<a><seg>{content}</seg></a>", "a.xml"), {"seg"})
    return next(found)[0]


def texts(*contents: str) -> list[str]:
    numbers = TagNumbers()
    return [numbers.read(element(content), keeps_space=False).text for content in contents]


@pytest.mark.parametrize(("kind", "content", "text"), TEXTS)
def test_an_element_is_the_same_text_in_pairs_documents_and_memories(tmp_path, kind, content, text):
    name, written = FILES[kind]
    path = tmp_path / name
    path.write_text(written.format(content.format()), encoding="utf-8")
    assert [(pair.source, pair.target) for pair in read_pairs([str(path)])] == [(text, text)]
    (segment,) = read_document(str(path)).segments
    assert (segment.text, segment.translation) == (text, text)
    match = TranslationMemory.load([str(path)]).exact(segment.text)
    assert (match.target, match.is_reused) == (text, True)


def test_a_memory_made_of_a_document_reuses_every_segment(data_dir):
    field = data_dir("field")
    memory = TranslationMemory.load([str(field / "mem01.xlf")])
    segments = read_document(str(field / "mem01_todo.xlf")).segments
    matches = [memory.match(segment.text) for segment in segments]
    assert [match is not None and match.is_reused for match in matches] == [True] * 7


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("<ph x='5'/>a<ph x='9'/>", "<ph x='9'/>b<ph x='5'/>", ["<x1/>a<x2/>", "<x2/>b<x1/>"]),
        ("<ph/>a<ph/>", "b<ph/><ph/>", ["<x1/>a<x2/>", "b<x1/><x2/>"]),
        ("<x id='1'/>a<x id='1'/>", "b<x id='1'/>", ["<x1/>a<x2/>", "b<x1/>"]),
        (
            "<bpt i='1' x='1'/>a<ept i='1'/><bpt i='2' x='2'/>b<ept i='2'/>",
            "<bpt i='1' x='2'/>B<ept i='1'/><bpt i='2' x='1'/>A<ept i='2'/>",
            ["<g1>a</g1><g2>b</g2>", "<g2>B</g2><g1>A</g1>"],
        ),
        ("<g id='1'>a</g>", "b<g id='2'>c</g><g id='1'>d</g>", ["<g1>a</g1>", "b<g2>c</g2><g1>d</g1>"]),
        ("<pc id='1'>a</pc>", "<sc id='1'/>b<ec startRef='1'/>", ["<g1>a</g1>", "<g1>b</g1>"]),
        (
            "<hi x='1'>a</hi><hi x='2'>b</hi>",
            "<hi x='2'>B</hi><hi x='1'>A</hi>",
            ["<g1>a</g1><g2>b</g2>", "<g2>B</g2><g1>A</g1>"],
        ),
        ("<b>a</b><i>b</i>", "<i>B</i><b>A</b>", ["<g1>a</g1><g2>b</g2>", "<g2>B</g2><g1>A</g1>"]),
        ("<cp hex='1'/>a<cp hex='2'/>", "<cp hex='2'/>b<cp hex='1'/>", ["<x1/>a<x2/>", "<x2/>b<x1/>"]),
        (
            "<sc id='1'/><sc id='2'/>a<ec startRef='1'/>b<ec startRef='2'/>",
            "<ec startRef='2'/>c<sc id='2'/>",
            ["<g1><x2/>a</g1>b<x3/>", "<x3/>c<x2/>"],
        ),
    ],
)
def test_the_same_element_has_the_same_number_on_both_sides(source, target, expected):
    assert texts(source, target) == expected


def test_tags_are_placeholders():
    (text,) = texts("<g id='1'>a</g> <x id='2'/>" + "<x/>" * 1_000)
    found = placeholder().findall(text)
    assert found[:3] == ["<g1>", "</g1>", "<x2/>"]
    assert found[-1] == "<x1002/>"
    assert placeholder().sub("", text) == "a "


def test_words_like_a_tag_are_one_in_pairs_and_are_protected_in_a_document():
    content = element("&lt;g1&gt;a<x/>")
    assert TagNumbers().read(content, keeps_space=False).text == "<g1>a<x1/>"
    protected = TagNumbers().read(content, keeps_space=False, protects_tags=True)
    assert (protected.text, protected.codes["<x1/>"]) == ("<x1/>a<x2/>", "<g1>")


def test_line_ends_that_are_significant_are_lines_of_a_document_and_spaces_of_a_pair(tmp_path):
    name, written = FILES["tmx"]
    path = tmp_path / name
    path.write_text(written.replace("<tu>", '<tu xml:space="preserve">').format(" a\n  b&#13;c"), encoding="utf-8")
    assert [one.text for one in read_document(str(path)).segments] == [" a\n  b\rc"]
    assert [pair.source for pair in read_pairs([str(path)])] == [" a   b c"]


@pytest.mark.parametrize(
    "content",
    [
        "y" * MAX_SIZE,
        slow("<x/>" * (MAX_SIZE // PART_SIZE)),
        slow("犬<!-- -->" * (MAX_SIZE // PART_SIZE)),
        f"<x id='{'y' * 900_000}'/>" * 12,
    ],
)
def test_of_a_unit_that_is_too_long_the_rest_is_let_go_and_the_next_is_read(tmp_path, content):
    name, written = FILES["tmx"]
    path: Path = tmp_path / name
    unit = '<tu><tuv xml:lang="en"><seg>dog</seg></tuv><tuv xml:lang="de"><seg>Hund</seg></tuv></tu>'
    path.write_text(
        written.format("a").replace("<seg>a</seg>", f"<seg>{content}</seg>", 1).replace("</body>", f"{unit}</body>")
    )
    pairs = list(open_tmx(str(path), Wanted(from_lang="en", to_lang="de")).pairs)
    assert pairs == [
        SentencePair("", "", f"{path}:1", defect="it is longer than 10,000,000 characters"),
        SentencePair("dog", "Hund", f"{path}:1"),
    ]
    _, found = elements(text_events(path.read_text(), "a.tmx"), {"seg"}, max_size=MAX_SIZE)
    longest = next(found)[0]
    kept = sum(PART_SIZE + len(part) if isinstance(part, str) else part.size for part in longest.parts)
    assert kept <= MAX_SIZE < longest.size
