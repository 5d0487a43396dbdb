r"""gettext catalogues: every entry a pair or counted, in the encoding and the languages that the header says."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections import Counter
from pathlib import Path
from shutil import which

import pytest
from babel.messages.pofile import read_po
from hypothesis import given
from hypothesis import strategies as st
from written_files import texts

from clearhead.errors import ConfigError, DataError
from clearhead.formats import SentencePair, Wanted, described, read_pairs
from clearhead.formats.gettext.po import open_po, write_po

HEADER = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
"""Six lines."""


def written(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def read(tmp_path: Path, text: str | bytes, wanted: Wanted = Wanted()) -> list[SentencePair]:
    return list(open_po(written(tmp_path / "m.po", text), wanted).pairs)


def test_carriage_returns_end_lines_where_there_are_no_line_feeds(tmp_path):
    text = HEADER + 'msgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgstr ""\n'
    for end in ("\r", "\r\r\n"):
        pairs = read(tmp_path, text.replace("\n", end))
        assert [(pair.line, pair.source, pair.target, pair.skipped) for pair in pairs] == [
            (6, "a", "b", None),
            (9, "c", "", "untranslated"),
        ]
    with pytest.raises(DataError, match="line 6: byte 8"):
        read(tmp_path, (HEADER.encode() + b'msgid "\xff"\n').replace(b"\n", b"\r"))


def test_a_comment_after_strings_is_read_as_gettext_does(tmp_path):
    text = 'msgid "a"\nmsgstr "re"\n"st" # one\n\nmsgid "#b"\nmsgstr "c"#, fuzzy\nmsgid "d"\nmsgstr "e"\n'
    found = [(pair.line, pair.source, pair.target, pair.skipped) for pair in read(tmp_path, HEADER + text)]
    assert found == [(6, "a", "rest", None), (10, "#b", "c", None), (12, "d", "e", "unfinished")]
    if which("msgcat") is not None:
        (tmp_path / "m.po").write_text(HEADER + text, encoding="utf-8")
        told = subprocess.run(["msgcat", tmp_path / "m.po"], check=True, capture_output=True, text=True).stdout
        assert 'msgid "a"\nmsgstr "rest"\n' in told
        assert '#, fuzzy\nmsgid "d"' in told


KINDS = r"""
# A translator's word.
#. A programmer's word.
#: views.py:7
msgid "Save"
msgstr "Speichern"

#, python-format, fuzzy
#| msgid "%d file"
msgctxt "count"
msgid "%d file\t"
msgid_plural "%d "
"files"
msgstr[0] "%d Datei\t"
msgstr[1] "%d Dateien"

msgctxt "verb"
msgid "Save"
msgstr ""

#~| msgid "Olde"
#~ msgid "Old"
#~ msgid_plural "Olds"
#~ msgstr[0] "Alt"
#~ msgstr[1] "Alte"

msgid "one\nline \"here\" C:\\new\q"
msgid_plural "lines"
msgstr[1] "viele"
msgstr[0] "eine\r\nZeile"
"""


def test_entries_become_pairs_with_their_lines_or_are_skipped_for_what_the_file_says(tmp_path):
    path = str(tmp_path / "m.po")
    assert read(tmp_path, HEADER + KINDS.lstrip("\n")) == [
        SentencePair("Save", "Speichern", f"{path}:9"),
        SentencePair("%d file\t", "%d Datei\t", f"{path}:14", skipped="unfinished", context="count"),
        SentencePair("%d files", "%d Dateien", f"{path}:14", skipped="unfinished", context="count"),
        SentencePair("Save", "", f"{path}:21", skipped="untranslated", context="verb"),
        SentencePair("Old", "Alt", f"{path}:26", skipped="obsolete"),
        SentencePair("Olds", "Alte", f"{path}:26", skipped="obsolete"),
        SentencePair('one line "here" C:\\new\\q', "eine Zeile", f"{path}:31"),
        SentencePair("lines", "viele", f"{path}:31"),
    ]


def test_of_many_plural_forms_the_first_and_the_last_are_read_and_of_one_form_it_twice(tmp_path):
    three = 'msgid "file"\nmsgid_plural "files"\nmsgstr[0] "plik"\nmsgstr[1] "pliki"\nmsgstr[2] "plików"\n\n'
    one = 'msgid "day"\nmsgid_plural "days"\nmsgstr[0] "日"\n'
    assert texts(read(tmp_path, three + one)) == [("file", "plik"), ("files", "plików"), ("day", "日"), ("days", "日")]


ARABIC = "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;"


@pytest.mark.parametrize(
    ("rule", "count", "expected"),
    [
        (ARABIC, 6, ("1", "5")),
        ("nplurals=3; plural=(n % 10 == 0 ? 0 : n % 10 == 1 ? 1 : 2);", 3, ("1", "2")),
        ("nplurals=4; plural=n%100==1 ? 3 : n%100==2 ? 0 : n%100==3 ? 1 : 2;", 4, ("3", "2")),
        ("nplurals=1; plural=0;", 1, ("0", "0")),
        ("nplurals=2; plural=n == 1 ? 7 : 0;", 2, ("0", "1")),  # no such form
        ("nplurals=2; plural=n % 0;", 2, ("0", "1")),
        ("nplurals=2; plural=" + "(" * 300 + "n", 2, ("0", "1")),
        ("nplurals=INTEGER; plural=EXPRESSION;", 2, ("0", "1")),
        ("", 2, ("0", "1")),
    ],
)
def test_the_rule_of_the_header_tells_the_form_for_one(tmp_path, rule, count, expected):
    header = f'msgid ""\nmsgstr "Plural-Forms: {rule}\\n"\n\n'
    forms = "".join(f'msgstr[{form}] "{form}"\n' for form in range(count))
    pairs = read(tmp_path, f'{header}msgid "file"\nmsgid_plural "files"\n{forms}')
    assert texts(pairs) == [("file", expected[0]), ("files", expected[1])]


def test_repeated_po_entries_are_all_read(tmp_path):
    assert texts(read(tmp_path, 'msgid "a"\nmsgstr "1"\n\nmsgid "a"\nmsgstr "2"\n\nmsgid "a"\nmsgstr "1"\n')) == [
        ("a", "1"),
        ("a", "2"),
        ("a", "1"),
    ]


LOOSE = {
    "no space in flags": ('#,fuzzy\nmsgid "a"\nmsgstr "b"\n', [("a", "b", "unfinished")]),
    "a comment without space": ('#note\nmsgid "a"\nmsgstr "b"\n', [("a", "b", None)]),
    "a flag that is not fuzzy": ('#, no-fuzzy, c-format\nmsgid "a"\nmsgstr "b"\n', [("a", "b", None)]),
    "flags of an entry without text": ('#, fuzzy\nmsgid "a"\nmsgstr ""\n', [("a", "", "untranslated")]),
    "obsolete without space": ('#~msgid "a"\n#~msgstr "b"\n', [("a", "b", "obsolete")]),
    "an empty comment at the end": ('msgid "a"\nmsgstr "b"\n#:\n', [("a", "b", None)]),
    "no blank line between": ('msgid "a"\nmsgstr "b"\nmsgid "c"\nmsgstr "d"', [("a", "b", None), ("c", "d", None)]),
    "a comment within": ('msgid "a"\n# why\nmsgstr "b"\n', [("a", "b", None)]),
    "line separators of Unicode": ('msgid "a\u2028\x0c\x85b"\nmsgstr "c"\n', [("a\u2028\x0c\x85b", "c", None)]),
    "tabs": ('\tmsgid\t"a"\n\t"b" "c"\nmsgstr\t"d"\n', [("abc", "d", None)]),
    "no space": ('msgid"a"\nmsgid_plural"b"\nmsgstr [ 0 ]"c"\n', [("a", "c", None), ("b", "c", None)]),
    "an empty source in a context": ('msgctxt "x"\nmsgid ""\nmsgstr "c"\n', [("", "c", None)]),
    "the header is fuzzy": ("#, fuzzy\n" + HEADER + 'msgid "a"\nmsgstr "b"\n', [("a", "b", None)]),
    "only a header": (HEADER, []),
    "only comments": ("# nothing\n#, fuzzy\n", []),
    "nothing": ("", []),
}


@pytest.mark.parametrize(("text", "expected"), LOOSE.values(), ids=LOOSE.keys())
def test_loose_forms_that_gettext_accepts_are_read(tmp_path, text, expected):
    assert [(pair.source, pair.target, pair.skipped or pair.defect) for pair in read(tmp_path, text)] == expected


WRONG = {
    "no closing quotation mark": ('msgid "abc\nmsgstr "x"\n', "4: neither a keyword with a string .* 'msgid \"abc'"),
    "an open one below": ('msgid "a"\nmsgstr ""\n"x\n', "4: neither .* nor a comment on line 6: '\"x'"),
    "no translation": ('msgid "abc"\n', r"4: there is no msgstr \(msgid begins 'abc'\)"),
    "two translations": (
        'msgid "a"\nmsgstr "b"\nmsgstr "c"\n',
        "4: msgstr is where it does not belong on line 6: ",
    ),
    "no source": ('msgstr "b"\n', "4: msgstr is where it does not belong: 'msgstr \"b\"'"),
    "a form without a plural": ('msgid "a"\nmsgstr[0] "b"\n', "4: msgstr is where .* on line 5: 'msgstr.0. \"b\"'"),
    "a plural without forms": ('msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n', "4: msgstr is where .* on line 6: "),
    "a form twice": (
        'msgid "a"\nmsgid_plural "b"\nmsgstr[1] "c"\nmsgstr[01] "d"\n',
        "4: msgstr is where .* on line 7: ",
    ),
    "a string alone": ('#\n"b"\n', "5: a string without keyword is where it does not belong: '\"b\"'"),
    "a merge conflict": ("<<<<<<< ours\n", "4: neither .* nor a comment: '<<<<<<< ours'"),
    "text behind a string": ('msgid "a" b\nmsgstr "c"\n', "4: neither .* nor a comment: 'msgid \"a\" b'"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_spoils_its_entry_alone(tmp_path, text, message):
    around = 'msgid "1"\nmsgstr "2"\n\n' + text + '\nmsgid "3"\nmsgstr "4"\n'
    pairs = read(tmp_path, around)
    assert texts(pairs) == [("1", "2"), ("", ""), ("3", "4")]
    assert re.match(message, f"{pairs[1].line}: {pairs[1].defect}")
    with pytest.raises(DataError, match=rf"m\.po, line {message}"):
        list(read_pairs([written(tmp_path / "m.po", around)]))


NAME = "Jörg Müller"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("charset", "mark"),
    [("ISO-8859-1", b""), ("utf-8", b"\xef\xbb\xbf"), ("UTF-8", b""), ("cp1252", b""), ("CHARSET", b""), (None, b"")],
)
def test_the_declared_encoding_is_read_whatever_the_line_ends(tmp_path, charset, mark, ends):
    said = f'"Content-Type: text/plain; charset={charset}\\n"\n' if charset else ""
    text = (
        f'# {NAME}\nmsgid ""\nmsgstr ""\n"Last-Translator: {NAME}\\n"\n{said}\n#: é.c\nmsgid "naïve"\nmsgstr "größer"\n'
    )
    encoding = charset if charset not in (None, "CHARSET") else "utf-8"
    assert texts(read(tmp_path, mark + text.replace("\n", ends).encode(encoding))) == [("naïve", "größer")]


def test_encodings_whose_second_bytes_are_quotation_marks_and_backslashes_are_read(tmp_path):
    for charset, word in (("Shift_JIS", "表示ソ"), ("BIG5", "功許蓋"), ("GBK", "乗俓")):
        text = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n\nmsgid "a"\nmsgstr "{word}"\n'
        assert b"\\" in word.encode(charset) or charset == "GBK"
        assert texts(read(tmp_path, text.encode(charset))) == [("a", word)]


def declared(charset: str, text: str) -> str:
    return f'msgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n\nmsgid "{text}"\nmsgstr "{text}"\n'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            declared("UTF-8", "größer").encode("latin-1"),
            r"line 4: byte 10 \(0xf6\) is not valid UTF-8, .* its header s",
        ),
        (
            b'msgid "gr\xf6\xdfer"\nmsgstr "x"\n',
            r"line 1: byte 10 \(0xf6\) is not valid UTF-8, .* no header says other",
        ),
        (b"\xef\xbb\xbf" + declared("latin-1", "ö").encode("latin-1"), r"line 4: .* as its byte order mark says"),
        (declared("ISO-8859-1", "größer").encode(), r"line 4: this is UTF-8, not ISO-8859-1, as its header says; "),
        (declared("ASCII", "größer").encode("latin-1"), "line 4: .* is not valid ASCII"),
        (declared("klingon", "a").encode(), "declares the encoding 'klingon', which is not known or cannot"),
        (declared("utf-16", "a").encode(), "declares the encoding 'utf-16', which is not known or cannot hold"),
        (declared("unicode_escape", "a").encode(), "declares the encoding 'unicode_escape'"),
        (declared("utf-7", "a").encode(), "declares the encoding 'utf-7'"),
        (declared("hex", "a").encode(), "declares the encoding 'hex'"),
        (declared("UTF-8", "a").encode("utf-16"), "looks like UTF-16; convert"),
        (b'msgid "a"\nmsgstr "\0"\n', "line 2: there is a NUL byte"),
        (gzip.compress(b"", mtime=0), r"is compressed with gzip; give it the extension \.gz"),
    ],
)
def test_a_wrong_encoding_is_refused_with_its_place(tmp_path, data, message):
    with pytest.raises(DataError, match=rf"m\.po,? {message}"):
        read(tmp_path, data)


BOTH = 'msgid ""\nmsgstr ""\n"Language: de_AT\\n"\n"X-Source-Language: en\\n"\n\nmsgid "yes"\nmsgstr "ja"\n'
TARGET = BOTH.replace('"X-Source-Language: en\\n"\n', "")
NEITHER = 'msgid "yes"\nmsgstr "ja"\n'


@pytest.mark.parametrize(
    ("text", "languages", "is_reversed"),
    [
        (TARGET, (None, None), False),
        (TARGET, ("en", "de"), False),
        (TARGET, (None, "de-AT"), False),
        (TARGET, ("fr", "de"), False),  # nothing says that it is not French
        (TARGET, ("de", "en"), True),
        (TARGET, ("de", None), True),
        (TARGET, ("de", "de"), False),
        (BOTH, ("en", "de"), False),
        (BOTH, ("de", "en"), True),
        (BOTH, (None, "en"), True),
        (NEITHER, ("sw", "zu"), False),
    ],
)
def test_the_languages_that_are_asked_for_tell_the_direction(tmp_path, text, languages, is_reversed):
    expected = ("ja", "yes") if is_reversed else ("yes", "ja")
    assert texts(read(tmp_path, text, Wanted(None, *languages))) == [expected]


@pytest.mark.parametrize(
    ("text", "languages", "message"),
    [
        (TARGET, (None, "fr"), r"m\.po has msgstr in 'de_AT', as its header says, and to 'fr' is asked for"),
        (TARGET, ("en", "de-CH"), "from 'en' to 'de-CH' is asked for"),
        (BOTH, ("fr", "de"), "has msgid in 'en' and msgstr in 'de_AT', as its header says, and from 'fr' to 'de'"),
        (BOTH, ("de", "fr"), "from 'de' to 'fr'"),
    ],
)
def test_languages_that_it_does_not_have_are_refused_with_those_it_has(tmp_path, text, languages, message):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text, Wanted(None, *languages))


def test_described_names_gettext_catalogue_and_languages(tmp_path):
    path = written(tmp_path / "m.po", BOTH)
    told: list[str] = []
    pairs = read_pairs([path], Wanted(None, "de", "en"), on_open=lambda files: told.extend(described(files)))
    assert told == [f"{path}: gettext catalogue; from msgstr (de_AT) to msgid (en)"]
    assert texts(pairs) == [("ja", "yes")]


def test_compressed_catalogues_are_read_and_too_large_ones_refused(tmp_path, monkeypatch):
    path = written(tmp_path / "m.po.gz", gzip.compress(BOTH.encode()))
    assert texts(read_pairs([path])) == [("yes", "ja")]
    monkeypatch.setattr("clearhead.formats.file_text.MOST_BYTES", len(BOTH) - 1)
    with pytest.raises(DataError, match=r"m\.po\.gz has more than 0 MB, .* divide it"):
        read_pairs([path])


def entries_counted_otherwise(text: str) -> Counter[str]:
    """Count entries by regular expressions alone."""
    counts: Counter[str] = Counter()
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if not any(re.match(r"(#~ )?msgid ", line) for line in lines):
            continue
        is_plural = any(re.match(r"(#~ )?msgid_plural ", line) for line in lines)
        counts["entries"] += 1
        counts["plural"] += is_plural
        if any(line.startswith("#~ msgid ") for line in lines):
            counts["obsolete"] += 1
        elif re.search(r'^msgstr ""\Z', block.strip(), re.MULTILINE):
            counts["untranslated"] += 1
        elif any(line.startswith("#,") and "fuzzy" in line for line in lines) and 'msgid ""\nmsgstr ""' not in block:
            counts["unfinished"] += 1
    return counts


def test_the_real_catalogues_have_the_entries_that_their_readme_and_other_counts_say(data_dir):
    folder = data_dir("formats")
    said = {"wagtail-admin.de.po": (899, 50), "django-rest-framework.fr.po": (126, 0)}
    paths = [*folder.glob("*.po"), *folder.glob("python-docs-tutorial.fr/*.po")]
    assert len(paths) == 19
    for path in paths:
        counted = entries_counted_otherwise(path.read_text(encoding="utf-8"))
        if path.name in said:
            assert (counted["entries"], counted["plural"]) == said[path.name]
        pairs = list(read_pairs([str(path)]))
        assert len(pairs) == counted["entries"] - 1 + counted["plural"]  # without the header, which is an entry
        skipped = Counter(pair.skipped for pair in pairs if pair.skipped)
        assert skipped == {
            reason: counted[reason] for reason in ("obsolete", "untranslated", "unfinished") if counted[reason]
        }


def test_the_real_catalogues_read_as_babel_reads_them(data_dir):
    for path in sorted(data_dir("formats").rglob("*.po")):
        with path.open("rb") as file:
            catalog = read_po(file)
        expected = []
        for message in list(catalog)[1:]:
            sides = zip(
                *((text,) if isinstance(text, str) else text for text in (message.id, message.string)), strict=True
            )
            expected += [(a.replace("\n", " "), b.replace("\n", " "), message.fuzzy) for a, b in sides]
        pairs = [pair for pair in read_pairs([str(path)]) if pair.skipped != "obsolete"]
        assert [(pair.source, pair.target, pair.skipped == "unfinished") for pair in pairs] == expected


sides = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=9)
signs = st.text(st.sampled_from('a"\\nt\t\x07\x0b\u2028 #~'), max_size=7)


@given(
    st.lists(st.tuples((sides | signs).filter(bool), sides | signs), max_size=5),
    st.sampled_from(["po", "po.gz", "po.xz", "po.zst"]),
)
def test_po_pairs_round_trip(tmp_path_factory, pairs, extension):
    path = str(tmp_path_factory.getbasetemp() / f"p.{extension}")
    assert write_po(path, (SentencePair(*both, "x:1") for both in pairs), ("en", "de")) == len(pairs)
    back = list(read_pairs([path], Wanted(None, "en", "de")))
    assert texts(back) == pairs
    assert [pair.skipped for pair in back] == [None if target else "untranslated" for _, target in pairs]
    assert not any(pair.defect for pair in back)


def test_write_po_output_is_valid_for_msgfmt(tmp_path):
    path = str(tmp_path / "p.po")
    write_po(
        path, [SentencePair('say "no"\t', "sag \\n„nein“\x07", "x:1"), SentencePair("a", "ä", "x:2")], ("en", "de")
    )
    assert Path(path).read_text(encoding="utf-8") == (
        'msgid ""\nmsgstr ""\n"Language: de\\n"\n"MIME-Version: 1.0\\n"\n'
        '"Content-Type: text/plain; charset=UTF-8\\n"\n"Content-Transfer-Encoding: 8bit\\n"\n'
        '"X-Source-Language: en\\n"\n\n'
        'msgid "say \\"no\\"\\t"\nmsgstr "sag \\\\n„nein“\\a"\n\nmsgid "a"\nmsgstr "ä"\n'
    )
    if which("msgfmt"):
        subprocess.run(["msgfmt", "--check", "-o", "/dev/null", path], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (SentencePair("", "b", "f.tsv:7"), r"f\.tsv:7: the source is empty, and in a \.po this is its header; leave"),
        (SentencePair("a\nb", "b", "f.tsv:7"), r"f\.tsv:7: the source holds a line feed, which a \.po cannot keep"),
        (SentencePair("a", "b\r", "f.tsv:7"), r"f\.tsv:7: the target holds a carriage return"),
        (SentencePair("a", "\0", "f.tsv:7"), r"f\.tsv:7: the target holds a NUL character"),
        (SentencePair("a", "\ud800", "f.tsv:7"), r"half of a surrogate pair"),
    ],
)
def test_write_po_rejects_texts_a_po_cannot_keep_and_writes_nothing(tmp_path, pair, message):
    with pytest.raises(DataError, match=message):
        write_po(str(tmp_path / "p.po"), [SentencePair("ok", "ok", "f.tsv:6"), pair], ("en", "de"))
    assert list(tmp_path.iterdir()) == []
