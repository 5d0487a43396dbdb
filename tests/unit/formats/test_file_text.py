from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DataError
from clearhead.formats import file_text
from clearhead.formats.file_text import FileText


@pytest.fixture
def write(tmp_path):
    def written(content):
        path = tmp_path / "file.txt"
        path.write_bytes(content)
        return str(path)

    return written


@pytest.mark.parametrize(
    ("content", "text", "replaced"),
    [
        (b"a\xc3\xa9b", "aéb", b"aXb"),
        (b"\xef\xbb\xbfa\xc3\xa9b", "aéb", b"\xef\xbb\xbfaXb"),
        (b"\xff\xfea\0\xe9\0b\0", "aéb", b"\xff\xfea\0X\0b\0"),
        (b"\xfe\xff\0a\0\xe9\0b", "aéb", b"\xfe\xff\0a\0X\0b"),
    ],
)
def test_a_file_keeps_its_encoding_and_its_mark(write, content, text, replaced):
    source = FileText.read(write(content))
    assert source.text == text
    assert source.replaced([(1, 2, "X")]) == replaced
    assert source.replaced([]) == content


@given(st.text("ab\r\né犬😀"), st.lists(st.text("xé犬", max_size=3), max_size=5), st.data())
def test_places_are_replaced_as_in_the_text(text, new, data):
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2 * len(new), max_size=2 * len(new))))
    changes = list(zip(ends[::2], ends[1::2], new, strict=True))
    expected, position = "", 0
    for start, end, own in changes:
        expected, position = expected + text[position:start] + own, end
    source = FileText("x", text.encode(), text, "utf-8", 0)
    assert source.replaced(changes) == (expected + text[position:]).encode()


def test_lines_end_in_three_ways(write):
    source = FileText.read(write(b"a\r\nb\rc\n\nd\xe2\x80\xa8e"))
    assert [source.text[line.start : line.end] for line in source.lines()] == ["a", "b", "c", "", "d\u2028e"]
    assert [line.number for line in source.lines()] == [1, 2, 3, 4, 5]
    assert [source.line(position) for position in (0, 1, 2, 3, 5, 7, 8, 10)] == [1, 1, 1, 2, 3, 4, 5, 5]
    assert source.line_end == "\r\n"
    assert FileText.read(write(b"a")).line_end == FileText.read(write(b"")).line_end == "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\xe9", r"file.txt, line 2: byte 2 \(0xe9\) is not valid UTF-8; .* iconv -f CP1252"),
        (b"\xff\xfea", r"file.txt, line 1: byte 3 \(0x61\) is not valid UTF-16"),
        (b"\xff\xfe\0\0a\0\0\0", "looks like UTF-32"),
        (b"a\n\0", r"file.txt, line 2: there is a NUL \(0x00\); is it a binary file\?"),
    ],
)
def test_read_rejects_invalid_encodings_and_nul_with_their_place(write, content, message):
    with pytest.raises(DataError, match=message):
        FileText.read(write(content))


def test_a_file_that_is_missing_a_directory_or_too_large_is_refused(write, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"none.txt: there is no such file"):
        FileText.read(str(tmp_path / "none.txt"))
    with pytest.raises(DataError, match="is a directory"):
        FileText.read(str(tmp_path))
    monkeypatch.setattr(file_text, "MOST_BYTES", 3)
    FileText.read(write(b"abc"))
    with pytest.raises(DataError, match=r"the most that a document or a catalogue may have"):
        FileText.read(write(b"abcd"))


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff")))
    with pytest.raises(DataError, match="standard input, line 2"):
        FileText.read("-")


def test_half_a_surrogate_pair_is_refused_with_the_line(write):
    with pytest.raises(DataError, match=r"file.txt, line 2: .* half of a surrogate pair"):
        FileText.read(write(b"a\nb")).replaced([(2, 3, "\ud83d")])
