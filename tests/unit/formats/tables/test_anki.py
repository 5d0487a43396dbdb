"""Anki's own exports: the lines before the table, quotation marks, HTML, and columns that hold no text."""

from __future__ import annotations

import pytest
from written_files import written

from clearhead.formats import SentencePair, Wanted, described, read_pairs
from clearhead.formats.tables.anki import anki_format, text_of_html

NOTES = (
    "#separator:tab\n#html:true\n#guid column:1\n#notetype column:2\n#deck column:3\n#tags column:6\n"
    'k@9\tBasic\tDeutsch\t"He said ""hi"".\n<div>Then he left.</div>"\t'
    "Er sagte &quot;hallo&quot;.&nbsp;Dann ging er.\tA B\n"
    "l#2\tBasic\tDeutsch\tYes<br>Sir[sound:yes.mp3]\tJa, <b>mein</b> Herr\t\n"
)


@pytest.mark.parametrize("name", ["notes.txt", "notes.tsv", "notes.csv"])
def test_notes_are_read_without_what_anki_adds(tmp_path, name):
    path, told = written(tmp_path / name, NOTES), []
    assert list(read_pairs([path], on_open=lambda files: told.extend(described(files)))) == [
        SentencePair('He said "hi". Then he left.', 'Er sagte "hallo". Dann ging er.', f"{path}:7"),
        SentencePair("Yes Sir", "Ja, mein Herr", f"{path}:9"),
    ]
    assert told == [
        f"{path}: exported from Anki, tab-separated, HTML removed, 6 columns; from column 4 to column 5",
    ]


def test_columns_named_by_anki_are_names(tmp_path):
    text = '#separator:Semicolon\n#html:false\n#columns:Image;Back;Front\n#tags:x\n1 < 2;<b>ja</b>;"yes; sir"\n'
    path = written(tmp_path / "n.txt", text)
    assert [(p.source, p.target) for p in read_pairs([path])] == [("<b>ja</b>", "yes; sir")]
    assert [(p.source, p.target) for p in read_pairs([path], Wanted(("Front", "Image")))] == [("yes; sir", "1 < 2")]


@pytest.mark.parametrize(
    ("said", "separator"),
    [
        ("tab", "\t"),
        ("Comma", ","),
        ("SPACE", " "),
        ("Pipe", "|"),
        ("Colon", ":"),
        (r"\t", "\t"),
        ("~", "~"),
        ('"', "\t"),
        ("\r", "\t"),
        ("", "\t"),
    ],
)
def test_separators_are_names_or_signs(said, separator):
    found = anki_format([f"#separator:{said}", "a"])
    assert found is not None
    assert (found.separator, found.num_preamble) == (separator, 1)


@pytest.mark.parametrize("first", ["", "#hashtag\tx", "# separator:tab", "a", "#separators:tab", "#column:1"])
def test_anki_format_is_none_for_other_first_lines(first):
    assert anki_format([first, "#separator:tab"]) is None


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("plain  text", "plain text"),
        ("a&lt;b &amp;amp; c&#228;", "a<b &amp; cä"),
        ("one<br/>two<p>three</p>four", "one two three four"),
        ("wo<i>r</i>d<img src='a.png'>", "word"),
        ("<style>b { color: red }</style>text<script>1 < 2</script>!", "text!"),
        ("3 < 4", "3 < 4"),
        (
            "<!--[if gte mso 9]><xml>no</xml><![endif]-->a<![if !supportLists]>b<![endif]>c<!-- no <!-- no --> d",
            "abc d",
        ),
        ("a<![", "a"),
        ("x <a" * 30_000, "x <a" * 30_000),
        ("<" + "a" * 120_000, "<" + "a" * 120_000),
        ("<STYLE type='x'>b</style>c <o:p>d</o:p>", "c d"),
        ("a<!-- never closed", "a"),
        ("", ""),
    ],
)
def test_html_becomes_what_a_reader_sees(html, text):
    assert text_of_html(html) == text


def test_a_column_number_of_any_length_is_read():
    assert anki_format([f"#deck column:{'9' * 5_000}", "#tags column:2"]).other_columns == {1}
