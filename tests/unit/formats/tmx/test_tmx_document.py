"""Translation memories filled in: another parser reads the texts where they belong, every other byte is as before."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from written_files import filled_after_random_changes, replaced, texts

from clearhead.errors import ConfigError, DataError
from clearhead.formats import read_pairs
from clearhead.formats.document import Filling
from clearhead.formats.document_files import read_document
from clearhead.formats.tmx.document import TmxDocument

MEMORY = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US" segtype="sentence"/>
<body>
  <tu tuid="1">
    <tuv xml:lang="de"><seg>Hund</seg></tuv>
    <tuv xml:lang="en-US"><prop type="x">p</prop><seg>The <bpt i="1">[b]</bpt>dog<ept i="1">[/b]</ept></seg></tuv>
  </tu>
  <tu><!-- none yet -->
    <tuv xml:lang="EN-us"><seg>a &lt; b
      c</seg></tuv>
  </tu>
  <tu><tuv xml:lang="en-US"><seg>x</seg></tuv><tuv xml:lang="de"><seg /></tuv></tu>
  <tu><tuv xml:lang="de"><seg>nur</seg></tuv></tu>
</body>
</tmx>
"""


def memory(*units: str, head: str = "") -> str:
    """Return a memory; a unit is `en=text|de=text`."""
    texts = [[text.split("=") for text in unit.split("|")] for unit in units]
    written = [
        "".join(f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>' for language, text in unit) for unit in texts
    ]
    return f"<tmx>{head}<body>{''.join(f'<tu>{unit}</tu>' for unit in written)}</body></tmx>"


def texts_by_language(data: bytes | str) -> list[dict[str, str]]:
    name = "{http://www.w3.org/XML/1998/namespace}lang"
    return [
        {version.attrib[name]: "".join(version.find("seg").itertext()) for version in unit.iter("tuv")}
        for unit in ElementTree.fromstring(data).iter("tu")
    ]


def test_the_other_language_is_filled_and_nothing_else_changes(read, fill):
    document = read("a.tmx", MEMORY)
    assert [(one.line, one.text, one.translation, one.is_finished) for one in document.segments] == [
        (7, "The <g1>dog</g1>", "Hund", True),
        (10, "a < b c", "", False),
        (13, "x", "", False),
    ]
    filled = fill(document, {"The <g1>dog</g1>": "Der <g1>Hund</g1>", "a < b c": "A & b", "x": "X"})
    assert filled == replaced(
        MEMORY,
        ("<seg>Hund</seg>", '<seg>Der <bpt i="1">[b]</bpt>Hund<ept i="1">[/b]</ept></seg>'),
        ("      c</seg></tuv>", '      c</seg></tuv>\n    <tuv xml:lang="de"><seg>A &amp; b</seg></tuv>'),
        ("<seg />", "<seg>X</seg>"),
    )
    assert texts_by_language(filled) == [
        {"de": "Der [b]Hund[/b]", "en-US": "The [b]dog[/b]"},
        {"EN-us": "a < b\n      c", "de": "A & b"},
        {"en-US": "x", "de": "X"},
        {"de": "nur"},
    ]


def test_a_language_that_is_asked_for_is_added_or_replaced(read, fill):
    written = memory("en=a|de=b|fr=c", "de-AT=d|en-GB=e", "fr=f")
    document = read("a.tmx", written, from_lang="EN", to_lang="de")
    assert [(one.text, one.translation) for one in document.segments] == [("a", "b"), ("e", "d")]
    assert fill(document, {"a": "B", "e": "D"}) == memory("en=a|de=B|fr=c", "de-AT=D|en-GB=e", "fr=f")
    # The same text is never both source and target, as in pairs.
    document = read("a.tmx", memory("en-GB=a|en-US=b"), from_lang="en", to_lang="en-GB")
    assert [(one.text, one.translation) for one in document.segments] == [("b", "a")]
    document = read("a.tmx", written, from_lang="fr", to_lang="pt_BR")
    assert fill(document, {"c": "x", "f": "y"}) == memory("en=a|de=b|fr=c|pt-BR=x", "de-AT=d|en-GB=e", "fr=f|pt-BR=y")


@pytest.mark.parametrize(
    ("units", "header", "asked", "expected"),
    [
        (["de=b|en=a"], "", {}, ("b", "a")),
        (["de=b|en=a"], "en", {}, ("a", "b")),
        (["de=b|en-GB=a"], "en", {}, ("a", "b")),
        (["de=b|en=a"], "*all*", {"from_lang": "en"}, ("a", "b")),
        (["de=b|en=a"], "en", {"to_lang": "en"}, ("b", "a")),
        (["de=b|en=a|fr=c"], "fr", {"to_lang": "en"}, ("c", "a")),
        (["en-US=a|en-GB=b"], "en-GB", {}, ("b", "a")),
        (["en=a"], "", {"to_lang": "de"}, ("a", "")),
    ],
)
def test_languages_not_given_are_chosen_from_the_file(read, units, header, asked, expected):
    document = read("a.tmx", memory(*units, head=f'<header srclang="{header}"/>'), **asked)
    assert [(one.text, one.translation) for one in document.segments] == [expected]


@pytest.mark.parametrize(
    ("unit", "asked", "message"),
    [
        ("en=a|de=b|fr=c", {}, "give --from-lang and --to-lang; its languages: en, de, fr"),
        ("en=a|de=b|fr=c", {"from_lang": "en"}, "give --from-lang and --to-lang"),
        ("en=a|de=b|fr=c", {"to_lang": "en"}, "give --from-lang and --to-lang"),
        ("en=a|de=b", {"to_lang": "fr"}, "give --from-lang and --to-lang"),
        ("en=a", {}, "give --from-lang and --to-lang; its languages: en"),
        ("en=a|de=b", {"from_lang": "fr"}, "has no text in 'fr'; its languages: en, de"),
        ("en=a|de=b", {"from_lang": "en", "to_lang": "EN"}, "source and translation are both to be in 'en'"),
        ("en=a|de=b", {"from_lang": "en", "to_lang": "<x>"}, "'<x>' is no language"),
    ],
)
def test_ambiguous_or_missing_languages_are_rejected(read, unit, asked, message):
    with pytest.raises(ConfigError) as caught:
        read("a.tmx", memory(unit), **asked)
    assert message in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_encodings_and_the_older_attribute_stay(read, encoding):
    written = memory("en=größer|de=b", "en=😀 a").replace("xml:lang", "lang").replace("/tuv><", "/tuv>\r\n <")
    filled = read("a.tmx", written.encode(encoding)).filled([None, Filling("猫")])
    added = '</seg></tuv><tuv lang="de"><seg>猫</seg></tuv>\r\n </tu></body>'
    assert filled == replaced(written, ("</seg></tuv>\r\n </tu></body>", added)).encode(encoding)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("<a/>", "line 1: the first element is <a>; a TMX has <tmx>"),
        ("<tmx>\n<tu>", "the XML is cut off"),
        ('<!DOCTYPE tmx [<!ENTITY e SYSTEM "/etc/passwd">]><tmx/>', "declares the entity 'e'; entities are refused"),
    ],
)
def test_invalid_tmx_documents_are_rejected(read, written, message):
    with pytest.raises(DataError) as caught:
        read("a.tmx", written)
    assert message in str(caught.value)


def test_a_memory_without_units_has_no_segments(read):
    assert read("a.tmx", "<tmx><body/></tmx>").segments == []


def test_real_tmx_files_round_trip_and_are_filled(data_dir, tmp_path):
    paths = sorted(data_dir("formats").glob("*.tmx"))
    assert len(paths) == 2
    for path in paths:
        document = read_document(str(path))
        assert len(document.segments) == (3 if path.name.startswith("omegat") else 489)
        assert document.filled([None] * len(document.segments)) == path.read_bytes()
        new = tmp_path / path.name
        new.write_bytes(document.filled([Filling(one.text) for one in document.segments]))
        assert texts(read_pairs([str(new)])) == [(one.text, one.text) for one in document.segments]
        again = read_document(str(new))
        assert [one.translation for one in again.segments] == [one.text for one in document.segments]


def test_random_changes_of_a_tmx_are_rejected_or_filled():
    pieces = ["<", ">", "&", '"', "/", "<ph/>", "</seg>", "<tuv>", "<!--", "<seg>x</seg>", "\r", "<ept i='1'/>"]
    pieces += ['<tuv xml:lang="fr"/>', '<tuv xml:lang="de"><seg>y</seg></tuv>', "<tu/>"]
    for document in filled_after_random_changes(MEMORY, pieces, lambda data: TmxDocument(data, "a.tmx", "en", "de")):
        assert all(one.is_finished for one in document.segments)
