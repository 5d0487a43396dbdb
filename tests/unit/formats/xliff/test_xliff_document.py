"""XLIFF files filled in: another parser reads the targets where they belong, and every other byte is as before."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree

import pytest
from steps import assert_linear
from written_files import filled_after_random_changes, replaced, texts

from clearhead.errors import ConfigError, DataError
from clearhead.formats import Wanted, read_pairs
from clearhead.formats.document import Filling, Suggestion
from clearhead.formats.document_files import read_document
from clearhead.formats.xliff.document import XliffDocument

OLD = """<?xml version="1.0"?>
<!-- a comment -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:o="urn:other">
  <file source-language="en" target-language="de" datatype="plaintext" original="a">
    <body>
      <o:unit><source>other</source></o:unit>
      <trans-unit id="1">
        <source>Save &amp; <g id="5">quit</g> <x id="6" note="a>b"/></source>
        <note>Keep me</note>
      </trans-unit>
      <trans-unit id="2" approved='yes'><source><![CDATA[<b>]]></source><target state = 'final'
        xml:lang="de" >alt</target><alt-trans><source>no</source><target>nein</target></alt-trans></trans-unit>
      <group translate="no"><trans-unit id="3"><source>Fixed</source></trans-unit></group>
      <trans-unit id="4">
        <source>
          On two
          lines
        </source>
        <target/>
      </trans-unit>
      <trans-unit id="5" xml:space="preserve"><source> a
 b </source><target state="needs-adaptation"
 state-qualifier="fuzzy-match">x</target></trans-unit>
    </body>
  </file>
</xliff>
"""
NEW = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0">
<file id="f"><unit id="1">
  <segment id="s1"><source>Press <pc id="1"><mrk id="m" type="term">Enter</mrk></pc>.</source></segment>
  <ignorable><source> </source></ignorable>
  <segment state="initial"><source>One<ph id="2"/></source><target>Eins</target></segment>
  <segment state='reviewed' subState='my:x'><source>Two</source><target>Zwei</target></segment>
</unit><unit id="2" translate="no"><segment><source>Fixed</source></segment></unit></file></xliff>
"""


def one_unit(content: str, *, version: str = "1.2", head: str = "") -> str:
    return f'{head}<xliff version="{version}"><trans-unit>{content}</trans-unit></xliff>'


def test_sources_are_segments_with_tags(read):
    document = read("a.xlf", OLD)
    assert [(one.line, one.text, one.translation, one.is_finished) for one in document.segments] == [
        (8, "Save & <g1>quit</g1> <x2/>", "", False),
        (11, "<b>", "alt", True),
        (15, "On two lines", "", False),
        (21, " a\n b ", "x", False),
    ]
    assert [one.shown_place for one in document.segments] == [
        "segment 1, id 1",
        "segment 2, id 2",
        "segment 3, id 4",
        "segment 4, id 5",
    ]
    of_new = [one.shown_place for one in read("b.xlf", NEW).segments]
    assert of_new == ["segment 1, id 1/s1", "segment 2, id 1", "segment 3, id 1"]
    of_long = [one.shown_place for one in read("c.xlf", replaced(OLD, ('id="4"', f'id="{"9" * 99}"'))).segments]
    assert of_long[2] == f"segment 3, id {'9' * 59}…"


def test_targets_are_filled_and_nothing_else_changes(read, fill):
    texts = {
        "Save & <g1>quit</g1> <x2/>": "<x2/> Sichern & <g1>Ende</g1>",
        "<b>": "neu <",
        "On two lines": "Auf zwei Zeilen",
        " a\n b ": " A\n B ",
    }
    filled = fill(read("a.xlf", OLD), texts)
    state = 'state="needs-review-translation"'
    assert filled == replaced(
        OLD,
        (
            '<x id="6" note="a>b"/></source>',
            f'<x id="6" note="a>b"/></source>\n        <target {state}><x id="6" note="a>b"/> Sichern &amp; '
            '<g id="5">Ende</g></target>',
        ),
        ("approved='yes'", 'approved="no"'),
        ("state = 'final'", 'state = "needs-review-translation"'),
        (">alt<", ">neu &lt;<"),
        ("<target/>", f"<target {state}>Auf zwei Zeilen</target>"),
        ('<target state="needs-adaptation"\n state-qualifier="fuzzy-match">x', f"<target {state}> A\n B "),
    )
    units = ElementTree.fromstring(filled).iter("{urn:oasis:names:tc:xliff:document:1.2}trans-unit")
    targets = [unit.find("{*}target") for unit in units]
    assert ["" if one is None else "".join(one.itertext()) for one in targets] == [
        " Sichern & Ende",
        "neu <",
        "",
        "Auf zwei Zeilen",
        " A\n B ",
    ]


@pytest.mark.parametrize(("similarity", "qualifier"), [(1.0, "exact-match"), (0.58, "fuzzy-match")])
def test_version_1_distinguishes_repaired_matches_from_exact_ones(read, similarity, qualifier):
    document = read("a.xliff", OLD)
    match = Suggestion("a", "b", similarity, is_used=True)
    filled = document.filled([Filling("neu", "", match) for _ in document.segments]).decode()
    assert filled.count(f'state-qualifier="{qualifier}"') == len(document.segments)
    assert f'match-quality="{round(similarity * 100)}%"' in filled


def test_version_2_has_the_state_on_its_segment(read, fill, in_capitals):
    document = read("a.xliff", NEW)
    assert [(one.line, one.text, one.translation, one.is_finished) for one in document.segments] == [
        (3, "Press <g1><g2>Enter</g2></g1>.", "", False),
        (5, "One<x1/>", "Eins", False),
        (6, "Two", "Zwei", True),
    ]
    assert fill(document, in_capitals) == replaced(
        NEW,
        ('<segment id="s1">', '<segment id="s1" state="translated">'),
        (
            ".</source>",
            '.</source><target>PRESS <pc id="1"><mrk id="m" type="term">ENTER</mrk></pc>.</target>',
        ),
        ('state="initial"', 'state="translated"'),
        ("<target>Eins<", '<target>ONE<ph id="2"/><'),
        ("state='reviewed' subState='my:x'", 'state="translated"'),
        ("<target>Zwei<", "<target>TWO<"),
    )


def test_segments_of_a_unit_are_filled_by_themselves(read, fill):
    cut = '<mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two <x id="1"/>.</mrk>'
    written = one_unit(f"<source>One. Two.</source><seg-source>{cut}</seg-source>")
    document = read("a.xlf", written)
    assert [one.text for one in document.segments] == ["One.", "Two <x1/>."]
    state = '<target state="needs-review-translation">'
    target = f"{state}{replaced(cut, ('Two ', 'Zwei '))}</target>"
    half = replaced(written, ("</seg-source>", f"</seg-source>{target}"))
    assert fill(document, {"Two <x1/>.": "Zwei <x1/>."}) == half
    again = read("a.xlf", half)
    assert [one.translation for one in again.segments] == ["One.", "Zwei <x1/>."]
    first = f'{state}<mrk mtype="seg" mid="1">'
    assert fill(again, {"One.": "Eins."}) == replaced(half, (f"{first}One.", f"{first}Eins."))


def test_a_unit_with_words_outside_of_its_segments_is_one_segment(read, fill):
    written = one_unit('<source>a</source><seg-source>a <mrk mtype="seg" mid="1">b</mrk></seg-source>')
    target = '</seg-source><target state="needs-review-translation">A</target>'
    assert fill(read("a.xlf", written), {"a": "A"}) == replaced(written, ("</seg-source>", target))


def seg(mid: int, text: str = "") -> str:
    return f'<mrk mtype="seg" mid="{mid}">{text}</mrk>' if text else f'<mrk mtype="seg" mid="{mid}"/>'


def marked(segment: str) -> str:
    """Return a segment as it is written by a machine beside one of a human."""
    return segment.replace(' mid="', ' comment="needs-review-translation" mid="')


ZWEI = '<mrk mtype="seg" mid="2" comment="needs-review-translation">ZWEI.</mrk>'
"""A segment of a machine beside one of a human."""


def cut_unit(target: str, attributes: str = "", *, around: str = "{}", behind: str = "") -> str:
    """Return a file with a unit of two segments."""
    source = around.format(f"{seg(1, 'One.')} {seg(2, 'Two.')}")
    texts = f"<source>One. Two.</source><seg-source>{source}</seg-source><target{attributes}>{target}</target>"
    return one_unit(texts + behind)


@pytest.mark.parametrize("attributes", ["", ' state="final"', ' state="translated"'])
@pytest.mark.parametrize(
    "target",
    [
        "Eins. Zwei.",  # not segmented
        "<g id='1'>Eins. Zwei.</g>",
        f"{seg(1, 'Eins.')} und {seg(2)}",  # words outside of its segments
        f"{seg(1, 'Eins.')} {seg(1, 'Zwei.')}",
        f"{seg(1)} {seg(3, 'Drei.')}",  # a segment that the source lacks
        "<x id='1'/>",
    ],
)
def test_finished_targets_are_kept_whatever_their_segmentation(read, attributes, target):
    [segment] = read("a.xlf", cut_unit(target, attributes)).segments
    assert (segment.text, segment.is_finished) == ("One. Two.", True)


def test_approved_targets_are_finished_whatever_their_state(read):
    written = one_unit('<source>a</source><target state="needs-translation">b</target>')
    for approved, is_finished in (("yes", True), ("no", False)):
        unit = f'<trans-unit approved="{approved}"'
        [segment] = read("a.xlf", written.replace("<trans-unit", unit)).segments
        assert segment.is_finished == is_finished


def test_unfinished_targets_without_segments_are_replaced_segment_by_segment(read, fill, in_capitals):
    document = read("a.xlf", cut_unit("Eins. Zwei?", ' state="needs-l10n"'))
    assert [(one.text, one.translation, one.is_finished) for one in document.segments] == [
        ("One.", "", False),
        ("Two.", "", False),
    ]
    assert fill(document, in_capitals) == cut_unit(
        f"{seg(1, 'ONE.')} {seg(2, 'TWO.')}", ' state="needs-review-translation"'
    )


@pytest.mark.parametrize(
    ("target", "filled"),
    [
        (seg(1, "Eins.") + seg(2), seg(1, "Eins.") + ZWEI),
        (seg(2) + "\n" + seg(1, "Eins."), ZWEI + "\n" + seg(1, "Eins.")),
        (f"<g id='9'>{seg(1, 'Eins.')}<x/>{seg(2)}</g>", f"<g id='9'>{seg(1, 'Eins.')}<x/>{ZWEI}</g>"),
        (seg(1, "Eins."), f"{seg(1, 'Eins.')} {ZWEI}"),
    ],
)  # fmt: skip
def test_empty_segments_are_filled_and_their_neighbours_kept(read, fill, target, filled):
    document = read("a.xlf", cut_unit(target))
    assert [(one.text, one.translation, one.is_finished) for one in document.segments] == [
        ("One.", "Eins.", True),
        ("Two.", "", False),
    ]
    expected = cut_unit(filled, ' state="needs-review-translation"')
    assert fill(document, {"Two.": "ZWEI."}) == expected
    again = read("b.xlf", expected)  # by the state, all segments are unfinished; by the comment, one is
    assert [(one.translation, one.is_finished) for one in again.segments] == [("Eins.", True), ("ZWEI.", False)]
    assert fill(again, {"Two.": "ZWEI."}) == expected
    reviewed = read("c.xlf", expected.replace('"needs-review-translation">', '"final">', 1))
    assert all(one.is_finished for one in reviewed.segments)


def test_marks_of_unreviewed_segments_survive_retranslation_and_other_comments(read, fill):
    state, comment = ' state="needs-review-translation"', 'comment="a &amp;amp; b"'
    target = seg(1, "Eins.") + seg(2, "").replace("/>", f" {comment}/>")
    first = fill(read("a.xlf", cut_unit(target)), {"Two.": "ZWEI."})
    own = ZWEI.replace('comment="', 'comment="a &amp;amp; b ')
    assert first == cut_unit(seg(1, "Eins.") + own, state)
    ones = seg(1, "EINS.").replace(">E", ' comment="needs-review-translation">E')
    again = fill(read("b.xlf", first), {"One.": "EINS.", "Two.": "ZWEI."})
    assert again == cut_unit(ones + own, state)
    assert not any(one.is_finished for one in read("c.xlf", again).segments)


def test_a_pair_for_each_segment_that_is_finished(tmp_path):
    path = tmp_path / "a.xlf"
    units = cut_unit(seg(1, "Eins.") + ZWEI, ' state="needs-review-translation"').partition("<trans-unit>")[2]
    head = '<xliff version="1.2"><file source-language="en" target-language="de"><trans-unit>'
    path.write_text(head + units.replace("</xliff>", "</file></xliff>"), encoding="utf-8")
    found = [(one.source, one.target, one.skipped) for one in read_pairs([str(path)])]
    assert found == [("One.", "Eins.", None), ("Two.", "ZWEI.", "unfinished")]


def test_segments_within_markup_are_segments(read, fill, in_capitals):
    around = '<g id="1"><mrk mtype="x-comment">{}</mrk></g>'
    for target in (around.format(f"{seg(1)} {seg(2)}"), "", '<g id="1"></g>'):
        document = read("a.xlf", cut_unit(target, around=around))
        assert [(one.text, one.is_finished) for one in document.segments] == [("One.", False), ("Two.", False)]
        expected = around.format(f"{seg(1, 'ONE.')} {seg(2, 'TWO.')}")
        state = ' state="needs-review-translation"'
        assert fill(document, in_capitals) == cut_unit(expected, state, around=around)


def test_locked_segments_of_trados_are_not_changed(read, fill, in_capitals):
    locks = '<s:seg-defs xmlns:s="urn:sdl"><s:seg id="{}" locked="{}"/></s:seg-defs>'
    state = ' state="needs-review-translation"'
    for target, filled in (
        (f"{seg(1, 'Fest.')}{seg(2)}", f"{seg(1, 'Fest.')}{seg(2, 'TWO.')}"),
        (f"{seg(1)}{seg(2)}", f"{seg(1)}{seg(2, 'TWO.')}"),
        (seg(1, "Fest."), f"{seg(1, 'Fest.')} {seg(2, 'TWO.')}"),
        ("", f'<mrk mtype="seg" mid="1"></mrk> {seg(2, "TWO.")}'),
    ):
        written = cut_unit(target, behind=locks.format(1, "true"))
        document = read("a.sdlxliff", written)
        assert [one.text for one in document.segments] == ["Two."]
        assert fill(document, in_capitals) == cut_unit(filled, state, behind=locks.format(1, "true"))
    assert read("a.sdlxliff", cut_unit("Eins. Zwei.", behind=locks.format(2, "true"))).segments == []
    assert len(read("a.sdlxliff", cut_unit(seg(1), behind=locks.format(1, "false"))).segments) == 2


@pytest.mark.parametrize("state", [' state="needs-review-translation"', ' state="new"'])
def test_unfinished_targets_keep_locked_and_finished_segments(read, state):
    lock = '<seg-defs><seg id="1" locked="true"/></seg-defs>'
    for target, behind in (
        ("Fest. Zwei.", lock),
        (f"{seg(1, 'Fest.')} und {seg(2, 'Zwei.')}", lock),
        (f"{seg(1, 'Fest.')} {seg(3, 'Drei.')}", lock),
        (f"{seg(1, 'Fertig.')} und {marked(seg(2, 'Zwei.'))}", ""),
        (f"{seg(1, 'Fertig.')} {marked(seg(3, 'Drei.'))}", ""),
    ):
        document = read("a.sdlxliff", cut_unit(target, state, behind=behind))
        assert [one.is_finished for one in document.segments] == ([] if behind else [True])
    both = "".join(marked(seg(number, "Eins.")) for number in (1, 3))
    assert [one.is_finished for one in read("a.sdlxliff", cut_unit(both, state)).segments] == [False, False]


def test_protected_parts_of_a_finished_target_stay(read, fill, in_capitals):
    protected = f'<mrk mtype="protected">{seg(2, "Fest.")}</mrk>'
    for there in (protected, '<mrk mtype="protected">Fest.</mrk>'):
        document = read("a.xlf", cut_unit(f"{seg(1, 'Eins.')} {there}"))
        assert [one.is_finished for one in document.segments] == [True]
    protected = f'<mrk mtype="protected">{seg(9, "Fest.")}</mrk>'
    document = read("a.xlf", cut_unit(f"{seg(1)} {protected} {seg(2)}"))
    filled = fill(document, in_capitals)
    assert "Fest." in filled
    assert "TWO." in filled


@pytest.mark.parametrize(
    ("attributes", "is_locked"),
    [
        ('xmlns:mq="MQXliff" mq:locked="locked"', True),
        ('xmlns:m="http://www.memsource.com/mxlf/2.0" m:locked="true"', True),
        ('xmlns:m="http://www.memsource.com/mxlf/2.0" m:locked="false"', False),
    ],
)
def test_locked_units_of_memoq_and_phrase_are_not_changed(read, attributes, is_locked):
    written = one_unit("<source>a</source><target/>").replace("<trans-unit", f"<trans-unit {attributes}")
    for name in ("a.mqxliff", "a.mxliff"):
        assert len(read(name, written).segments) == (not is_locked)


@pytest.mark.parametrize(
    ("content", "text", "target"),
    [
        (
            'a <bpt id="1">[b]</bpt>b<ept id="1">[/b]</ept>',
            "a <g1>b</g1>",
            'A <bpt id="1">[b]</bpt>B<ept id="1">[/b]</ept>',
        ),
        (
            '<bx id="1"/>a<bx id="2"/>b<ex id="1"/>c<ex id="2"/>',
            "<g1>a<x2/>b</g1>c<x3/>",
            '<bx id="1"/>A<bx id="2"/>B<ex id="1"/>C<ex id="2"/>',
        ),
        (
            '<sc id="1"/>a<ph id="3"/><ec startRef="1"/>',
            "<g1>a<x2/></g1>",
            '<sc id="1"/>A<ph id="3"/><ec startRef="1"/>',
        ),
        (
            '<g id="1"/>a<ept id="9"/><g id="2"><bpt id="3">x</bpt></g><ept id="3">y</ept>',
            "<x1/>a<x2/><g3><x4/></g3><x5/>",
            '<g id="1"/>A<ept id="9"/><g id="2"><bpt id="3">x</bpt></g><ept id="3">y</ept>',
        ),
        (
            'a <mrk mtype="protected">Clear<x id="1"/></mrk> &lt;g1&gt;',
            "a <x1/> <x2/>",
            'A <mrk mtype="protected">Clear<x id="1"/></mrk> &lt;g1&gt;',
        ),
        (
            'a<cp hex="0001"/><ph id="1">code <sub>not</sub></ph>',
            "a<x1/><x2/>",
            'A<cp hex="0001"/><ph id="1">code <sub>not</sub></ph>',
        ),
    ],
)
def test_inline_elements_are_kept_in_the_target(read, fill, in_capitals, content, text, target):
    document = read("a.xlf", one_unit(f"<source>{content}</source>"))
    assert document.segments[0].text == text
    assert fill(document, in_capitals) == one_unit(
        f'<source>{content}</source><target state="needs-review-translation">{target}</target>'
    )
    without = fill(document, {text: "wort"})  # a translation without any tag has them all
    ElementTree.fromstring(without)
    for code in ("bpt", "ept", "bx", "ex", "sc", "ec", "mrk", "cp", "g", "ph", "x"):
        assert without.count(f"<{code} ") == 2 * content.count(f"<{code} ")


@pytest.mark.parametrize(
    ("encoding", "declared", "text", "written"),
    [
        ("utf-8", "", "é猫", "é猫"),
        ("utf-8-sig", "", "é猫", "é猫"),
        ("utf-16", "", "é猫", "é猫"),
        ("utf-16-le", "", "é😀", "é😀"),
        ("iso-8859-1", "iso-8859-1", "é猫", "é&#29483;"),
        ("shift_jis", "shift_jis", "猫表é", "猫表&#233;"),
    ],
)
def test_encodings_stay(read, encoding, declared, text, written):
    head = f'<?xml version="1.0" encoding="{declared}"?>\r\n' if declared else ""
    source = "größer" if encoding == "iso-8859-1" else "表表"
    content = one_unit(f"<note>{source}</note><source>a</source>", head=head)
    filled = read("a.xlf", content.encode(encoding)).filled([Filling(text)])
    target = f'</source><target state="needs-review-translation">{written}</target>'
    assert filled == content.replace("</source>", target).encode(encoding)


def test_a_prefix_is_that_of_the_source(read, fill):
    written = (
        '<x:xliff xmlns:x="urn:x" version="1.1"><x:trans-unit>\r\n<x:source xml:space="preserve">a</x:source>'
        "</x:trans-unit></x:xliff>"
    )
    target = '\r\n<x:target xml:space="preserve" state="needs-review-translation">b</x:target>'
    assert fill(read("a.xlf", written), {"a": "b"}) == replaced(written, ("</x:source>", f"</x:source>{target}"))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "the XML is cut off"),
        ("<a/>", "line 1: the first element is <a>; an XLIFF has <xliff>"),
        ('<xliff version="3.0"/>', "line 1: XLIFF 1.1, 1.2 and 2.0 to 2.2 can be read, and this has version '3.0'"),
        ('<xliff version="1.2">\n<a></xliff>', "line 2, column"),
        ('<!DOCTYPE a [<!ENTITY e "x">]><xliff version="1.2"/>', "declares the entity 'e'; entities are refused"),
        (
            b'<?xml version="1.0" encoding="iso-2022-jp"?><xliff version="1.2"/>',
            "is in iso-2022-jp, which cannot be kept",
        ),
        (b'<xliff version="1.2">\n\xff</xliff>', "line 2: byte 1 (0xff) is not valid UTF-8"),
    ],
)
def test_invalid_xliff_documents_are_rejected(read, written, message):
    with pytest.raises(DataError) as caught:
        read("a.xlf", written)
    assert message in str(caught.value)
    assert "a.xlf" in str(caught.value)


def test_filled_rejects_characters_that_xml_forbids(read):
    document = read("a.xlf", one_unit("\n<source>a</source>"))
    for text in ("a\x01", "\ud83d", "\ufffe"):
        with pytest.raises(DataError, match=rf"a\.xlf, line 2: .* holds U\+{ord(text[-1]):04X}, which XML"):
            document.filled([Filling(text)])
    assert b">x&#13;\ny</target>" in document.filled([Filling("x\r\ny")])


def test_real_xliff_files_round_trip_and_are_filled(data_dir, tmp_path):
    paths = sorted(data_dir("formats").glob("*.xlf"))
    assert len(paths) == 2
    for path in paths:
        document = read_document(str(path))
        assert len(document.segments) == (116 if path.name.startswith("symfony") else 44)
        assert document.filled([None] * len(document.segments)) == path.read_bytes()
        new = tmp_path / path.name
        new.write_bytes(document.filled([Filling(one.text.upper()) for one in document.segments]))
        assert texts(read_pairs([str(new)])) == [
            (one.text.replace("\n", " "), one.text.upper().replace("\n", " ")) for one in document.segments
        ]
        assert {pair.skipped for pair in read_pairs([str(new)])} == {"unfinished" if "symfony" in path.name else None}


@pytest.mark.parametrize("sample", [OLD, NEW])
def test_random_changes_of_an_xliff_are_rejected_or_filled(sample):
    pieces = ["<", ">", "&", '"', "/", "<x/>", "</g>", "]]>", "<!--", "<source>", "</target>", "\r", "&lt;/g1&gt;"]
    pieces += ["<bx id='1'/>", "<ex id='1'/>", "<mrk mtype='seg'>a</mrk>", 'translate="no"']
    for document in filled_after_random_changes(sample, pieces, lambda data: XliffDocument(data, "a.xlf")):
        assert all(one.translation.startswith(("é", "<g", "<x")) for one in document.segments)


# Languages, versions, annotations and sequences


@pytest.mark.parametrize(
    ("written", "languages", "expected"),
    [
        (
            '<xliff version="1.2"><file source-language="en" a=">"><trans-unit><source>x</source></trans-unit></file>'
            '<file target-language="de-AT"/></xliff>',
            (None, "de"),
            '<xliff version="1.2"><file source-language="en" a=">" target-language="de"><trans-unit>'
            "<source>x</source></trans-unit></file>"
            '<file target-language="de-AT"/></xliff>',
        ),
        (
            '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" trgLang=""><file source-language="x"/></xliff>',
            ("en", "pt_BR"),
            '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" trgLang="pt-BR" srcLang="en">'
            '<file source-language="x"/></xliff>',
        ),
    ],
)
def test_languages_that_the_file_lacks_are_written(written, languages, expected):
    document = XliffDocument(written.encode(), "a.xlf", *languages)
    assert document.filled([None] * len(document.segments)).decode() == expected


def test_the_language_of_the_translations_is_written_where_the_file_names_none():
    unit = "<unit><segment><source>x</source></segment></unit>"
    document = XliffDocument(f'<xliff version="2.0" srcLang="en">{unit}</xliff>'.encode(), "a.xlf")
    filled = document.filled_in("zh_Hans", [Filling("y")]).decode()
    assert filled.startswith('<xliff version="2.0" srcLang="en" trgLang="zh-Hans"><unit>')
    given = XliffDocument(b'<xliff version="2.0" trgLang="fr"/>', "a.xlf", to_lang="fr")
    assert given.filled_in("de", []) == b'<xliff version="2.0" trgLang="fr"/>'


def test_a_file_element_in_another_language_is_kept():
    unit = "<trans-unit><source>x</source></trans-unit>"
    written = f'<xliff version="1.2"><file>{unit}</file><file target-language="fr">{unit}</file></xliff>'
    document = XliffDocument(written.encode(), "a.xlf", to_lang="de")
    assert len(document.segments) == 1
    target = '<target state="needs-review-translation">y</target>'
    expected = written.replace("<file>", '<file target-language="de">').replace("</source>", f"</source>{target}", 1)
    assert document.filled([Filling("y")]).decode() == expected


def test_a_language_that_is_not_that_of_the_file_is_refused():
    written = b'<xliff version="1.2">\n<file source-language="en" target-language="fr"/></xliff>'
    with pytest.raises(ConfigError, match=r"a.xlf, line 2: target-language is 'fr', and --to-lang 'de'; ask for"):
        XliffDocument(written, "a.xlf", to_lang="de")
    with pytest.raises(ConfigError, match="'de!' is no language"):
        XliffDocument(written, "a.xlf", to_lang="de!")


@pytest.mark.parametrize("version", ["1.2", "2.2"])
def test_the_namespace_says_the_version_where_nothing_else_does(read, version):
    unit = "<unit><segment><source>a</source></segment></unit>"
    unit = "<trans-unit><source>a</source></trans-unit>" if version == "1.2" else unit
    document = read("a.xlf", f'<xliff xmlns="urn:oasis:names:tc:xliff:document:{version}">{unit}</xliff>')
    assert [one.text for one in document.segments] == ["a"]


def of_version_2(*segments: str) -> str:
    return f'<xliff version="2.0"><unit>{"".join(segments)}</unit></xliff>'


def test_untranslatable_annotations_become_one_tag_per_segment(tmp_path):
    sources = [
        'Press <sm id="1" translate="no"/>ESC <ph id="2"/>',
        "All of it",
        'KEY<em startRef="1"/> now <sm id="3" translate="no"/>X<em startRef="3"/> <sm id="4"/>then<em startRef="4"/>',
        '<pc id="5">a <sm id="6" translate="no"/>B</pc> C<em startRef="6"/> d',
        '<sm id="7" translate="no"/>A <pc id="8">B<em startRef="7"/> c</pc>',
    ]
    segments = [f"<segment><source>{one}</source><target>{one}</target></segment>" for one in sources]
    path = tmp_path / "a.xlf"
    path.write_text(of_version_2(*segments), encoding="utf-8")
    document = read_document(str(path))
    expected = [
        "Press <x1/>",
        "<x1/>",
        "<x1/> now <x2/> <x3/>then<x4/>",
        "<g1>a <x2/></g1><x3/> d",
        "<x1/><g2><x3/> c</g2>",
    ]
    assert [one.text for one in document.segments] == expected
    assert [one.translation for one in document.segments] == expected
    pairs = list(read_pairs([str(path)], Wanted(from_lang="en", to_lang="de")))
    assert [(pair.source, pair.target) for pair in pairs] == [(text, text) for text in expected]
    filled = document.filled([Filling(text.replace("now", "jetzt")) for text in expected]).decode()
    for source in sources:
        assert f">{source.replace('now', 'jetzt')}</target>" in filled


def test_an_annotation_may_end_between_segments(read):
    between = "<ignorable><source> B<em startRef='1'/></source></ignorable>"
    first = '<segment><source>a <sm id="1" translate="no"/>A</source></segment>'
    document = read("a.xlf", of_version_2(first, between, "<segment><source>b</source></segment>"))
    assert [one.text for one in document.segments] == ["a <x1/>", "b"]


def test_codes_that_may_not_be_reordered_keep_their_order(read, fill):
    source = (
        '<ph id="1"/>a <ph id="2" canReorder="firstNo"/>b<pc id="3" canReorder="no">c</pc>'
        '<ph id="4" canReorder="no"/> <ph id="5" canReorder="firstNo"/>'
    )
    document = read("a.xlf", of_version_2(f"<segment><source>{source}</source></segment>"))
    [segment] = document.segments
    assert segment.text == "<x1/>a <x2/>b<g3>c</g3><x4/> <x5/>"
    filled = fill(document, {segment.text: "<x5/><x4/> <g3>C</g3> <x2/>B A<x1/>"})
    target = filled.partition("<target>")[2].partition("</target>")[0]
    assert target == (
        '<ph id="5" canReorder="firstNo"/><ph id="2" canReorder="firstNo"/> <pc id="3" canReorder="no">C</pc> '
        '<ph id="4" canReorder="no"/>B A<ph id="1"/>'
    )


def test_a_match_has_the_elements_of_the_text(read):
    texts = '<ph id="1" dataRef="d"/> a <b:x xmlns:b="urn:b"/>'
    match = Suggestion("Old <x1/> <g9>a</g9>", "Alt &<x1/>", 0.8)
    old = read("a.xlf", one_unit(f"<source>{texts}</source>"))
    filled = old.filled([Filling("<x1/> A <x2/>", suggestion=match)]).decode()
    assert '<source>Old <ph id="1" dataRef="d"/> a</source><target>Alt &amp;<ph id="1" dataRef="d"/>' in filled
    new = read("b.xlf", of_version_2(f'<segment id="s"><source>{texts}</source></segment>'))
    filled = new.filled([Filling("<x1/> A <x2/>", suggestion=match)]).decode()
    assert '<source>Old <ph id="1"/> a</source><target>Alt &amp;<ph id="1"/></target></mtc:match>' in filled


def test_the_tag_set_of_the_w3c_forbids_translation_too(read):
    units = '<trans-unit i:translate="no"><source>a</source></trans-unit><trans-unit><source>b</source></trans-unit>'
    document = read("a.xlf", f'<xliff version="1.2" xmlns:i="http://www.w3.org/2005/11/its">{units}</xliff>')
    assert [one.text for one in document.segments] == ["b"]


def segment(source: str, attributes: str = "") -> str:
    return f"<segment{attributes}><source>{source}</source></segment>"


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('<group translate="no"><unit translate="yes">a</unit></group><unit>b</unit>', ["a", "b"]),
        ('<group i:translate="no"><unit translate="yes">a</unit><unit>b</unit></group>', ["a"]),
        ('<group translate="no"><unit i:translate="yes">a</unit><unit>b</unit></group>', ["a"]),
        ('<group translate="yes"><unit translate="no" i:translate="yes">a</unit></group>', []),
    ],
)
def test_the_innermost_element_says_whether_a_unit_is_translated(read, content, texts):
    for version, unit in (("2.0", "unit"), ("1.2", "trans-unit")):
        written = content.replace("unit", unit)
        for text in "ab":
            source = segment(text) if unit == "unit" else f"<source>{text}</source>"
            written = written.replace(f">{text}<", f">{source}<")
        document = read(
            "a.xlf", f'<xliff version="{version}" xmlns:i="http://www.w3.org/2005/11/its">{written}</xliff>'
        )
        assert [one.text for one in document.segments] == texts


@pytest.mark.parametrize(("num_annotations", "num_segments"), [(50, 51), (5_000, 1)])
def test_many_annotations_in_each_other_are_not_examined(read, num_annotations, num_segments):
    begin = "".join(f'<sm id="n{i}" translate="no"/>a<sm id="y{i}" translate="yes"/>b' for i in range(num_annotations))
    end = "".join(f'<em startRef="y{i}"/><em startRef="n{i}"/>' for i in reversed(range(num_annotations)))
    document = read("a.xlf", f'<xliff version="2.0"><unit>{segment(begin + end)}</unit></xliff>')
    assert len(document.segments) == num_segments


@pytest.mark.parametrize(
    ("attributes", "source", "texts", "target"),
    [
        # A text that is translated, within one that is not, has a segment of its own.
        ("no", 'Run <mrk id="m" translate="yes">now</mrk> X', ["now"], 'Run <mrk id="m" translate="yes">NOW</mrk> X'),
        ("no", 'A <sm id="m" translate="yes"/>b <ph id="p"/><em startRef="m"/> C', ["b <x1/>"],
         'A <sm id="m" translate="yes"/>B <ph id="p"/><em startRef="m"/> C'),
        ("no", '<pc id="1">A <mrk id="m" translate="yes">b</mrk></pc> <mrk id="n" translate="yes">c</mrk>', ["b", "c"],
         '<pc id="1">A <mrk id="m" translate="yes">B</mrk></pc> <mrk id="n" translate="yes">C</mrk>'),
        ("yes", 'a <mrk id="m" translate="no">B <mrk id="n" translate="yes">c</mrk></mrk>', ["a <x1/>", "c"],
         'A <mrk id="m" translate="no">B <mrk id="n" translate="yes">C</mrk></mrk>'),
        ("yes", 'a <sm id="m" translate="no"/>B <mrk id="n" translate="yes">c</mrk><em startRef="m"/>',
         ["a <x1/>", "c"],
         'A <sm id="m" translate="no"/>B <mrk id="n" translate="yes">C</mrk><em startRef="m"/>'),
        # Nested twice.
        ("no",
         '<mrk id="m" translate="yes">a <mrk id="n" translate="no">B <mrk id="o" translate="yes">c</mrk></mrk></mrk>',
         ["a <x1/>", "c"],
         '<mrk id="m" translate="yes">A <mrk id="n" translate="no">B <mrk id="o" translate="yes">C</mrk></mrk></mrk>'),
        # An annotation that ends within the other is not nested, and `b` is a word of the text.
        ("yes", '<sm id="m" translate="no"/>A <mrk id="n" translate="yes">B<em startRef="m"/> c</mrk>',
         ["<x1/><g2><x3/> c</g2>"],
         '<sm id="m" translate="no"/>A <mrk id="n" translate="yes">B<em startRef="m"/> C</mrk>'),
        ("no", '<sm id="m" translate="yes"/>A', [], None),
        ("no", '<mrk id="m" translate="yes"> </mrk>', [], None),
    ],
)  # fmt: skip
def test_a_text_that_is_translated_within_one_that_is_not_is_a_segment(tmp_path, attributes, source, texts, target):
    path = tmp_path / "a.xlf"
    unit = f'<unit id="u" translate="{attributes}"><segment id="s"><source>{source}</source></segment></unit>'
    path.write_text(f'<xliff version="2.0">{unit}</xliff>', encoding="utf-8")
    document = read_document(str(path))
    assert [one.text for one in document.segments] == texts
    capitals = [Filling(re.sub(r"(?<![<\w/])[a-z]+(?![\w/]*>)", lambda word: word[0].upper(), text)) for text in texts]
    filled = document.filled(capitals).decode()
    assert filled.partition("<target>")[2].partition("</target>")[0] == (target or "")
    path.write_text(filled, encoding="utf-8")
    pairs = list(read_pairs([str(path)], Wanted(from_lang="en", to_lang="de")))
    read_again = [(pair.source, pair.target) for pair in pairs if pair.skipped is None]
    assert read_again == [(text, filling.text) for text, filling in zip(texts, capitals, strict=True)]
    assert [one.translation for one in read_document(str(path)).segments] == [one.text for one in capitals]


def test_a_finished_text_keeps_what_is_translated_within_it(read):
    source = 'a <mrk id="m" translate="no">B <mrk id="n" translate="yes">c</mrk></mrk>'
    written = f'<segment state="final"><source>{source}</source><target>fertig</target></segment>'
    document = read("a.xlf", of_version_2(written))
    assert [(one.text, one.is_finished) for one in document.segments] == [("a <x1/>", True), ("c", True)]


def test_a_finished_target_without_the_texts_within_it_is_kept(read):
    source = '<mrk id="m" translate="yes">a</mrk> B <mrk id="n" translate="yes">c</mrk>'
    for target in ("fertig", '<mrk id="m" translate="yes">A</mrk> B c'):
        written = f"<segment><source>{source}</source><target>{target}</target></segment>"
        document = read("a.xlf", f'<xliff version="2.0"><unit translate="no">{written}</unit></xliff>')
        assert [(one.text, one.is_finished) for one in document.segments] == [("a", True), ("c", True)]


def test_marks_of_version_1_say_what_is_translated(read, fill):
    source = 'a <mrk mtype="protected">B <mrk mtype="x-its-translate-yes">c</mrk></mrk>'
    document = read("a.xlf", one_unit(f"<source>{source}</source>"))
    assert [one.text for one in document.segments] == ["a <x1/>", "c"]
    filled = fill(document, {"a <x1/>": "A <x1/>", "c": "C"})
    target = 'A <mrk mtype="protected">B <mrk mtype="x-its-translate-yes">C</mrk></mrk>'
    assert f">{target}</target>" in filled


def test_nested_marks_take_time_linear_in_their_number(read):
    marks = '<mrk translate="yes">a <mrk translate="no">B <mrk translate="yes">c</mrk></mrk></mrk>'

    def translated(number: int) -> None:
        document = read("a.xlf", f'<xliff version="2.0"><unit translate="no">{segment(marks * number)}</unit></xliff>')
        assert len(document.segments) == 2 * number
        document.filled([Filling(one.text) for one in document.segments])

    assert_linear(translated, 50)


def test_empty_segments_of_a_source_have_no_segment(read, fill, in_capitals):
    source = f"<source>Two.</source><seg-source>{seg(1)}{seg(2, 'Two.')}</seg-source>"
    document = read("a.xlf", one_unit(source))
    assert [one.text for one in document.segments] == ["Two."]
    target = f'<target state="needs-review-translation">{seg(1)}{seg(2, "TWO.")}</target>'
    assert fill(document, in_capitals) == one_unit(source + target)


def test_code_in_the_original_data_is_paired_like_code_in_the_text(tmp_path):
    data = {"d1": "&lt;b&gt;", "d2": "&lt;/b&gt;", "d3": "&lt;br/&gt;", "d4": '&lt;a href="x"&gt;', "d5": "&lt;/a&gt;"}
    written = "".join(f'<data id="{name}">{code}</data>' for name, code in data.items())
    codes = [f'<ph id="{number}" dataRef="d{number}"/>' for number in range(1, 6)]
    source = "{0}Open{1} {3}the file{4}{2}".format(*codes)
    path = tmp_path / "a.xlf"
    path.write_text(
        f'<xliff version="2.0" srcLang="en" trgLang="de"><file><unit><originalData>{written}</originalData>'
        f"<segment><source>{source}</source></segment></unit></file></xliff>",
        encoding="utf-8",
    )
    document = read_document(str(path))
    [segment] = document.segments
    assert (segment.text, segment.links) == ("<g1>Open</g1> <g2>the file</g2><x3/>", {2})
    # A closing tag that the model wrote before its opening one is mended, as for code in the text.
    path.write_bytes(document.filled([Filling("</g1>Die <g2>Datei</g2> öffnen<g1><x3/>")]))
    target = path.read_text(encoding="utf-8").partition("<target>")[2].partition("</target>")[0]
    assert target.index('id="1"') < target.index('id="2"')
    path.write_bytes(document.filled([Filling("<g2>Die Datei</g2> <g1>öffnen</g1><x3/>")]))
    [pair] = read_pairs([str(path)])
    assert (pair.source, pair.target) == (segment.text, "<g2>Die Datei</g2> <g1>öffnen</g1><x3/>")


@pytest.mark.parametrize(
    ("attributes", "most"),
    [
        ('maxwidth="12" size-unit="char"', 12),
        ('maxwidth="12" size-unit="pixel"', None),
        ('maxwidth="12"', None),  # pixels
    ],
)
def test_a_unit_of_version_1_may_limit_its_length(read, attributes, most):
    document = read("a.xlf", one_unit("<source>a</source>").replace("<trans-unit", f"<trans-unit {attributes}"))
    assert [one.limit and one.limit.most for one in document.segments] == [most]


@pytest.mark.parametrize(
    ("restriction", "profile", "most"),
    [("12", "codepoints", 12), ("2, 12", "codepoints", 12), ("*", "codepoints", None), ("12", "other", None)],
)
def test_a_unit_of_version_2_may_limit_its_length(read, restriction, profile, most):
    units = f"{segment('a')}{segment('b')}</unit><unit>{segment('c')}"
    document = read(
        "a.xlf",
        '<xliff version="2.1" xmlns:s="urn:oasis:names:tc:xliff:sizerestriction:2.0"><file>'
        f'<s:profiles generalProfile="xliff:{profile}"/>'
        f'<unit s:sizeRestriction="{restriction}">{units}</unit></file></xliff>',
    )
    limits = [one.limit for one in document.segments]
    assert [limit and limit.most for limit in limits] == [most, most, None]
    assert limits[0] == limits[1]


def random_content(draw: random.Random, words: list[str], depth: int = 0) -> str:
    """Return the content of a source or target: words, code, markup and segments; its words are added to a list."""
    parts: list[str] = []
    for _ in range(draw.randrange(4)):
        kind = draw.choice(["words", "code", "empty segment", "segment", "markup"])
        if kind == "words" and draw.random() < 0.5:  # usually there are none outside of segments
            words.append(f"w{len(words)}w")
            parts.append(words[-1])
        elif kind == "code":
            parts.append(f'<x id="{draw.randrange(3)}"/>')
        elif kind == "empty segment":
            parts.append(seg(draw.randrange(3)))
        elif kind == "segment":
            words.append(f"w{len(words)}w")
            parts.append(seg(draw.randrange(3), words[-1]))
        elif kind == "markup" and depth < 2:
            parts.append(f'<g id="{draw.randrange(3)}">{random_content(draw, words, depth + 1)}</g>')
    return " ".join(parts)


def test_no_word_of_a_finished_target_is_lost():
    draw = random.Random("targets")
    filled_units = 0
    for _ in range(3_000):
        words: list[str] = []
        cut, target = random_content(draw, []), random_content(draw, words)
        locks = f'<seg-defs><seg id="{draw.randrange(3)}" locked="true"/></seg-defs>' if draw.random() < 0.3 else ""
        texts = f"<source>a</source><seg-source>{cut}</seg-source><target>{target}</target>{locks}"
        document = XliffDocument(one_unit(texts).encode(), "a.xlf")
        new = [None if one.is_finished else Filling("neu") for one in document.segments]
        written = ElementTree.fromstring(document.filled(new)).find(".//target")
        kept = "".join(written.itertext())
        assert [word for word in words if word not in kept] == [], texts
        filled_units += "neu" in kept
    assert filled_units > 500
