"""Glossaries: columns of terms and forms by header and languages, TBX in its styles; headers and notes are no terms."""

from __future__ import annotations

import re

import openpyxl
import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.translation.terminology import Terms

DCA = """<?xml version='1.0'?><!DOCTYPE martif SYSTEM "TBXcoreStructV02.dtd">
<martif type="TBX" xml:lang="en"><text><body>
<termEntry><descrip type="definition">an animal</descrip><langSet xml:lang="en">
<tig><term>dog</term><termNote type="partOfSpeech">noun</termNote><note>of ours</note></tig>
<ntig><termGrp><term>hound</term>
<termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></termGrp></ntig>
</langSet><langSet xml:lang="de">
<tig><term>Köter</term><termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig>
<tig><term>Hunde</term></tig>
<tig><term>H<hi>un</hi>d</term><termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></tig>
</langSet><langSet xml:lang="fr"><tig><term>chien</term></tig></langSet></termEntry>
<termEntry><langSet xml:lang="en"><tig><term>cat</term></tig></langSet></termEntry></body></text></martif>"""
DCT = """<tbx type="TBX-Basic" style="dct" xml:lang="de" xmlns="urn:iso:std:iso:30042:ed-2"
xmlns:min="http://www.tbxinfo.net/ns/min"><tbxHeader/><text><body><conceptEntry id="c5">
<langSec xml:lang="en"><termSec><term>dog</term><min:note>of ours</min:note></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Köter</term><min:administrativeStatus>supersededTerm-admn-sts
</min:administrativeStatus></termSec><termSec><term>Hund</term></termSec></langSec></conceptEntry></body></text></tbx>"""
MINIMAL = """<TBX dialect="TBX-Min"><header><languages source="de" target="en"/></header><body><entry id="C2">
<langGroup xml:lang="en"><termGroup><term>hound</term><termStatus>notRecommended</termStatus></termGroup>
<termGroup><term>dog</term></termGroup></langGroup>
<langGroup xml:lang="de"><termGroup><term>Hund</term><note>n</note></termGroup></langGroup></entry></body></TBX>"""


@pytest.fixture
def load(tmp_path):
    """Write a file, and return its terms as tuples."""

    def load_text(name: str, text: str, *languages: str | None):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        asked = dict(zip(("from_lang", "to_lang"), languages, strict=False))
        return [(term.source, *term.forms) for term in Terms.load(path, **asked).terms]

    return load_text


@pytest.mark.parametrize(
    ("name", "text", "languages", "expected"),
    [
        ("a.csv", "term,translation,note\ndog,Hund|Hunde,an animal\ncat,,none\n", (), [("dog", "Hund", "Hunde")]),
        (
            "a.csv",
            'id;English;French;German;Comment\n1;dog;chien;Hund;"a; b"\n2;cat;chat;;x\n',
            ("en", "de"),
            [("dog", "Hund")],
        ),
        ("a.csv", "en-GB,en-US,fr\nlorry,truck,camion\n", ("en-US", "fr-CA"), [("truck", "camion")]),
        ("a.csv", "Source term,Target term,Variants,Definition\na,b,c|d,e\n", (), [("a", "b", "c", "d")]),
        ("a.csv", "German;English\nHund|Hunde;dog|dogs\n", (), [("Hund", "dog", "dogs"), ("Hunde", "dog", "dogs")]),
        ("a.csv", 'dog,Hund,an animal\n"hot, dog",Hotdog\n', (), [("dog", "Hund"), ("hot, dog", "Hotdog")]),
        ("a.csv", "dog,Hund,en,de\n", (), [("dog", "Hund")]),
        ("a.csv", "Term;French;French;Remark\ndog;chien;toutou;no\n", ("en", "fr"), [("dog", "chien", "toutou")]),
        ("a.tsv", "# ours\n\nen\tde\tnotes\ndog\tHund\tanimal\n", (), [("dog", "Hund")]),
        ("a.tsv", "en\tde\ndog\tHund\n", ("de", "en"), [("Hund", "dog")]),
        ("a.tsv", "English (UK)\tGerman text\ndog\tHund\n", ("en", "de"), [("dog", "Hund")]),
        ("a.tsv", "Begriff\tÜbersetzung\tBemerkung\nHund\tdog\tTier\n", ("de", "en"), [("Hund", "dog")]),
        ("a.tsv", "id\ten\nanjing\tdog\n", ("id", "en"), [("anjing", "dog")]),
        ("a.tsv", "English\tFrench\tGerman\na\tb\tc\n", (None, "de"), "not clear"),
        ("a.tsv", "fr\tGerman\na\tb\n", ("fr",), [("a", "b")]),
        # Rows that could be names of columns, but mean the same.
        ("a.tsv", "term\tBegriff\nEnglish\tEnglisch\n", (), [("term", "Begriff"), ("English", "Englisch")]),
        ("a.tsv", "cat\tkat\n", ("en", "nl"), [("cat", "kat")]),
        ("a.tsv", "eng\tdeu\tid\ndog\tHund\t7\n", ("en", "de"), [("dog", "Hund")]),
        ("a.txt", 'dog\t"Hund"\tHunde\n', ("en", "de"), [("dog", '"Hund"', "Hunde")]),
        ("a.csv", "a,b,c\nen,de,fr\n", (), [("a", "b"), ("en", "de")]),
    ],
)
def test_columns_are_chosen_by_header_and_languages(load, name, text, languages, expected):
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            load(name, text, *languages)
    else:
        assert load(name, text, *languages) == expected


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("id,English,French,German\n1,a,b,c\n", ("en",)),
        ("id,English,French,German\n1,a,b,c\n", ("en", "es")),
        ("en-GB,en-US,fr\na,b,c\n", ("en", "fr")),
        ("term,note\ndog,animal\n", ("en", "de")),
        ("en,en,fr\na,b,c\n", ("en", "fr")),
    ],
)
def test_an_ambiguous_header_is_refused_with_its_columns_and_the_options(load, text, languages):
    first = ", ".join(map(repr, text.splitlines()[0].split(",")))
    expected = f"it is not clear where terms and translations are; it has {first}, and the languages asked for are"
    with pytest.raises(ConfigError, match=re.escape(expected) + ".* with --from-lang and --to-lang"):
        load("a.csv", text, *languages)


@pytest.mark.parametrize(
    ("text", "languages", "expected"),
    [
        (DCA, ("en", "de"), [("dog", "Hund", "Hunde"), ("hound", "Hund", "Hunde")]),
        (DCA, ("fr", "en"), [("chien", "dog")]),
        (DCT, (), [("dog", "Hund")]),
        (MINIMAL, ("de", "en"), [("Hund", "dog")]),
    ],
)
def test_terms_of_tbx_have_the_forms_that_are_to_be_used_the_preferred_first(load, text, languages, expected):
    assert load("a.tbx", text, *languages) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tbx", "<tmx/>", "is no TBX file: its first element is <tmx>, not martif, tbx, TBX"),
        ("a.tbx", "text", "line 1, column 1: the XML is broken"),
        ("a.tbx", "<martif/>", r"has no terms$"),
        ("a.tbx", '<!DOCTYPE a [<!ENTITY b "c">]><martif>&b;</martif>', "entit"),
        ("a.csv", "en,fr\nx,\n", "has no terms"),
        ("a.csv", 'dog\n"cat,Katze\n', r":1: no comma; .*:2: a quotation mark is not closed"),
        ("a.xls", "", r"\.xls files are not read; save the sheet as \.xlsx or \.csv"),
        ("a.xlsx", "text", "is no XLSX file, or is damaged"),
    ],
)
def test_damaged_and_foreign_glossaries_are_refused(load, name, text, message):
    with pytest.raises(DataError, match=message):
        load(name, text)


def test_a_concept_beyond_the_size_of_a_unit_is_refused(load, monkeypatch):
    monkeypatch.setattr("clearhead.formats.glossaries.tbx.MAX_SIZE", 1_000)
    with pytest.raises(DataError, match=r"line 3: the concept is longer than 1,000 characters"):
        load("a.tbx", DCA, "en", "de")


def test_sheets_of_excel_are_read_like_tables(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["All terms of our house"])
    sheet = book.create_sheet("Terms")
    for row in (
        ["Nr", "English", "Deutsch", "Note"],
        [1, "dog", "Hund|Hunde", "x"],
        [2, "cat", None, "y"],
        [3, "R2", 2.0],
    ):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    terms = Terms.load(tmp_path / "a.xlsx", from_lang="en", to_lang="de").terms
    assert [(term.source, *term.forms) for term in terms] == [("dog", "Hund", "Hunde"), ("R2", "2")]
    sheet.insert_rows(1)
    sheet["A1"] = "dog"
    book.save(tmp_path / "b.xlsx")
    with pytest.raises(ConfigError, match="has 2 sheets with text: 'Sheet', 'Terms'; none of them has a first row"):
        Terms.load(tmp_path / "b.xlsx")
