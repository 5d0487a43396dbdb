"""Compiled catalogues: what `msgfmt` and Babel make, in both byte orders; what is damaged is refused."""

from __future__ import annotations

import gettext
import io
import struct
from collections import Counter
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from clearhead.errors import ConfigError, DataError
from clearhead.formats import SentencePair, Wanted, read_pairs


def compiled(messages: list[tuple[bytes, bytes]], order: str = "<", version: int = 0) -> bytes:
    """Lay out a file by hand, as the manual of gettext draws it."""
    count = len(messages)
    tables, texts, start = [b"", b""], b"", 28 + 16 * count
    for side in (0, 1):
        for message in messages:
            tables[side] += struct.pack(f"{order}2I", len(message[side]), start + len(texts))
            texts += message[side] + b"\0"
    return (
        struct.pack(f"{order}7I", 0x950412DE, version, count, 28, 28 + 8 * count, 0, 28) + tables[0] + tables[1] + texts
    )


MESSAGES = [
    (b"", b"Language: de\nContent-Type: text/plain; charset=ISO-8859-1\nLast-Translator: J\xf6rg\n"),
    (b"file\0files", b"Datei\0Dateien"),
    (b"menu\x04Open\n", b"\xd6ffnen\n"),
]


def read(path: Path, data: bytes, wanted: Wanted = Wanted()) -> list[SentencePair]:
    path.write_bytes(data)
    return list(read_pairs([str(path)], wanted))


@pytest.mark.parametrize("order", ["<", ">"])
def test_messages_are_pairs_with_their_numbers_in_either_byte_order(tmp_path, order):
    path = tmp_path / "m.mo"
    assert read(path, compiled(MESSAGES, order), Wanted(None, "en", "de")) == [
        SentencePair("file", "Datei", f"{path}:2"),
        SentencePair("files", "Dateien", f"{path}:2"),
        SentencePair("Open ", "Öffnen ", f"{path}:3", context="menu"),
    ]
    assert read(path, compiled(MESSAGES, order), Wanted(None, "de", "en"))[0].source == "Datei"
    with pytest.raises(
        ConfigError, match=r"m\.mo has msgstr in 'de', as its header says, and from 'en' to 'fr' is asked"
    ):
        read(path, compiled(MESSAGES, order), Wanted(None, "en", "fr"))


def test_mo_files_without_a_header_are_read_as_utf8(tmp_path):
    pairs = read(tmp_path / "m.mo", compiled([(b"yes", "jä".encode())]))
    assert [(pair.source, pair.target) for pair in pairs] == [("yes", "jä")]
    assert read(tmp_path / "m.mo", compiled([])) == []


def test_mo_files_of_babel_are_read_as_by_the_standard_library(tmp_path, data_dir):
    with (data_dir("formats") / "wagtail-admin.de.po").open("rb") as file:
        catalog = read_po(file)
    with (tmp_path / "m.mo").open("wb") as file:
        write_mo(file, catalog)
    with (tmp_path / "m.mo").open("rb") as file:
        known = gettext.GNUTranslations(file)
    pairs = list(read_pairs([str(tmp_path / "m.mo")]))
    assert len(pairs) == 898 + 50
    plain = [message for message in list(catalog)[1:] if isinstance(message.id, str)]
    expected = [(m.id, known.pgettext(m.context, m.id) if m.context else known.gettext(m.id)) for m in plain]
    assert len(expected) == 898 - 50
    found = Counter((pair.source, pair.target) for pair in pairs)
    assert not Counter((a.replace("\n", " "), b.replace("\n", " ")) for a, b in expected) - found


def test_fuzzy_messages_are_not_in_mo_files_of_babel(tmp_path):
    catalog = Catalog(locale="de")
    catalog.add("a", "b", flags=["fuzzy"])
    catalog.add("c", "d")
    data = io.BytesIO()
    write_mo(data, catalog)
    assert [pair.source for pair in read(tmp_path / "m.mo", data.getvalue())] == ["c"]


WHOLE = compiled(MESSAGES)
OVERLAPPING = b"".join([struct.pack("<7I", 0x950412DE, 0, 50, 28, 28, 0, 28), struct.pack("<2I", 500, 28) * 70])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin as a compiled gettext catalogue does"),
        (b'msgid "a"\nmsgstr "b"\n', r"does not begin .* is it a \.po\?"),
        (WHOLE[:20], "is damaged: its texts do not lie where it says, or it is cut off"),
        (WHOLE[:-4], "is damaged"),
        (WHOLE[:8] + b"\xff\xff\xff\xff" + WHOLE[12:], "is damaged"),
        (WHOLE[:12] + b"\xff\xff\xff\xff" + WHOLE[16:], "is damaged"),
        (OVERLAPPING, "is damaged"),
        (compiled(MESSAGES, version=2 << 16), "is of version 2 of its format, and versions 0 and 1 are known"),
        (
            compiled([(b"", b"Content-Type: text/plain; charset=UTF-8\n"), (b"a", b"\xd6")]),
            "message 2: byte 0xd6 is not",
        ),
        (compiled([(b"", b"Content-Type: text/plain; charset=x\n")]), "declares the encoding 'x'"),
    ],
)
def test_damaged_mo_files_are_rejected(tmp_path, data, message):
    with pytest.raises(DataError, match=rf"m\.mo,? {message}"):
        read(tmp_path / "m.mo", data)


def test_mo_files_cut_off_anywhere_are_rejected(tmp_path):
    for length in range(len(WHOLE) - 1):  # the last byte is the NUL behind the last text
        with pytest.raises(DataError):
            read(tmp_path / "m.mo", WHOLE[:length])
