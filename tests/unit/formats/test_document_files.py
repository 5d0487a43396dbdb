from __future__ import annotations

import gzip
import random

import pytest

from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.formats.document import Filling
from clearhead.formats.document_files import DOCUMENTS, UNREAD, is_document, read_document, refuse_foreign_format
from clearhead.formats.pair_files import READERS

SAMPLES = {
    ".csv": 'id,en,de\r\n1,"A ""dog""",\r\n2,Cat,Katze\r\n3, "x\ny",\r\n',
    ".json": '{"a": "Ein Hund\\n", "b": [1.5, {"c": "\\u00e9\\ud83d\\ude00"}], "d": null}\n',
    ".srt": (
        "\ufeff1\n00:00:01,000 --> 00:00:02,000\n<i>Ein Hund</i>\n\n2\n00:00:03,000 --> 00:00:04,000\n- Ja.\n- Nein.\n"
    ),
    ".tsv": "A dog\t\nCat\tKatze\n",
    ".vtt": (
        "WEBVTT\n\nNOTE x\n\n1\n00:01.000 --> 00:02.000 line:0\n<v Bob>Rock &amp; Roll\n\n00:03.000 --> 00:04.000\nx\n"
    ),
    ".txt": "  - Ein Hund\n    rennt.\n\n> Mail\n> von\n=====\n犬が\n走る。",
}
OPTIONS = {".csv": {"columns": [2, 3]}, ".tsv": {"columns": [1, 2]}, ".txt": {"paragraphs": True}}


@pytest.mark.parametrize("extension", SAMPLES)
def test_random_changes_of_documents_are_rejected_or_round_trip(tmp_path, extension):
    draw = random.Random(extension)
    pieces = [b"\n", b"\r", b"\n\n", b'"', b"\\", b"<", b"&", b"-->", b",", b"\t", b"{", b"]", b"\xff", b"\xef\xbb\xbf"]
    pieces += [b"\0", "犬".encode(), b"1", b" ", b"\\ud83d", b"\xe2\x80\xa8"]
    sample, path = SAMPLES[extension].encode(), tmp_path / f"a{extension}"
    refusals = []
    for _ in range(40):
        content = bytearray(sample)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(content) + 1)
            content[at : at + draw.choice([0, 0, 1, 3, 20])] = draw.choice([*pieces, b"", sample[at : at + 30]])
        path.write_bytes(content)
        try:
            document = read_document(str(path), **OPTIONS.get(extension, {}))
        except ClearheadError as error:
            refusals.append(str(error))
            continue
        assert document.filled([None] * len(document.segments)) == content
        for text in ("", "x", 'a "b" <c> & \\\n\n,;\td', "猫" * 50):
            filled = document.filled([Filling(text)] * len(document.segments))
            if text == "x":
                path.write_bytes(filled)
                again = read_document(str(path), **OPTIONS.get(extension, {}))
                assert len(again.segments) == len(document.segments)
    assert all(path.name in refusal for refusal in refusals)
    assert len(refusals) < 40


def test_is_document_goes_by_the_extension():
    assert [
        is_document(name) for name in ("a.Json", "b/a.srt", "a.vtt.gz", ".csv", "json", "a.txt", "a.jsonl", "-")
    ] == [
        *[True] * 3,
        *[False] * 5,
    ]


def test_each_extension_has_one_meaning():
    assert not DOCUMENTS.keys() & UNREAD.keys()
    assert [
        one
        for one in ("mqxliff", "mxliff", "pot", "sdlxliff", "txlf")
        if not {f".{one}"} <= DOCUMENTS.keys() & READERS.keys()
    ] == []


MARKED_UP = """
    1 adoc asciidoc aspx astro dita ditamap docbook ejs epub erb hbs inx ipynb json5 jsonc jsp liquid lrc lua mdx mif
    njk odt org plist po~ pug qm qmd rc resx rmd rst rtf scc sgm svelte svg tbx tex textile ts twig unknown vue wiki
    xht xhtml xsl
""".split()  # noqa: SIM905  (as a list, the formatter would give every name a line)


@pytest.mark.parametrize("extension", MARKED_UP)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_an_unknown_extension_is_refused_with_what_can_be_done(tmp_path, extension, ending):
    path = tmp_path / f"page.{extension.upper()}{ending}"
    path.write_bytes(b"")
    message = rf"page\.{extension.upper()}.*: \.{extension} files are not read as documents; .+; try --this$"
    with pytest.raises(DataError, match=message):
        refuse_foreign_format(str(path), "; try --this")


@pytest.mark.parametrize(
    "name", ["README", "a.txt", "a.TEXT", "train.de", "train.pt_BR", "x.zh-Hans", "x.eng_Latn", "x.yue", "a.tok.en"]
)
def test_text_without_markup_at_its_beginning_is_plain_text(tmp_path, name):
    texts = ["", "Ein Hund.", "{name} rennt.", '{"a" is a set', "[1] Ein Hund", "< 5 m", "<b>x</b>", "<htmlfoo>"]
    for text in texts:
        (tmp_path / name).write_text(text)
        refuse_foreign_format(str(tmp_path / name))
        document = read_document(str(tmp_path / name), paragraphs=True)
        assert document.filled([None] * len(document.segments)) == text.encode()


@pytest.mark.parametrize("name", ["README", "a.txt", "train.de", "a.txt.gz"])
@pytest.mark.parametrize(
    "start",
    [
        '<?xml version="1.0"?><a>',
        "\n<!DOCTYPE html>",
        "<HTML lang=de>",
        '{"a": "b"}',
        '\n[\n {\n"a\\"b" : 1',
        "\ufeff<html>",
    ],
)
def test_markup_at_the_beginning_of_plain_text_is_refused(tmp_path, name, start):
    path = tmp_path / name
    for encoding in ("utf-8", "utf-16"):
        content = (start + "Ein Hund. " * 1000).encode(encoding)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        with pytest.raises(DataError, match=rf"{name} is no plain text, for it begins with '.*; or so$"):
            refuse_foreign_format(str(path), "; or so")
        with pytest.raises(DataError, match="is no plain text"):
            read_document(str(path), paragraphs=True)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("a.json.gz", {}, DataError, r"a.json.gz is a compressed document \(.gz\); decompress it first"),
        ("a.txt.zst", {"paragraphs": True}, DataError, "is a compressed document"),
        ("a.txt", {}, DataError, r"cannot tell the format of a.txt; documents end in \.csv, .*\.json"),
        ("a.YAML", {}, DataError, r"a.YAML: \.yaml files are not read as documents; convert it to XLIFF or PO"),
        ("a.xlsx", {"paragraphs": True}, DataError, r"\.xlsx files are not read as documents; save the sheet as \.csv"),
        ("a.json", {"columns": [1]}, ConfigError, "a.json: --columns has no meaning for a .json file"),
        ("a.json", {"columns": [1], "paragraphs": True}, ConfigError, "--columns, --paragraphs have no meaning"),
        ("a.txt", {"columns": [1], "paragraphs": True}, ConfigError, "--columns has no meaning for plain text"),
        ("missing.json", {"columns": None}, DataError, "missing.json: there is no such file"),
    ],
)
def test_read_document_rejects_unsupported_formats_and_meaningless_options(name, options, error, message):
    with pytest.raises(error, match=message):
        read_document(name, **options)


@pytest.mark.parametrize(
    ("name", "content", "unwritable"),
    [
        ("a.xlf", '<xliff version="1.2">{}</xliff>', "\x11"),
        ("a.tmx", '<tmx version="1.4"><body>{}</body></tmx>', "\x11"),
        ("a.po", 'msgid "eins"\nmsgstr ""\n\nmsgid "zwei"\nmsgstr ""\n', "\0"),
        ("a.html", "<p>eins<p>zwei", "\0"),
        ("a.md", "eins\n\nzwei\n", "\0"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\neins\n\n2\n00:00:03,000 --> 00:00:04,000\nzwei\n", "\0"),
    ],
)
def test_problem_names_characters_that_the_format_lacks(tmp_path, name, content, unwritable):
    path = tmp_path / name
    units = {
        ".xlf": '<file source-language="de" target-language="en" original="x" datatype="x"><body>'
        '<trans-unit id="1"><source>eins</source></trans-unit><trans-unit id="2"><source>zwei</source></trans-unit>'
        "</body></file>",
        ".tmx": '<tu><tuv xml:lang="de"><seg>eins</seg></tuv></tu><tu><tuv xml:lang="de"><seg>zwei</seg></tuv></tu>',
    }
    path.write_text(content.format(units[path.suffix]) if path.suffix in units else content, encoding="utf-8")
    languages = {"from_lang": "de", "to_lang": "en"} if path.suffix in units else {}
    document = read_document(str(path), **languages)
    assert document.problem(0, "one") == ""
    why = f"its translation holds U+{ord(unwritable):04X}, which the format does not have"
    assert document.problem(1, f"two{unwritable}") == why
    assert b"one" in document.filled([Filling("one"), Filling(document.segments[1].text)])
