"""Translators' files: states, segments and inline elements of XLIFF 1.2 and 2.0, and a lossless round trip."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_files import xml_sides

from clearhead.errors import ConfigError, DataError
from clearhead.formats import SKIPS, PairFile, SentencePair, Wanted, holds_pairs, read_pairs, write_tsv
from clearhead.formats.tmx.pairs import write_tmx
from clearhead.formats.xliff.pairs import open_xliff, write_xliff

NAMESPACE_1 = "urn:oasis:names:tc:xliff:document:1.2"
NAMESPACE_2 = "urn:oasis:names:tc:xliff:document:2.0"


def version_1(path: Path, body: str, languages: str = 'source-language="en" target-language="de"') -> str:
    path.write_text(
        f'<xliff version="1.2" xmlns="{NAMESPACE_1}">\n'
        f'<file original="f" datatype="plaintext" {languages}><body>\n{body}</body></file></xliff>\n',
        encoding="utf-8",
    )
    return str(path)


def version_2(path: Path, body: str, languages: str = 'srcLang="en" trgLang="de"') -> str:
    path.write_text(
        f'<xliff version="2.0" xmlns="{NAMESPACE_2}" xmlns:m="urn:oasis:names:tc:xliff:matches:2.0" {languages}>\n'
        f'<file id="f">\n{body}</file></xliff>\n',
        encoding="utf-8",
    )
    return str(path)


def rows(file: PairFile) -> list[tuple[str, str, str | None]]:
    return [(pair.source, pair.target, pair.skipped or pair.defect) for pair in file.pairs]


def read_1(path: Path, body: str) -> list[tuple[str, str, str | None]]:
    return rows(open_xliff(version_1(path / "f.xlf", body), Wanted()))


def read_2(path: Path, body: str) -> list[tuple[str, str, str | None]]:
    return rows(open_xliff(version_2(path / "f.xlf", body), Wanted()))


@pytest.mark.parametrize(
    ("name", "read_as", "count", "place", "pair"),
    [
        (
            "symfony-validators.en-de.xlf",
            "XLIFF 1.2; from en to de",
            116,
            2,
            ("This value should be of type {{ type }}.", "Dieser Wert sollte vom Typ {{ type }} sein.", "13"),
        ),
        ("tmxeditor-java.en-fr.xlf", "XLIFF 2.0; from en to fr", 44, 0, ("No subscription", "Aucun abonnement", "40")),
    ],
)
def test_files_of_both_versions_are_read(data_dir, name, read_as, count, place, pair):
    path = str(data_dir("formats") / name)
    file = open_xliff(path, Wanted())
    pairs = list(file.pairs)
    assert (file.read_as, len(pairs)) == (read_as, count)
    assert [pair for pair in pairs if pair.skipped or pair.defect] == []
    assert pairs[place] == SentencePair(*pair[:2], f"{path}:{pair[2]}")


@pytest.mark.parametrize(
    ("attributes", "target", "skipped"),
    [
        ("", "<target>Hund</target>", None),
        ("", '<target state="translated">Hund</target>', None),
        ("", '<target state="final">Hund</target>', None),
        ('approved="no"', "<target>Hund</target>", None),
        ("", '<target state="x-reviewed">Hund</target>', None),
        ("", "", "untranslated"),
        ("", "<target/>", "untranslated"),
        ("", '<target state="new"> \n</target>', "untranslated"),
        ("", '<target state="new">Hund</target>', "unfinished"),
        ("", '<target state="needs-translation">Hund</target>', "unfinished"),
        ('approved="no"', '<target state="needs-review-translation">Hund</target>', "unfinished"),
        ('translate="no"', "<target>Hund</target>", "not_to_translate"),
        ('translate="no"', "", "not_to_translate"),
        ('translate="yes"', "<target>Hund</target>", None),
    ],
)
def test_state_of_a_version_1_unit_decides_whether_it_is_skipped(tmp_path, attributes, target, skipped):
    ((source, _, found),) = read_1(
        tmp_path, f'<trans-unit id="1" {attributes}><source>dog</source>{target}</trans-unit>'
    )
    assert (source, found) == ("dog", skipped)
    assert skipped is None or skipped in SKIPS


@pytest.mark.parametrize(
    ("unit", "segment", "target", "skipped"),
    [
        ("", "", "<target>Hund</target>", None),
        ("", 'state="translated"', "<target>Hund</target>", None),
        ("", 'state="final"', "<target>Hund</target>", None),
        ("", 'state="initial"', "<target>Hund</target>", "unfinished"),
        ("", 'state="initial"', "", "untranslated"),
        ("", 'state="final"', "<target></target>", "untranslated"),
        ('translate="no"', 'state="final"', "<target>Hund</target>", "not_to_translate"),
    ],
)
def test_state_of_a_version_2_segment_decides_whether_it_is_skipped(tmp_path, unit, segment, target, skipped):
    body = f'<unit id="u" {unit}><segment {segment}><source>dog</source>{target}</segment></unit>'
    ((source, _, found),) = read_2(tmp_path, body)
    assert (source, found) == ("dog", skipped)


def test_translate_no_is_inherited_and_can_be_overridden(tmp_path):
    def unit(name: str, said: str = "") -> str:
        return f'<unit id="{name}" {said}><segment><source>{name}</source><target>x</target></segment></unit>\n'

    taken_back = unit("b", "translate='yes'")
    inner = f'<group id="h">{unit("c")}</group>'
    body = f'<group id="g" translate="no">{unit("a")}{taken_back}{inner}</group>{unit("d")}'
    skipped = [("a", "not_to_translate"), ("b", None), ("c", "not_to_translate"), ("d", None)]
    assert [row[::2] for row in read_2(tmp_path, body)] == skipped
    body = body.replace("unit", "trans-unit").replace("<segment>", "").replace("</segment>", "")
    assert [row[::2] for row in read_1(tmp_path, body)] == skipped


def test_suggestions_notes_and_extensions_are_no_text(tmp_path):
    body = """<trans-unit id="1"><note>x</note><alt-trans><source>x</source><target>x</target></alt-trans>
<m:source xmlns:m="urn:m">x</m:source><source>dog</source><target>Hund</target>
<alt-trans><target>x</target></alt-trans></trans-unit>
<m:trans-unit xmlns:m="urn:m"><source>x</source><target>x</target></m:trans-unit>"""
    assert read_1(tmp_path, body) == [("dog", "Hund", None)]
    body = """<notes><note>x</note></notes><unit id="1"><m:matches><m:match ref="#s"><source>x</source>
<target>x</target></m:match></m:matches><originalData><data id="d">x</data></originalData><segment><source>dog</source>
<target>Hund</target></segment><ignorable><source> </source></ignorable></unit>"""
    assert read_2(tmp_path, body) == [("dog", "Hund", None)]


def test_inline_elements_are_tags_with_the_same_number_on_both_sides(tmp_path):
    body = """<trans-unit id="1"><source><g id="a">big</g> <x id="b"/> dog</source>
<target><x id="b"/> <g id="a">großer</g> Hund</target></trans-unit>"""
    assert read_1(tmp_path, body) == [("<g1>big</g1> <x2/> dog", "<x2/> <g1>großer</g1> Hund", None)]
    body = """<unit id="1"><segment><source><pc id="1" dataRefStart="d">big</pc> dog<ph id="2"/><cp hex="0001"/>
</source><target>Hund<ph id="2"/>, <pc id="1">großer</pc></target></segment></unit>"""
    assert read_2(tmp_path, body) == [("<g1>big</g1> dog<x2/><x3/>", "Hund<x2/>, <g1>großer</g1>", None)]


def test_a_unit_cut_into_segments_on_both_sides_gives_a_pair_for_each(tmp_path):
    def seg(name: int, text: str) -> str:
        return f'<mrk mtype="seg" mid="{name}">{text}</mrk>'

    second, zweite = 'T<x id="1"/>o.', 'Zw<x id="1"/>i.'
    source = f"<source>One. Two.</source>\n<seg-source>{seg(1, 'One.')} {seg(2, second)}</seg-source>\n"
    target = f"<target>{seg(1, 'Eins.')}\n{seg(2, zweite)}</target>"
    assert read_1(tmp_path, f'<trans-unit id="1">{source}{target}</trans-unit>') == [
        ("One.", "Eins.", None),
        ("T<x1/>o.", "Zw<x1/>i.", None),
    ]
    # Uncut, it is one pair; cut without a partner, a segment is untranslated.
    target = "<target>Eins. Zwei.</target>"
    assert read_1(tmp_path, f'<trans-unit id="1">{source}{target}</trans-unit>') == [("One. Two.", "Eins. Zwei.", None)]
    target = f'<target state="needs-l10n">{seg(1, "Eins.")}{seg(3, "Drei.")}</target>'
    assert read_1(tmp_path, f'<trans-unit id="1">{source}{target}</trans-unit>') == [
        ("One.", "Eins.", "unfinished"),
        ("T<x1/>o.", "", "untranslated"),
        ("", "Drei.", "unfinished"),
    ]
    # Markup around and between the segments is no part of them.
    target = f"<target><x id='1'/><g id='2'>{seg(1, 'Eins.')}<x id='3'/>{seg(2, '')}</g></target>"
    assert read_1(tmp_path, f'<trans-unit id="1">{source}{target}</trans-unit>') == [
        ("One.", "Eins.", None),
        ("T<x1/>o.", "", "untranslated"),
    ]
    # With words outside of its segments it is one pair, as in a document.
    target = f"<target>{seg(1, 'Eins.')} und <x id='1'/>{seg(2, 'Zwei.')}</target>"
    assert read_1(tmp_path, f'<trans-unit id="1">{source}{target}</trans-unit>') == [
        ("One. Two.", "<g1>Eins.</g1> und <x2/><g3>Zwei.</g3>", None)
    ]


def test_a_unit_of_several_segments_gives_a_pair_for_each(tmp_path):
    body = """<unit id="1"><segment><source>One. </source><target>Eins. </target></segment>
<segment state="initial"><source>Two.</source><target>Zwei?</target></segment></unit>"""
    path = version_2(tmp_path / "f.xlf", body)
    assert list(open_xliff(path, Wanted()).pairs) == [
        SentencePair("One. ", "Eins. ", f"{path}:3"),
        SentencePair("Two.", "Zwei?", f"{path}:4", skipped="unfinished"),
    ]


UNIT = '<trans-unit id="1"><source>dog</source><target>Hund</target></trans-unit>\n'


@pytest.mark.parametrize("languages", ["en", "en-US", "de"])
def test_both_directions_can_be_asked_for(tmp_path, languages):
    path = version_1(tmp_path / "f.xlf", UNIT, 'source-language="en-US" target-language="de"')
    asked = Wanted(from_lang="de", to_lang="en") if languages == "de" else Wanted(from_lang=languages)
    expected = ("Hund", "dog", None) if languages == "de" else ("dog", "Hund", None)
    assert rows(open_xliff(path, asked)) == [expected]


def test_file_elements_of_other_languages_are_skipped(tmp_path):
    path = tmp_path / "f.xlf"
    files = "".join(
        f'<file source-language="en" target-language="{language}"><body><trans-unit id="1"><source>dog</source>'
        f"<target>{text}</target></trans-unit></body></file>\n"
        for language, text in (("de", "Hund"), ("fr", "chien"))
    )
    path.write_text(f'<xliff version="1.2">{files}</xliff>')
    with pytest.raises(ConfigError, match=r"f\.xlf has 3 languages: en, de, fr; say which two to read"):
        read_pairs([str(path)])
    assert rows(open_xliff(str(path), Wanted(from_lang="en", to_lang="fr"))) == [
        ("", "", "other_languages"),
        ("dog", "chien", None),
    ]
    assert rows(open_xliff(str(path), Wanted(from_lang="de", to_lang="fr"))) == [("", "", "other_languages")] * 2
    with pytest.raises(ConfigError, match=r"no text in 'it'; its languages: en, de, fr"):
        open_xliff(str(path), Wanted(from_lang="en", to_lang="it"))


def test_a_target_language_without_a_name_may_be_any(tmp_path):
    path = version_1(tmp_path / "f.xlf", UNIT, 'source-language="en"')
    assert open_xliff(path, Wanted()).sides == ("en", "one without a name")
    for asked in (Wanted(), Wanted(from_lang="en"), Wanted(to_lang="de"), Wanted(from_lang="en", to_lang="de")):
        assert rows(open_xliff(path, asked)) == [("dog", "Hund", None)]
    assert rows(open_xliff(path, Wanted(from_lang="de", to_lang="en"))) == [("Hund", "dog", None)]
    # It may be named where the text is.
    named = UNIT.replace("<target>", '<target xml:lang="de">')
    path = version_1(tmp_path / "f.xlf", named, 'source-language="en"')
    assert open_xliff(path, Wanted()).sides == ("en", "de")


def test_a_file_of_one_language_has_no_pairs(tmp_path):
    path = version_1(tmp_path / "f.xlf", UNIT, 'source-language="en" target-language="EN"')
    with pytest.raises(DataError, match="texts in one language only: en"):
        open_xliff(path, Wanted())


def test_a_file_without_units_is_empty(tmp_path):
    file = open_xliff(version_1(tmp_path / "f.xlf", ""), Wanted())
    assert (file.format, list(file.pairs)) == ("XLIFF 1.2, empty", [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<tmx/>", r"f\.xlf, line 1: the first element is <tmx>; an XLIFF has <xliff>"),
        (
            '\n<xliff version="3.0"/>',
            r"line 2: XLIFF 1\.1, 1\.2 and 2\.0 to 2\.2 can be read, and this has version '3\.0'",
        ),
        ("<xliff/>", "this has version ''"),
        ('<xliff version="1.2"><file>', "the XML is cut off"),
    ],
)
def test_invalid_xliff_is_rejected_when_opened(tmp_path, content, message):
    (tmp_path / "f.xlf").write_text(content)
    with pytest.raises(DataError, match=message):
        read_pairs([str(tmp_path / "f.xlf")])


def test_a_unit_without_source_is_a_defect(tmp_path):
    body = f'<trans-unit id="1"><target>Hund</target></trans-unit>\n{UNIT}'
    assert read_1(tmp_path, body) == [("", "", "it has no <source>"), ("dog", "Hund", None)]
    body = '<unit id="1"><segment/><segment><source>a</source><target>b</target></segment></unit>'
    assert read_2(tmp_path, body) == [("", "", "it has no <source>"), ("a", "b", None)]


def test_a_prefix_on_every_element_and_version_1_1_are_read(tmp_path):
    path = tmp_path / "f.xlf"
    path.write_text(
        '<x:xliff version="1.1" xmlns:x="urn:oasis:names:tc:xliff:document:1.1"><x:file source-language="en" '
        'target-language="de"><x:body><x:trans-unit id="1"><x:source>dog</x:source><x:target>Hund</x:target>'
        "</x:trans-unit></x:body></x:file></x:xliff>"
    )
    file = open_xliff(str(path), Wanted())
    assert (file.format, rows(file)) == ("XLIFF 1.1", [("dog", "Hund", None)])


def test_any_namespace_of_the_whole_file_is_the_formats_own(tmp_path):
    path = tmp_path / "f.xlf"
    body = f'<file source-language="en" target-language="de"><body>{UNIT}</body></file>'
    for namespace in ("", 'xmlns="urn:of-our-own"'):
        path.write_text(f'<xliff version="1.2" {namespace}>{body}</xliff>')
        assert rows(open_xliff(str(path), Wanted())) == [("dog", "Hund", None)]


def test_a_translators_file_is_a_file_of_pairs(tmp_path):
    for name in ("f.xlf", "f.XLIFF"):
        path = version_1(tmp_path / name, UNIT)
        assert holds_pairs(path)
        assert [(pair.source, pair.target) for pair in read_pairs([path], swap=True)] == [("Hund", "dog")]


def test_every_unit_is_one_row(tmp_path):
    states = ["new", "translated", "needs-l10n", "final"]
    body = "".join(
        f'<trans-unit id="{n}"><source>a</source><target state="{states[n % 4]}">b</target></trans-unit>'
        for n in range(97)
    )
    assert Counter(row[2] for row in read_1(tmp_path, body)) == {None: 48, "unfinished": 49}


def test_write_xliff_output_is_valid_xliff_1_2(tmp_path):
    path = tmp_path / "f.xlf"
    pairs = [SentencePair("a <x1/> & b", "ä", "x:1"), SentencePair(" c ", "", "x:2")]
    assert write_xliff(str(path), iter(pairs), ("en", "pt_BR")) == 2
    root = ElementTree.parse(path).getroot()
    (file,) = root
    # What XLIFF 1.2 requires of a file (section 2.2.1): original, source-language, datatype.
    assert (root.tag, root.attrib) == (f"{{{NAMESPACE_1}}}xliff", {"version": "1.2"})
    assert file.attrib == {
        "original": "pairs",
        "source-language": "en",
        "target-language": "pt-BR",
        "datatype": "plaintext",
    }
    units = list(file[0])
    assert [unit.attrib["id"] for unit in units] == ["1", "2"]
    assert {unit.attrib["{http://www.w3.org/XML/1998/namespace}space"] for unit in units} == {"preserve"}
    assert [[(side.tag.partition("}")[2], side.text) for side in unit] for unit in units] == [
        [("source", "a <x1/> & b"), ("target", "ä")],
        [("source", " c "), ("target", None)],
    ]


def test_write_xliff_rejects_forbidden_characters_and_equal_languages(tmp_path):
    with pytest.raises(DataError, match=r"f\.po:7: the target holds U\+0001 at character 1"):
        write_xliff(str(tmp_path / "f.xlf"), [SentencePair("a", "\x01", "f.po:7")], ("en", "de"))
    with pytest.raises(ConfigError, match="source and target are both 'en'"):
        write_xliff(str(tmp_path / "f.xlf"), [], ("en", "en"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        "tmxeditor-manual.en-fr.tmx",
        "omegat-ImportTest1F.utf16.tmx",
        "symfony-validators.en-de.xlf",
        "tmxeditor-java.en-fr.xlf",
    ],
)
def test_real_files_round_trip_through_tsv_tmx_and_xliff(tmp_path, data_dir, name):
    pairs = list(read_pairs([str(data_dir("formats") / name)]))
    texts = [(pair.source, pair.target) for pair in pairs]
    tsv, tmx, xlf = (str(tmp_path / f"out{extension}") for extension in (".tsv", ".tmx.zst", ".xlf"))
    write_tsv(tsv, pairs)
    write_tmx(tmx, read_pairs([tsv]), ("en", "fr"))
    write_xliff(xlf, read_pairs([tmx]), ("en", "fr"))
    for path in (tsv, tmx, xlf):
        assert [(pair.source, pair.target) for pair in read_pairs([path])] == texts


sides = xml_sides("<mrk>")


@settings(max_examples=50)
@given(st.lists(st.tuples(sides, sides), max_size=5), st.sampled_from(["xlf", "xliff.gz", "xlf.zst"]))
def test_xliff_pairs_round_trip(tmp_path_factory, texts, extension):
    path = str(tmp_path_factory.getbasetemp() / f"p.{extension}")
    assert write_xliff(path, [SentencePair(*both, "x:1") for both in texts], ("en", "de")) == len(texts)
    found = list(read_pairs([path]))
    assert [(pair.source, pair.target) for pair in found] == texts
    # An empty target is what the format has for "untranslated"; no other pair is skipped.
    assert [pair.skipped for pair in found] == [
        "untranslated" if source.strip() and not target.strip() else None for source, target in texts
    ]
