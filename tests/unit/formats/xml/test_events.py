"""XML as a stream: what the tags and texts of a file are, and every kind of file that is refused with its line."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import socket
import sys
import tracemalloc
from collections.abc import Iterator

import pytest
import zstandard
from written_files import written

from clearhead.errors import DataError
from clearhead.formats.xml import events
from clearhead.formats.xml.events import LANGUAGE, EndTag, StartTag, XmlEvent, read_events, skip_element, text_events

COMPRESS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def joined(events: Iterator[XmlEvent]) -> list[XmlEvent]:
    """Return the events with the pieces of each text put together."""
    found: list[XmlEvent] = []
    for event in events:
        if isinstance(event, str) and found and isinstance(found[-1], str):
            event = str(found.pop()) + event
        found.append(event)
    return found


def text_of(path: str) -> str:
    return "".join(event for event in read_events(path) if isinstance(event, str))


def refused(path: str) -> str:
    with pytest.raises(DataError) as caught:
        list(read_events(path))
    return str(caught.value).removeprefix(path)


def test_read_events_yields_tags_texts_namespaces_and_lines(tmp_path):
    content = (
        '<?xml version="1.0"?>\n<!-- a comment -->\n<a xmlns="urn:x" xmlns:m="urn:m" n="1"\n  xml:lang="de">\n'
        "<m:b m:k='&lt;'/>one &amp; <![CDATA[<two>]]>&#33;<?run this?></a>\n"
    )
    assert joined(read_events(written(tmp_path / "a.xml", content))) == [
        StartTag("a", "urn:x", {"n": "1", LANGUAGE: "de"}, 3, content.index("<a")),
        "\n",
        StartTag("b", "urn:m", {"urn:m k": "<"}, 5, content.index("<m:b")),
        EndTag(content.index("one")),
        "one & <two>!",
        EndTag(content.index("</a>")),
    ]


def test_places_are_bytes_of_the_text_as_utf8():
    text = "<a>\r\n<b c='>'/>" + "é" * 200_000 + "<![CDATA[<x>]]><d >😀</d></a >\n"
    tags = [event for event in text_events(text, "a.xml") if not isinstance(event, str)]
    data = text.encode()
    b, d = data.index(b"<b"), data.index(b"<d")
    assert [(type(tag), tag.place) for tag in tags] == [
        (StartTag, 0),
        (StartTag, b),
        (EndTag, b + len("<b c='>'/>")),
        (StartTag, d),
        (EndTag, d + len("<d >😀".encode())),
        (EndTag, d + len("<d >😀</d>".encode())),
    ]


def test_the_rest_of_an_element_is_passed_over(tmp_path):
    events = read_events(written(tmp_path / "a.xml", "<a><b>x<b/><c>y</c>z</b>rest</a>"))
    assert [next(events), next(events)] == [StartTag("a", "", {}, 1, 0), StartTag("b", "", {}, 1, 3)]
    skip_element(events)
    assert joined(events) == ["rest", EndTag(28)]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<a>äж犬𝄞</a>".encode(), "äж犬𝄞"),
        (codecs.BOM_UTF8 + "<a>ä</a>".encode(), "ä"),
        ('<?xml version="1.0" encoding="utf-8"?><a>ä</a>'.encode(), "ä"),
        ("\ufeff<a>ä犬𝄞</a>".encode("utf-16-le"), "ä犬𝄞"),
        ('\ufeff<?xml version="1.0"?><a>ä犬𝄞</a>'.encode("utf-16-be"), "ä犬𝄞"),
        ('<?xml version="1.0" encoding="UTF-16"?><a>ä</a>'.encode("utf-16-le"), "ä"),
        ("\ufeff<a>ä犬𝄞</a>".encode("utf-32-le"), "ä犬𝄞"),
        # What the byte order mark tells is certain, whatever a program that converted the file left in the declaration.
        ('\ufeff<?xml version="1.0" encoding="UTF-8"?><a>ä</a>'.encode("utf-16-le"), "ä"),
        (codecs.BOM_UTF8 + '<?xml version="1.0" encoding="ISO-8859-1"?><a>ä</a>'.encode(), "ä"),
        ("<?xml version='1.0' encoding='ISO-8859-1'?><a>ä</a>".encode("latin-1"), "ä"),
        ('<?xml version="1.0" encoding="windows-1252"?><a>€</a>'.encode("cp1252"), "€"),
        ('<?xml version="1.0" encoding="KOI8-R" standalone="yes"?><a>жук</a>'.encode("koi8-r"), "жук"),
        ('<?xml version="1.0" encoding="Shift_JIS"?><a>犬</a>'.encode("shift_jis"), "犬"),
        ('<?xml version="1.0" encoding="GB18030"?><a>狗𝄞</a>'.encode("gb18030"), "狗𝄞"),
        ('<?xml version="1.0" encoding="EUC-KR"?><a>개</a>'.encode("euc-kr"), "개"),
    ],
)
def test_encoding_is_read_from_byte_order_mark_or_declaration(tmp_path, content, text):
    assert text_of(written(tmp_path / "a.xml", content)) == text


def test_characters_on_the_edge_of_a_piece_are_read_whole(tmp_path):
    for encoding in ("utf-8", "utf-16"):
        for shift in range(5):
            text = "x" * shift + "ä€𝄞" * 30_000
            assert text_of(written(tmp_path / "a.xml", f"<a>{text}</a>".encode(encoding))) == text


@pytest.mark.parametrize("extension", COMPRESS)
def test_compressed_files_are_decompressed(tmp_path, extension):
    path = written(tmp_path / f"a.xml{extension}", COMPRESS[extension](b"<a>" + b"text " * 50_000 + b"</a>"))
    assert text_of(path) == "text " * 50_000


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("<a>ä</a>".encode())))
    assert text_of("-") == "ä"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"<a>")))
    assert refused("-").startswith("standard input, line 1: the XML is cut off")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", " is empty; an XML file has at least one element"),
        (b"\n\n", ", line 3: the XML is cut off, its first element never ends; make or fetch the file again"),
        (b"<a>\n<b>text</b>\n", ", line 3: the XML is cut off"),
        (b"<a>\n<b attribute='", ", line 2: the XML is cut off"),
        (b"<a><![CDATA[x", ", line 1: the XML is cut off"),
        (b"<a>\n <b></a></b>", ", line 2, column 7: the XML is broken: mismatched tag"),
        (b"<a>\nx & y</a>", ", line 2, column 4: the XML is broken: this character is not allowed here"),
        (b"<a/><b/>", ", line 1, column 5: the XML is broken: junk after document element"),
        (b"just text", ", line 1, column 1: the XML is broken: syntax error"),
        (b"<a>&nbsp;</a>", ", line 1, column 4: the XML is broken: undefined entity"),
        (b"<a><m:b/></a>", ", line 1, column 4: the XML is broken: unbound prefix"),
        (b"<a b='1' b='2'/>", ", line 1, column 10: the XML is broken: duplicate attribute"),
        (b"<a>\nx\0y</a>", ", line 2, column 2: the XML is broken: this character is not allowed here"),
        (
            b"<a>\x01</a>",
            ", line 1, column 4: the XML is broken: this character is not allowed here, for XML forbids U+0001",
        ),
        (
            b"<a>\n&#x41;&#31;</a>",
            ", line 2, column 7: the XML is broken: this character is not allowed here, for XML forbids U+001F; remove",
        ),
        (b"\x7fELF\x02\x01\x01\0\0\0", ", line 1, column 1: the XML is broken: this character is not allowed here"),
        (b"<a>\nb\n\xe4</a>", ", line 3: the byte 0xe4 is not valid UTF-8, which is what the file was taken for; say"),
        (b"<a>\xc3", ", line 1: the byte 0xc3 is not valid UTF-8"),
        ("\ufeff<a>\n".encode("utf-16-be") + b"\xd8\x00\0<", ", line 2: the byte 0xd8 is not valid UTF-16"),
        (
            b'<?xml version="1.0" encoding="shift_jis"?>\n<a>\xff</a>',
            ", line 2: the byte 0xff is not valid SHIFT_JIS",
        ),
        (
            b'<?xml version="1.0" encoding="UTF-16"?><a/>',
            ", line 1: the file says that it is in UTF-16, but this line is not",
        ),
        (
            b'<?xml version="1.0" encoding="klingon"?><a/>',
            ", line 1: the encoding 'klingon' is not known; convert the file to UTF-8, also in this line",
        ),
        (b'<?xml version="1.0" encoding="zlib"?><a/>', ", line 1: the encoding 'zlib' is not known"),
        (gzip.compress(b"<a/>", mtime=0), " is compressed with gzip; give it the extension .gz"),
    ],
)
def test_invalid_xml_is_rejected_with_its_place(tmp_path, content, message):
    assert refused(written(tmp_path / "a.xml", content)).startswith(message)


def test_line_of_an_undecodable_byte_is_counted_over_all_pieces(tmp_path):
    content = b"<a>" + b"123456\n" * 30_000 + b"\xff</a>"
    assert refused(written(tmp_path / "a.xml", content)).startswith(", line 30001: the byte 0xff")


def test_read_events_yields_events_before_an_error(tmp_path):
    events = read_events(written(tmp_path / "a.xml", "<html><p>text<br></p></html>"))
    assert next(events) == StartTag("html", "", {}, 1, 0)


def test_cut_off_or_missing_files_are_refused(tmp_path):
    whole = gzip.compress("".join(map(chr, range(0x4E00, 0x9FFF))).join(["<a>", "</a>"]).encode())
    assert "is cut off: its compressed data ends" in refused(written(tmp_path / "a.xml.gz", whole[:-2_000]))
    assert refused(str(tmp_path / "none.xml")) == ": there is no such file"
    assert "is a directory" in refused(str(tmp_path))


LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))


@pytest.mark.parametrize(
    ("subset", "content"),
    [
        (f'<!ENTITY l0 "ha">{LAUGHS}', "&l9;"),
        (f'<!ENTITY x "{"x" * 50_000}">', "&x;" * 50_000),
        ("<!ENTITY x 'harmless'>", "&x;"),
        ("<!ENTITY x SYSTEM 'secret.txt'>", "&x;"),
        ("<!ENTITY x SYSTEM 'http://localhost:{port}/x'>", "&x;"),
        ("<!ENTITY % x SYSTEM 'secret.dtd'> %x;", "&y;"),
        ("<!ENTITY % x '<!ENTITY y \"why\">'> %x;", "&y;"),
        ("<!NOTATION n SYSTEM 'n'><!ENTITY x SYSTEM 'secret.txt' NDATA n>", ""),
    ],
)
def test_entities_are_refused_where_they_are_declared(tmp_path, monkeypatch, subset, content):
    written(tmp_path / "secret.txt", "the secret")
    written(tmp_path / "secret.dtd", "<!ENTITY y 'the secret'>")
    monkeypatch.chdir(tmp_path)
    message = refused(written(tmp_path / "a.xml", f"<!DOCTYPE a [\n{subset}]>\n<a>{content}</a>"))
    assert message.startswith(", line 2: the document type declares the entity '")
    assert "the secret" not in message


@pytest.mark.parametrize("place", ["SYSTEM '{address}'", "PUBLIC '-//x//y' '{address}'"])
def test_a_document_type_elsewhere_is_not_opened(tmp_path, monkeypatch, place):
    written(tmp_path / "secret.dtd", "<!ENTITY y 'the secret'><!ATTLIST a b CDATA 'the secret'>")
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        for address in ("secret.dtd", f"http://127.0.0.1:{server.getsockname()[1]}/secret.dtd"):
            doctype = f"<!DOCTYPE a {place.format(address=address)}>"
            path = written(tmp_path / "a.xml", f"{doctype}<a>text</a>")
            start = len(doctype)
            assert joined(read_events(path)) == [StartTag("a", "", {}, 1, start), "text", EndTag(start + 7)]
            # It may be declared there, so the parser would leave it out without a word.
            written(tmp_path / "a.xml", f"{doctype}\n<a>&y;</a>")
            assert refused(path) == (
                ", line 2: &y; stands for something that is not in the file, and no other file is opened; put the text "
                "itself in its place"
            )
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_document_type_may_describe_elements_and_adds_nothing_to_them(tmp_path):
    subset = "<!ELEMENT a (#PCDATA)> <!ATTLIST a b CDATA 'added' c CDATA #IMPLIED> <!-- a comment -->"
    doctype = f"<!DOCTYPE a [{subset}]>"
    path = written(tmp_path / "a.xml", f"{doctype}<a c='1'>text</a>")
    start = len(doctype)
    assert joined(read_events(path)) == [StartTag("a", "", {"c": "1"}, 1, start), "text", EndTag(start + 13)]
    subset = "<!ATTLIST a " + " ".join(f"b{n} CDATA 'x'" for n in range(1_001)) + ">"
    message = refused(written(tmp_path / "a.xml", f"<!DOCTYPE a [{subset}]><a>text</a>"))
    assert message == ", line 1: the document type declares more than 1,000 attributes"


def test_depth_is_bounded(tmp_path):
    path = written(tmp_path / "a.xml", "<a>" * 200 + "</a>" * 200)
    assert sum(isinstance(event, EndTag) for event in read_events(path)) == 200
    message = refused(written(tmp_path / "a.xml", "\n".join(["<a>"] * 100_000)))
    assert message == ", line 201: more than 200 elements are nested in each other"


@pytest.mark.parametrize(
    ("before", "after"), [("<b c='", "'/>"), ("<!--", "-->"), ("<?run ", "?>"), ("<", "/>"), ("</", ">")]
)
def test_overlong_tags_and_comments_are_rejected(tmp_path, before, after):
    path = tmp_path / "a.xml"
    message = refused(written(path, f"<a>\n{before}{'x' * 1_200_000}{after}</a>"))
    assert message == ", line 2: what begins here is longer than 1,000,000 characters: is a > missing?"


def test_many_short_comments_and_long_texts_are_no_long_tags(tmp_path):
    path = written(tmp_path / "a.xml", "<a>" + "<!-- comment -->" * 100_000 + "x" * 2_000_000 + "</a>")
    assert len(text_of(path)) == 2_000_000


@pytest.mark.parametrize("element", ["<b{}/>", "<b c{}='1'/>", "<b xmlns:p{}='urn:x'/>", "<b xmlns:p='urn:{}'/>"])
def test_the_number_of_different_names_is_bounded(tmp_path, element):
    path = written(tmp_path / "a.xml", "<a>" + "".join(element.format(n) for n in range(11_000)) + "</a>")
    assert "it has more than 10,000 different names of elements and attributes" in refused(path)


def test_memory_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for rows in (3_000, 15_000):
        path = written(tmp_path / "a.xml", "<a>" + "<b c='1'>text, and more text\n</b>\n" * rows + "</a>")
        tracemalloc.start()
        assert sum(isinstance(event, StartTag) for event in read_events(path)) == rows + 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_forbidden_characters_are_found_wherever_the_parts_of_a_file_begin(tmp_path, monkeypatch):
    path = tmp_path / "a.xml"
    path.write_text("<a>é&#x1E;\x01\uffff&#65;<b/></a>", encoding="utf-8")
    for size in range(1, 9):
        monkeypatch.setattr(events, "CHUNK_BYTES", size)
        found = []
        read = [*read_events(str(path), found)]
        assert found == [(5, 0x1E), (11, 1), (12, 0xFFFF)]
        assert "".join(one for one in read if isinstance(one, str)) == "é??????????A"
        assert [one.place for one in read if isinstance(one, StartTag)] == [0, 20]


def test_more_forbidden_characters_than_a_file_may_have_are_refused(tmp_path):
    (tmp_path / "a.xml").write_text("<a>" + "\x01" * 10_001 + "</a>")
    with pytest.raises(DataError, match="has more than 10,000 characters that XML forbids"):
        [*read_events(str(tmp_path / "a.xml"), [])]
