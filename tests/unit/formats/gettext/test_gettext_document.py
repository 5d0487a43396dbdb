"""gettext catalogues filled in: Babel reads the translations where they belong, and every other line is as before."""

from __future__ import annotations

import io
import shutil
import subprocess
from itertools import pairwise

import pytest
from babel.messages.pofile import read_po as babel_read_po
from written_files import filled_after_random_changes

from clearhead.errors import DataError
from clearhead.formats.document import Filling
from clearhead.formats.document_files import read_document
from clearhead.formats.gettext.document import GettextCatalogue
from clearhead.formats.wrapping import width_of

CATALOGUE = r"""# Übersetzung
#, fuzzy
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. to the user
#: a.c:1
#, c-format
msgctxt "menu"
msgid "Open %s"
msgstr ""

# by hand
#| msgid "Sav"
msgid "Save"
msgstr "Sichern"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#,fuzzy, python-format
msgid ""
"One\n"
"Two\n"
msgstr ""
"Eins\n"
"Zwo\n"

#~ msgid "old"
#~ msgstr "alt"
"""


def messages(data: bytes) -> dict:
    """Return what Babel reads: by context and source the translation and whether it is fuzzy."""
    found = {}
    for message in babel_read_po(io.BytesIO(data)):
        source = message.id if isinstance(message.id, str) else message.id[0]
        found[message.context, source] = message.string, message.fuzzy
    return found


def test_every_message_in_use_is_a_segment(read):
    document = read("a.po", CATALOGUE)
    assert [(one.line, one.text, one.translation, one.is_finished) for one in document.segments] == [
        (13, "Open %s", "", False),
        (18, "Save", "Sichern", True),
        (21, "%d file", "", False),
        (22, "%d files", "", False),
        (27, "One\nTwo\n", "Eins\nZwo\n", False),
    ]
    assert [one.shown_place for one in document.segments] == [
        "entry 1, line 13",
        "entry 2, line 18",
        "entry 3, line 21",
        "entry 3, line 22",
        "entry 4, line 27",
    ]
    assert [one.format for one in document.segments] == ["c-format", "", "", "", "python-format"]


def test_translations_are_read_where_they_belong_and_nothing_else_changes(read):
    document = read("a.po", CATALOGUE)
    texts = ["%s öffnen", "Sichern!", "%d Datei", "%d Dateien", 'Eins\n"Zwei"\t\\']
    filled = document.filled([Filling(text) for text in texts])
    header = messages(CATALOGUE.encode())[None, ""]
    assert messages(filled) == {
        (None, ""): header,
        ("menu", "Open %s"): ("%s öffnen", True),
        (None, "Save"): ("Sichern!", True),
        (None, "%d file"): (("%d Datei", "%d Dateien"), True),
        (None, "One\nTwo\n"): ('Eins\n"Zwei"\t\\\n', True),
    }
    expected = CATALOGUE
    for old, new in [
        ("#, c-format", "#, fuzzy, c-format"),
        ('"Open %s"\nmsgstr ""', '"Open %s"\nmsgstr "%s öffnen"'),
        ('#| msgid "Sav"', '#, fuzzy\n#| msgid "Sav"'),
        ('"Sichern"', '"Sichern!"'),
        ('msgid "%d file"', '#, fuzzy\nmsgid "%d file"'),
        ('msgstr[0] ""', 'msgstr[0] "%d Datei"'),
        ('msgstr[1] ""', 'msgstr[1] "%d Dateien"'),
        (r'"Zwo\n"', r'"\"Zwei\"\t\\\n"'),
    ]:
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    assert filled.decode() == expected


def test_one_of_two_forms_may_be_filled(read, fill):
    written = 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "x"\nmsgstr[1] ""\nmsgstr[2] "z"\n'
    document = read("a.po", written)
    assert [one.is_finished for one in document.segments] == [True, False]
    filled = '#, fuzzy\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] "x"\nmsgstr[1] "y"\nmsgstr[2] "z"\n'
    assert fill(document, {"b": "y"}) == filled


@pytest.mark.parametrize(
    ("rule", "count", "expected"),
    [
        ("nplurals=3; plural=n == 0 ? 0 : n == 1 ? 1 : 2;", 3, ["B", "A", "B"]),
        ("nplurals=3; plural=n == 1 ? 0 : n < 5 ? 1 : 2;", 3, ["A", "B", "B"]),
        ("nplurals=1; plural=0;", 1, ["B"]),
        ("nplurals=INTEGER; plural=EXPRESSION;", 2, ["A", "B"]),
    ],
)
def test_the_form_for_one_thing_is_that_of_the_singular(read, fill, in_capitals, rule, count, expected):
    head = f'msgid ""\nmsgstr "Plural-Forms: {rule}\\n"\n\n'
    empty = "".join(f'msgstr[{number}] ""\n' for number in range(count))
    filled = fill(read("a.po", f'{head}msgid "a"\nmsgid_plural "b"\n{empty}'), in_capitals)
    written = "".join(f'msgstr[{number}] "{text}"\n' for number, text in enumerate(expected))
    assert filled == f'{head}#, fuzzy\nmsgid "a"\nmsgid_plural "b"\n{written}'


@pytest.mark.parametrize(
    ("rule", "flags", "singular", "expected"),
    [
        ("n%10==1 && n%100!=11 ? 0 : 1", "c-format", "a file", ["%D FILES", "%D FILES"]),  # 1, 21, 31 ..
        ("n%10==1 && n%100!=11 ? 0 : 1", "c-format", "%d file", ["%D FILE", "%D FILES"]),
        ("n%10==1 && n%100!=11 ? 0 : 1", "wrap", "a file", ["A FILE", "%D FILES"]),
        ("n > 1", "c-format", "a file", ["A FILE", "%D FILES"]),  # 0 and 1, which gettext lets be without a number
    ],
)
def test_a_form_for_many_numbers_has_the_arguments_of_the_plural(
    read, fill, in_capitals, rule, flags, singular, expected
):
    head = f'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural={rule};\\n"\n\n'
    message = f'msgid "{singular}"\nmsgid_plural "%d files"\n'
    filled = fill(read("a.po", f'{head}#, {flags}\n{message}msgstr[0] ""\nmsgstr[1] ""\n'), in_capitals)
    written = "".join(f'msgstr[{number}] "{text}"\n' for number, text in enumerate(expected))
    assert filled == f"{head}#, fuzzy, {flags}\n{message}{written}"


@pytest.mark.parametrize(("translation", "charset"), [("Mouse", "CHARSET"), ("Mäuse", "UTF-8")])
def test_a_template_gets_an_encoding_with_the_first_character_that_needs_one(read, fill, translation, charset):
    written = (
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=CHARSET\\n"\n\n#, {}\nmsgid "mouse"\nmsgstr "{}"\n'
    )
    document = read("a.pot", written.format("c-format", ""))
    filled = fill(document, {"mouse": translation})
    assert filled == written.format("fuzzy, c-format", translation).replace("CHARSET", charset)


def test_only_the_first_header_is_a_header(read, fill, in_capitals):
    head = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=(n == 1);\\n"\n\n'
    other = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
    message = 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "{}"\nmsgstr[1] "{}"\n'
    filled = fill(read("a.po", head + other + message.format("", "")), in_capitals)
    assert filled == f"{head}{other}#, fuzzy\n{message.format('B', 'A')}"


def test_line_feeds_at_the_ends_are_those_of_the_source(read):
    written = "".join(f'msgid "{text}"\nmsgstr ""\n\n' for text in ("a", r"b\n", r"\nc", r"\nd\n"))
    document = read("a.po", written)
    for text in ("x", "x\n", "\nx", "\n\nx\n\n"):
        found = messages(document.filled([Filling(text)] * 4))
        for source in ("a", "b\n", "\nc", "\nd\n"):
            translation, _ = found[None, source]
            assert translation.strip("\n") == "x"
            assert (translation[0] == "\n", translation[-1] == "\n") == (source[0] == "\n", source[-1] == "\n")
    assert document.filled([Filling("")] * 4).decode() == written.replace("msgid", "#, fuzzy\nmsgid")


def test_long_translations_are_wrapped_behind_spaces(read, fill):
    exact = "x" * (79 - len('msgstr ""'))
    document = read("a.po", 'msgid "a"\nmsgstr ""\n')
    assert f'\nmsgstr "{exact}"\n' in fill(document, {"a": exact})
    assert f'\nmsgstr ""\n"{exact}x"\n' in fill(document, {"a": f"{exact}x"})
    text = " ".join(['"größer"', "猫猫猫", "word"] * 20) + "\n\nsecond " + "y" * 99 + " end"
    filled = fill(document, {"a": text})
    assert messages(filled.encode())[None, "a"] == (text, True)
    lines = filled.splitlines()[3:]
    assert [line for line in lines if width_of(line) > 79] == [f'"{"y" * 99} "']
    assert all(line.endswith((' "', '\\n"')) for line in lines[:-1])
    # The next word would not have fitted.
    assert all(width_of(line) + width_of(after.split()[0]) > 79 for line, after in pairwise(lines[1:5]))


def test_a_word_longer_than_a_line_has_no_empty_line_behind(read, fill):
    word = "x" * 100
    written = 'msgid "a"\nmsgstr ""\n"b "\n"c"\n'
    assert fill(read("a.po", written), {"a": f"y {word}"}) == f'#, fuzzy\nmsgid "a"\nmsgstr ""\n"y "\n"{word}"\n'


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark_stay(read, fill, mark):
    document = read("a.po", f'{mark}msgid "a"\r\nmsgstr ""\r\n"b"\r\n\r\n  msgid "c"\r\nmsgstr "d"  ')
    assert fill(document, {"a": "x\ny", "c": "z"}) == (
        f'{mark}#, fuzzy\r\nmsgid "a"\r\nmsgstr ""\r\n"x\\n"\r\n"y"\r\n\r\n#, fuzzy\r\n  msgid "c"\r\nmsgstr "z"'
    )


@pytest.mark.parametrize("end", ["\n", "\r", "\r\r\n"])
def test_every_kind_of_line_end_is_read_and_written(read, fill, end):
    document = read("a.po", 'msgid "a"\nmsgstr ""\n\nmsgid "b"\nmsgstr "c"\n'.replace("\n", end))
    assert [(one.line, one.text, one.translation) for one in document.segments] == [(1, "a", ""), (4, "b", "c")]
    expected = '#, fuzzy\nmsgid "a"\nmsgstr "x"\n\nmsgid "b"\nmsgstr "c"\n'.replace("\n", end)
    assert fill(document, {"a": "x"}) == expected


@pytest.mark.parametrize(("charset", "old"), [("UTF-8", "x"), ("SHIFT_JIS", "表"), ("ISO-2022-JP", "犬")])
def test_a_comment_after_a_translation_belongs_to_the_next_message_and_stays(read, charset, old):
    head = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n\n'
    text = head + 'msgid "a"\nmsgstr "{}" #, fuzzy\nmsgid "b"\nmsgstr ""# "one" {}\n\nmsgid "c"\nmsgstr "d # e"\n'
    document = read("a.po", text.format(old, old).encode(charset))
    assert [(one.text, one.translation, one.is_finished) for one in document.segments] == [
        ("a", old, True),
        ("b", "", False),
        ("c", "d # e", True),
    ]
    filled = document.filled([Filling("x"), Filling("y"), None]).decode(charset)
    expected = (
        head
        + f"""#, fuzzy
msgid "a"
msgstr "x" #, fuzzy
msgid "b"
msgstr "y"# "one" {old}

msgid "c"
msgstr "d # e"
"""
    )
    assert filled == expected


@pytest.mark.parametrize("charset", ["ISO-8859-1", "SHIFT_JIS", "ISO-2022-JP"])
def test_the_declared_encoding_is_written(read, charset):
    head = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n\n'
    source, text, lacking = ("größer", "é", "猫") if charset == "ISO-8859-1" else ("犬表", "猫ソ", "é")
    document = read("a.po", f'{head}# {source}\nmsgid "{source}"\nmsgstr ""\n'.encode(charset))
    assert document.segments[0].text == source
    filled = document.filled([Filling(text)])
    assert filled.decode(charset) == f'{head}# {source}\n#, fuzzy\nmsgid "{source}"\nmsgstr "{text}"\n'
    with pytest.raises(DataError) as caught:
        document.filled([Filling(f"a{lacking}")])
    assert str(caught.value).endswith(
        f"a.po, line 5: the translation holds U+{ord(lacking):04X} ({lacking}), which {charset} lacks; convert "
        f"the file: msgconv -t UTF-8"
    )


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "line 1: there is no msgstr (msgid begins 'a')"),
        (
            'msgid "a"\nmsgstr "b\n',
            "line 1: neither a keyword with a string in quotation marks",
        ),
        (b'msgid "a"\nmsgstr "\xff"\n', "line 2: byte 9 (0xff) is not valid UTF-8"),
        (b'msgid "a"\nmsgstr "\0"\n', "line 2: there is a NUL byte"),
        (
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8-sig\\n"\n',
            "is in utf-8-sig, which cannot be written line by line; convert it to UTF-8",
        ),
    ],
)
def test_damaged_catalogues_are_rejected_with_their_line(read, written, message):
    with pytest.raises(DataError) as caught:
        read("a.po", written)
    assert message in str(caught.value)
    assert "a.po" in str(caught.value)


@pytest.mark.parametrize(("text", "shown"), [("a\0", "a NUL"), ("\ud83d", "half of a surrogate pair")])
def test_filled_rejects_nul_and_surrogates(read, text, shown):
    with pytest.raises(DataError, match=rf"a\.po, line 2: the translation holds {shown}"):
        read("a.po", '\nmsgid "a"\nmsgstr ""').filled([Filling(text)])


def test_real_catalogues_round_trip_and_are_filled(data_dir):
    for path in sorted(data_dir("formats").rglob("*.po")):
        document = read_document(str(path))
        data = path.read_bytes()
        assert document.filled([None] * len(document.segments)) == data
        if path.name not in ("wagtail-admin.de.po", "stdlib.po"):
            continue
        sources = {one.text for one in document.segments}
        filled = babel_read_po(io.BytesIO(document.filled([Filling(one.text) for one in document.segments])))
        found = [message for message in filled if message.id]
        assert {text for one in found for text in ([one.id] if isinstance(one.id, str) else one.id)} == sources
        assert all(message.id == message.string and message.fuzzy for message in found)
        assert len(filled.obsolete) == len(babel_read_po(io.BytesIO(data)).obsolete)


def test_random_changes_of_a_catalogue_are_rejected_or_filled():
    pieces = ['"', "\\", "\n", "\r", "#, ", "#~ ", "#| ", "msgid ", 'msgstr[2] "x"\n', "\udcff", "\ufeff"]
    for document in filled_after_random_changes(CATALOGUE, pieces, lambda data: GettextCatalogue(data, "a.po"), "\n"):
        assert all("\\" in one.translation and not one.is_finished for one in document.segments)


@pytest.mark.parametrize(
    ("comment", "most"),
    [
        ("#, max-length:12", 12),
        ("#, fuzzy, max-length:12, c-format", 12),
        ("#. Shown on a button, max-length: 12", 12),
        ("# max-length:12", None),
        ("#, no-max-length:12", None),
    ],
)
def test_comments_may_limit_the_length_of_translations(read, comment, most):
    document = read("a.po", f'{comment}\nmsgid "%d a"\nmsgid_plural "%d as"\nmsgstr[0] ""\nmsgstr[1] ""\n')
    limits = [one.limit for one in document.segments]
    assert [limit and limit.most for limit in limits] == [most, most]
    assert most is None or limits[0] != limits[1]


TEMPLATE = r"""#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: boats\n"
"Language: \n"
"Content-Type: text/plain; charset=CHARSET\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\n"

#, c-format
msgid "%d boat"
msgid_plural "%d boats"
msgstr[0] ""
msgstr[1] ""

msgid "a boat"
msgid_plural "boats"
msgstr[0] "Boot"
msgstr[1] ""
"""
FIELDS = r"""Language: \n"
"Content-Type: text/plain; charset=CHARSET\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\n"
"""
FORMS = """msgstr[0] ""
msgstr[1] ""
"""


@pytest.mark.parametrize(
    ("language", "charset", "rule", "forms"),
    [
        ("pt-BR", "CHARSET", "nplurals=2; plural=(n > 1);", ["%d one", "%d other"]),
        (
            "pl",
            "UTF-8",
            "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);",
            ["%d öne", "%d other", "%d other"],
        ),
        ("ja", "CHARSET", "nplurals=1; plural=0;", ["%d other"]),
    ],
)
def test_a_template_gets_the_plural_forms_of_the_language(read, language, charset, rule, forms):
    document = read("a.pot", TEMPLATE)
    one = "%d öne" if charset == "UTF-8" else "%d one"
    filled = document.filled_in(language, [Filling(one), Filling("%d other"), None, None]).decode()
    fields = rf"""Language: {language.replace("-", "_")}\n"
"Content-Type: text/plain; charset={charset}\n"
"Plural-Forms: {rule}\n"
"""
    written = "".join(f'msgstr[{number}] "{form}"\n' for number, form in enumerate(forms))
    expected = TEMPLATE.replace(FIELDS, fields).replace(FORMS, written).replace("#, c-", "#, fuzzy, c-")
    assert filled == expected
    if shutil.which("msgfmt"):
        reviewed = filled.replace("#, fuzzy, c-format", "#, c-format").partition('\nmsgid "a boat"')[0]
        subprocess.run(["msgfmt", "--check", "-o", "/dev/null", "-"], input=reviewed.encode(), check=True)


def test_a_header_that_is_filled_in_is_kept(read):
    header = r"""msgid ""
msgstr ""
"Language: sl\n"
"Plural-Forms: nplurals=4; plural=n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3;\n"
"""
    message = '\nmsgid "a"\nmsgstr ""\n'
    filled = read("a.po", header + message).filled_in("pl", [Filling("A")])
    assert filled.decode() == header + '\n#, fuzzy\nmsgid "a"\nmsgstr "A"\n'
    # Nothing is added that the header does not have, and nothing is written without a translation or a language.
    assert read("a.po", message).filled_in("pl", [Filling("A")]).decode() == '\n#, fuzzy\nmsgid "a"\nmsgstr "A"\n'
    assert read("a.pot", TEMPLATE).filled_in("pl", [None] * 4).decode() == TEMPLATE
    for language in ("", "xx"):
        document = read("a.pot", TEMPLATE)
        assert b"EXPRESSION" in document.filled_in(language, [Filling("%d a"), Filling("%d b"), None, None])


def test_messages_that_are_not_to_be_wrapped_are_not(read):
    message = 'msgid "a"\nmsgstr ""\n'
    text = " ".join(["word"] * 30) + "\nend"
    filled = read("a.po", f"#, no-wrap\n{message}").filled([Filling(text)]).decode()
    first, end = text.split("\n")
    assert filled == f'#, fuzzy, no-wrap\nmsgid "a"\nmsgstr ""\n"{first}\\n"\n"{end}"\n'
