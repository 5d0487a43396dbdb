"""Translation memories: which two languages are read, one row a unit, and a round trip that loses nothing."""

from __future__ import annotations

import io
import os
import re
import sys
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_files import peak_of_reading, xml_sides

from clearhead.errors import ConfigError, DataError
from clearhead.formats import PairFile, SentencePair, Wanted, holds_pairs, read_pairs
from clearhead.formats.document import Filling
from clearhead.formats.tmx.document import read_tmx
from clearhead.formats.tmx.pairs import open_tmx, write_tmx

THREE = {"en": "dog", "de": "Hund", "fr": "chien"}
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def unit(texts: dict[str, str], name: str = "xml:lang") -> str:
    return "<tu>" + "".join(f'<tuv {name}="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items()) + "</tu>\n"


def memory(
    path: Path, *units: dict[str, str], srclang: str = "en", version: str = "1.4", name: str = "xml:lang"
) -> str:
    body = "".join(unit(texts, name) for texts in units)
    path.write_text(
        f'<tmx version="{version}">\n<header srclang="{srclang}"/>\n<body>\n{body}</body></tmx>\n', encoding="utf-8"
    )
    return str(path)


def texts(file: PairFile) -> list[tuple[str, str] | str | None]:
    return [pair.skipped or pair.defect or (pair.source, pair.target) for pair in file.pairs]


def test_a_memory_of_another_program_is_read(data_dir):
    path = str(data_dir("formats") / "tmxeditor-manual.en-fr.tmx")
    told: list[str] = []
    pairs = list(read_pairs([path], on_open=lambda files: told.extend(file.read_as for file in files)))
    assert told == ["TMX 1.4; from en to fr"]
    assert len(pairs) == 489
    assert [pair for pair in pairs if pair.skipped or pair.defect] == []
    assert pairs[0] == SentencePair("Editing an Existing File", "Éditer un fichier TMX existant", f"{path}:15")
    assert pairs[5] == SentencePair(
        "Click outside the cell or press [<g1>Alt+Enter</g1>] to save your changes",
        "cliquez en dehors de la cellule ou appuyez sur [<g1>Alt+Entrée</g1>] pour enregistrer la modification,",
        f"{path}:55",
    )
    # Every ph is in: 1,412 as its README counts them.
    texts = "".join(pair.source + pair.target for pair in pairs)
    assert sum(map(texts.count, ("<x", "<g", "</g"))) == 1_412


def test_a_memory_in_utf_16_is_read(data_dir):
    path = str(data_dir("formats") / "omegat-ImportTest1F.utf16.tmx")
    file = open_tmx(path, Wanted())
    assert file.read_as == "TMX 1.4; from en-us to en-gb"
    assert list(file.pairs) == [
        SentencePair("à=agrave, é=eacute, æ=aelig", "à=agrave, é=eacute, æ=aelig", f"{path}:7"),
        SentencePair("ÿ=U+00FF, ™=U+2122, ’=U+2019", "ÿ=U+00FF, ™=U+2122, ’=U+2019", f"{path}:11"),
        SentencePair("“=U+201C, –=U+2013, ¤=U+00A4", "“=U+201C, –=U+2013, ¤=U+00A4", f"{path}:15"),
    ]
    assert texts(open_tmx(path, Wanted(from_lang="en-GB", to_lang="en-US")))[0][0].startswith("à=agrave")


@pytest.mark.parametrize(
    ("srclang", "wanted", "pair", "sides"),
    [
        ("en", Wanted(), ("dog", "Hund"), ("en", "de")),
        ("DE", Wanted(), ("Hund", "dog"), ("de", "en")),
        ("de-DE", Wanted(), ("Hund", "dog"), ("de", "en")),
        ("*all*", Wanted(), ("dog", "Hund"), ("en", "de")),
        ("en", Wanted(from_lang="de"), ("Hund", "dog"), ("de", "en")),
        ("en", Wanted(to_lang="EN"), ("Hund", "dog"), ("de", "EN (en)")),
        ("en", Wanted(from_lang="de", to_lang="en"), ("Hund", "dog"), ("de", "en")),
    ],
)
def test_of_two_languages_the_header_names_the_source_unless_asked_otherwise(tmp_path, srclang, wanted, pair, sides):
    path = memory(tmp_path / "m.tmx", {"en": "dog", "de": "Hund"}, srclang=srclang)
    file = open_tmx(path, wanted)
    assert file.sides == sides
    assert list(file.pairs) == [SentencePair(*pair, f"{path}:4")]


def test_any_two_languages_are_read_and_units_without_both_are_skipped(tmp_path):
    path = memory(tmp_path / "m.tmx", THREE, {"en": "cat", "fr": "chat"}, {"de": "Maus"}, {})
    file = open_tmx(path, Wanted(from_lang="fr", to_lang="en"))
    assert texts(file) == [("chien", "dog"), ("chat", "cat"), "other_languages", "other_languages"]
    skipped = list(open_tmx(path, Wanted(from_lang="de", to_lang="en")).pairs)[1]
    assert skipped == SentencePair("", "", f"{path}:5", skipped="other_languages")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(), r"m\.tmx has 3 languages: en, de, fr; say which two to read, .* --from-lang en --to-lang de"),
        (
            Wanted(from_lang="en"),
            r"'en', which leaves open the other; give both --from-lang and --to-lang; .*en, de, fr",
        ),
        (Wanted(to_lang="it"), r"m\.tmx has no text in 'it'; its languages: en, de, fr"),
        (Wanted(from_lang="de-AT", to_lang="en"), r"m\.tmx has no text in 'de-AT'; its languages: en, de, fr"),
        (Wanted(from_lang="de", to_lang="DE"), r"source and target are both to be 'de'; its languages: en, de, fr"),
    ],
)
def test_ambiguous_or_missing_languages_are_rejected_when_opened(tmp_path, wanted, message):
    with pytest.raises(ConfigError, match=message):
        read_pairs([memory(tmp_path / "m.tmx", THREE)], wanted)


def test_a_memory_of_one_language_or_none_has_no_pairs(tmp_path):
    with pytest.raises(DataError, match="no pairs, for it has texts in one language only: en"):
        open_tmx(memory(tmp_path / "m.tmx", {"en": "dog"}, {"en": "cat"}), Wanted())
    with pytest.raises(DataError, match="one language only: it names none"):
        open_tmx(memory(tmp_path / "m.tmx", {"": "dog"}), Wanted())


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(from_lang="en", to_lang="de")])
def test_of_a_memory_of_damaged_units_alone_each_is_counted(tmp_path, wanted):
    (tmp_path / "m.tmx").write_text(of_units("en=a\x1e|de=b", "en=c\x1e|de=d").replace("<tu>", "\n<tu>"))
    pairs = list(open_tmx(str(tmp_path / "m.tmx"), wanted).pairs)
    assert [(pair.line, pair.defect) for pair in pairs] == [
        (line, "it holds U+001E, which XML forbids") for line in (2, 3)
    ]


def test_a_variant_is_taken_where_the_language_itself_is_not(tmp_path):
    units = [
        {"en-US": "color", "de-AT": "Jänner"},
        {"en-US": "color", "en": "hue", "de_AT": "Jänner", "DE": "Januar"},
        {"en-GB": "colour", "en-US": "color", "de": "Farbe"},
        {"den": "x", "en": "y"},
    ]
    path = memory(tmp_path / "m.tmx", *units)
    file = open_tmx(path, Wanted(from_lang="de", to_lang="en"))
    assert file.sides == ("de (de-AT, DE)", "en (en-US, en, en-GB)")
    assert texts(file) == [("Jänner", "color"), ("Januar", "hue"), ("Farbe", "colour"), "other_languages"]
    # One text is never both sides.
    file = open_tmx(path, Wanted(from_lang="en", to_lang="en-GB"))
    assert texts(file) == ["other_languages", "other_languages", ("color", "colour"), "other_languages"]


def test_of_several_texts_in_a_language_the_first_is_read(tmp_path):
    path = tmp_path / "m.tmx"
    body = unit({"en": "dog"}).replace("</tu>", "") + unit({"de": "Hund"}).replace("<tu>", "").replace("</tu>", "")
    body += '<tuv xml:lang="de"><seg>Köter</seg><seg>x</seg></tuv><tuv xml:lang="en"/></tu>'
    path.write_text(f"<tmx><header/><body>{body}</body></tmx>", encoding="utf-8")
    assert texts(open_tmx(str(path), Wanted())) == [("dog", "Hund")]


@pytest.mark.parametrize("version", ["1.1", "1.2", "1.3"])
def test_older_versions_name_the_language_without_prefix(tmp_path, version):
    path = memory(tmp_path / "m.tmx", {"EN": "dog", "DE": "Hund"}, version=version, name="lang")
    file = open_tmx(path, Wanted(to_lang="de"))
    assert (file.format, texts(file)) == (f"TMX {version}", [("dog", "Hund")])


def test_a_namespace_properties_and_notes_do_not_matter(tmp_path):
    path = tmp_path / "m.tmx"
    noise = '<prop type="x">x</prop><note>y</note>'
    body = (
        f'<tu>{noise}<tuv xml:lang="en">{noise}<seg>dog</seg></tuv><tuv xml:lang="de">{noise}<seg>Hund</seg></tuv></tu>'
    )
    path.write_text(
        f'<tmx xmlns="http://www.lisa.org/tmx14" version="1.4"><header>{noise}<ude name="u"/></header>'
        f"<body>{body}</body></tmx>"
    )
    assert texts(open_tmx(str(path), Wanted())) == [("dog", "Hund")]


def test_a_language_that_begins_late_is_found_but_in_a_pipe_only_the_head_can_be_looked_at(tmp_path, monkeypatch):
    path = memory(tmp_path / "m.tmx", *[{"en": "a", "de": "b"}] * 1_500, {"fr": "c", "en": "d"})
    assert texts(open_tmx(path, Wanted(from_lang="fr", to_lang="en")))[-2:] == ["other_languages", ("c", "d")]
    with pytest.raises(ConfigError, match="no text in 'it'; its languages: en, de, fr"):
        open_tmx(path, Wanted(to_lang="it"))
    # Not asked for, the two of the head are read.
    assert texts(open_tmx(path, Wanted()))[-2:] == [("a", "b"), "other_languages"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
    with pytest.raises(ConfigError, match="standard input has no text in 'fr'; its languages: en, de"):
        open_tmx("-", Wanted(from_lang="fr", to_lang="en"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
    assert len(texts(open_tmx("-", Wanted()))) == 1_501


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files where Linux shows them")
def test_read_pairs_keeps_files_closed_until_they_are_read(tmp_path):
    paths = [memory(tmp_path / f"{n}.tmx", {"en": "a", "de": "b"}) for n in range(50)]
    before = len(os.listdir("/proc/self/fd"))
    pairs = read_pairs(paths)
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(list(pairs)) == 50


def test_an_empty_memory_has_no_pairs(tmp_path):
    file = open_tmx(memory(tmp_path / "m.tmx"), Wanted(from_lang="en", to_lang="de"))
    assert (file.read_as, list(file.pairs)) == ("TMX 1.4, empty; from en to de", [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<html><body><p>x</p></body></html>", r"m\.tmx, line 1: the first element is <html>; a TMX has <tmx>"),
        ("<tmx>\n<body>\n<tu>", r"m\.tmx, line 3: the XML is cut off"),
        ("<tmx><body>\n<tu><tuv></tu>", r"m\.tmx, line 2, column \d+: the XML is broken: mismatched tag"),
    ],
)
def test_invalid_tmx_is_rejected_when_opened(tmp_path, content, message):
    (tmp_path / "m.tmx").write_text(content)
    with pytest.raises(DataError, match=message):
        read_pairs([str(tmp_path / "m.tmx")])


def test_error_far_down_a_tmx_is_raised_when_reached(tmp_path):
    path = Path(memory(tmp_path / "m.tmx", *[{"en": "a", "de": "b"}] * 2_000))
    path.write_text(path.read_text().removesuffix("</body></tmx>\n"))
    pairs = read_pairs([str(path)])
    assert sum(1 for _ in islice(pairs, 2_000)) == 2_000
    with pytest.raises(DataError, match=r"m\.tmx, line 2004: the XML is cut off"):
        next(pairs)


def test_a_unit_that_is_too_long_is_a_defect_and_the_rest_is_read(tmp_path):
    path = memory(
        tmp_path / "m.tmx", {"en": "a", "de": "b"}, {f"x-{n}": "y" for n in range(501)}, {"en": "c", "de": "d"}
    )
    found = texts(open_tmx(path, Wanted(from_lang="en", to_lang="de")))
    assert found[0] == ("a", "b")
    assert found[1] == "it has more than 500 languages"
    assert found[2:] == [("c", "d")]


def test_a_memory_is_a_file_of_pairs(tmp_path):
    path = memory(tmp_path / "m.TMX", {"en": "a", "de": "b"})
    assert holds_pairs(path)
    assert [(pair.source, pair.target) for pair in read_pairs([path], swap=True)] == [("b", "a")]


def test_memory_does_not_grow_with_the_file(tmp_path):
    few, many = (  # more characters than are looked at to choose the languages
        peak_of_reading(memory(tmp_path / "m.tmx", *[{"en": "x" * 800, "de": "y" * 800}] * rows), rows)
        for rows in (800, 2_000)
    )
    assert many < 1.5 * few


def test_write_tmx_output_is_valid_tmx_1_4(tmp_path):
    path = tmp_path / "m.tmx"
    pairs = [SentencePair("a <x1/> & b", "ä", "x:1"), SentencePair(" c ", "", "x:2")]
    assert write_tmx(str(path), iter(pairs), ("en", "pt_BR")) == 2
    root = ElementTree.parse(path).getroot()
    header = root.find("header")
    # What TMX 1.4b requires of a header (section 3.1), and nothing it does not know.
    required = {"creationtool", "creationtoolversion", "segtype", "o-tmf", "adminlang", "srclang", "datatype"}
    assert (root.tag, root.attrib, header.attrib.keys()) == ("tmx", {"version": "1.4"}, required)
    assert header.attrib["srclang"] == "en"
    assert [[(tuv.get(XML_LANG), tuv.findtext("seg")) for tuv in unit] for unit in root.find("body")] == [
        [("en", "a <x1/> & b"), ("pt-BR", "ä")],
        [("en", " c "), ("pt-BR", "")],
    ]


@pytest.mark.parametrize("sign", ["\n", "\r", "\x01", "\x0b", "\ufffe", "\ud800"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_write_tmx_rejects_characters_xml_forbids_and_writes_nothing(tmp_path, sign, side):
    pair = SentencePair(**{"source": "a", "target": "b", side: f"x{sign}y"}, origin="f.po:7")
    with pytest.raises(DataError, match=rf"f\.po:7: the {side} holds U\+{ord(sign):04X} at character 2, which an XML"):
        write_tmx(str(tmp_path / "m.tmx"), [SentencePair("ok", "ok", "f.po:6"), pair], ("en", "de"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("languages", [("en", "EN"), ("en", ""), ('e"n', "de"), ("en", "Deutsch (Österreich)")])
def test_write_tmx_rejects_equal_or_invalid_languages(tmp_path, languages):
    with pytest.raises(ConfigError, match=r"is no language; give one such as|are both 'en'"):
        write_tmx(str(tmp_path / "m.tmx"), [], languages)
    assert os.listdir(tmp_path) == []


sides = xml_sides("<![CDATA[")


@settings(max_examples=50)
@given(st.lists(st.tuples(sides, sides), max_size=5), st.sampled_from(["tmx", "tmx.gz", "tmx.xz", "tmx.zst"]))
def test_tmx_pairs_round_trip(tmp_path_factory, texts, extension):
    path = str(tmp_path_factory.getbasetemp() / f"p.{extension}")
    assert write_tmx(path, [SentencePair(*both, "x:1") for both in texts], ("en", "de")) == len(texts)
    assert [(pair.source, pair.target) for pair in read_pairs([path])] == texts


def of_units(*units: str) -> str:
    """Return a TMX of units such as `en=a|de=b`; `en` alone is a language without a `seg`."""
    written = [
        "".join(
            f'<tuv xml:lang="{language}">{sign and f"<seg>{text}</seg>"}</tuv>'
            for language, sign, text in (part.partition("=") for part in unit.split("|"))
        )
        for unit in units
    ]
    return f'<tmx version="1.4"><header/><body>{"".join(f"<tu>{one}</tu>" for one in written)}</body></tmx>'


def test_a_language_without_a_segment_has_its_own_reason(tmp_path):
    path = tmp_path / "m.tmx"
    path.write_text(of_units("en|de=b", "en=a|de=b", "en|de=b|en=c", "en=d|fr=e"), encoding="utf-8")
    found = texts(open_tmx(str(path), Wanted(from_lang="en", to_lang="de")))
    assert found == ["without_text", ("a", "b"), ("c", "b"), "other_languages"]


@pytest.mark.parametrize(
    ("units", "example"),
    [
        (["sv-SE=a|fi-FI=b", "sv=a|fi=b", "sv-SE=c"], "--from-lang sv --to-lang fi"),
        (["en=a", "de=b", *["x=c"] * 1_500, "fr=c|it-CH=d"], "--from-lang fr --to-lang it-CH"),
        (["en-US=a|en-GB=b", "en-AU=c"], "--from-lang en-US --to-lang en-GB"),
        (["en=a", "de=b", "fr=c"], "no unit has texts in two of them"),
        (["en=a|de=b", "en=a|fr=b", "en=c|fr=d"], "--from-lang en --to-lang fr"),
    ],
)
def test_the_languages_that_are_advised_give_pairs(tmp_path, units, example):
    path = tmp_path / "m.tmx"
    path.write_text(of_units(*units), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        open_tmx(str(path), Wanted())
    assert example in str(caught.value)
    if words := re.search("--from-lang (.+) --to-lang (.+)", str(caught.value)):
        pairs = open_tmx(str(path), Wanted(from_lang=words[1], to_lang=words[2])).pairs
        assert any(pair.skipped is None for pair in pairs)
    if "=c" in units[-1]:
        with pytest.raises(ConfigError, match="give --from-lang and --to-lang"):
            read_tmx(str(path))


@pytest.mark.parametrize("sign", ["&#x1E;", "\x1e", "&#65534;"])
def test_unit_with_a_forbidden_character_is_a_defect_and_can_be_skipped(tmp_path, sign):
    path = tmp_path / "m.tmx"
    written = of_units("en=a|de=b", f"en=c{sign}|de=d", "en=é|de=f").replace("<tu>", "\n<tu>")
    path.write_text(written.replace("<seg>b</seg>", ""), encoding="utf-8")
    code = "U+FFFE" if "6" in sign else "U+001E"
    pairs = list(open_tmx(str(path), Wanted(from_lang="en", to_lang="de")).pairs)
    assert [(pair.source, pair.line, pair.defect) for pair in pairs] == [
        ("", 2, None),
        ("", 3, f"it holds {code}, which XML forbids"),
        ("é", 4, None),
    ]
    with pytest.raises(DataError, match=rf"line 3, .*forbids U\+{code[2:]}; remove it; or leave out its unit with --s"):
        read_tmx(str(path), "en", "de")
    document = read_tmx(str(path), "en", "de", skip_bad_units=True)
    assert [one.text for one in document.segments] == ["a", "é"]
    assert document.skipped == [3]
    filled = document.filled([Filling("x"), Filling("y")]).decode()
    assert filled == path.read_text(encoding="utf-8").replace("f</seg>", "y</seg>").replace(
        '<tuv xml:lang="de"></tuv>', '<tuv xml:lang="de"></tuv><tuv xml:lang="de"><seg>x</seg></tuv>', 1
    )
