"""Reading and writing lines: what a line is, every compression, and every kind of file that is not text."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import subprocess
import sys
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DataError
from clearhead.files import streams
from clearhead.files.streams import open_output, read_lines

COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": partial(lzma.compress, preset=0),
    ".zst": zstandard.ZstdCompressor().compress,
}
TEXT = "".join(f"Zeile {n}: ä€𝄞\n" for n in range(4_999))


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_only_line_feeds_end_lines(tmp_path):
    text = "a\u2028b\x0bc\x0cd\x85e\rf\x1cg\r\n\r\n h \nlast"
    path = written(tmp_path / "t.txt", text.encode())
    assert list(read_lines(path)) == ["a\u2028b\x0bc\x0cd\x85e\rf\x1cg", "", " h ", "last"]


def test_only_one_carriage_return_belongs_to_the_line_end(tmp_path):
    assert list(read_lines(written(tmp_path / "t.txt", b"a\r\r\nb\n"))) == ["a\r", "b"]


def test_byte_order_mark_is_removed_at_the_start_only(tmp_path):
    path = written(tmp_path / "t.txt", "\ufeffa\n\ufeffb\n".encode())
    assert list(read_lines(path)) == ["a", "\ufeffb"]


def test_empty_file_has_no_line_and_blank_line_is_a_line(tmp_path):
    assert list(read_lines(written(tmp_path / "t.txt", b""))) == []
    assert list(read_lines(written(tmp_path / "t.txt", b"\n"))) == [""]


def test_standard_input_is_read_as_utf8(monkeypatch):
    standard_input(monkeypatch, "ä\nb".encode())
    assert list(read_lines("-")) == ["ä", "b"]


@pytest.mark.parametrize("extension", COMPRESS)
def test_compressed_files_read_as_plain_ones(tmp_path, extension):
    path = written(tmp_path / f"t.txt{extension}", COMPRESS[extension](TEXT.encode()))
    assert list(read_lines(path)) == TEXT.splitlines()


@pytest.mark.parametrize("extension", COMPRESS)
def test_a_line_longer_than_the_limit_is_refused_without_reading_the_rest(tmp_path, monkeypatch, extension):
    monkeypatch.setattr(streams, "MOST_LINE_BYTES", 2**20)
    longest = b"a" * (2**20 - 1) + b"\n"
    path = written(tmp_path / f"t.txt{extension}", COMPRESS[extension](longest + b"b\n" + longest[:-1] + b"aa\nc\n"))
    lines = read_lines(path)
    assert [len(next(lines)), next(lines)] == [2**20 - 1, "b"]
    with pytest.raises(DataError, match=rf"t\.txt{extension}, line 3: the line is longer than 1 MB; divide it"):
        next(lines)


@pytest.mark.parametrize("extension", [".gz", ".xz", ".zst"])
def test_read_lines_bounds_the_memory_of_decompression(tmp_path, extension):
    path = written(tmp_path / f"t{extension}", COMPRESS[extension](bytes(150 * 2**20)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="line 1: the line is longer than 16 MB"):
            list(read_lines(path))
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("extension", [".gz", ".xz", ".zst"])
def test_several_compressed_streams_in_one_file_are_all_read(tmp_path, extension):
    compress = COMPRESS[extension]
    path = written(tmp_path / f"t{extension}", compress(b"a\nb") + compress(b"c\nd\n"))
    assert list(read_lines(path)) == ["a", "bc", "d"]


@pytest.mark.parametrize("extension", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_cut_off_compressed_file_is_refused(tmp_path, extension, part):
    whole = COMPRESS[extension](os.urandom(30_011).hex().encode())
    path = written(tmp_path / f"t{extension}", whole[: int(part * len(whole))])
    with pytest.raises(DataError, match=rf"t{extension} is cut off"):
        list(read_lines(path))


@pytest.mark.parametrize("extension", [".gz", ".xz", ".zst"])
def test_file_of_another_kind_than_its_extension_is_refused(tmp_path, extension):
    path = written(tmp_path / f"t{extension}", b"just text, no compression here\n" * 7)
    with pytest.raises(DataError, match=rf"t{extension} cannot be decompressed"):
        list(read_lines(path))


@pytest.mark.parametrize("extension", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("place", ["first byte of the second stream", "middle of the second stream", "behind the last"])
def test_damage_behind_the_first_of_several_streams_is_never_a_shorter_text(tmp_path, extension, place):
    first, second = (COMPRESS[extension](f"{number}\n".encode() * 100) for number in (1, 2))
    path = tmp_path / f"text{extension}"
    path.write_bytes(first + second)
    assert list(read_lines(str(path))) == ["1"] * 100 + ["2"] * 100
    damaged = bytearray(first + second)
    match place:
        case "first byte of the second stream":
            damaged[len(first)] ^= 1
        case "middle of the second stream":
            damaged[len(first) + len(second) // 2] ^= 1
        case _:
            damaged += b"\x01\x02\x03\x04"
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"cannot be decompressed|is cut off"):
        list(read_lines(str(path)))


def test_read_lines_skips_zero_padding_between_xz_streams(tmp_path):
    stream = lzma.compress(b"a\nb\n")
    (tmp_path / "a.xz").write_bytes(stream + bytes(4) + stream + bytes(20_000))
    assert list(read_lines(str(tmp_path / "a.xz"))) == ["a", "b", "a", "b"]


@pytest.mark.parametrize("extension", [".gz", ".xz", ".zst"])
def test_a_flipped_bit_in_what_we_compressed_is_found(tmp_path, extension):
    path = tmp_path / f"text{extension}"
    with open_output(str(path)) as file:
        file.writelines(f"line {number * number}\n" for number in range(300))
    whole = path.read_bytes()
    text = list(read_lines(str(path)))
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            assert list(read_lines(str(path))) == text  # a field of the header that means nothing, such as a time
        except DataError:
            continue


@pytest.mark.parametrize("extension", [".gz", ".xz"])
def test_flipped_bit_in_a_checksummed_file_is_refused(tmp_path, extension):
    whole = bytearray(COMPRESS[extension](os.urandom(30_011).hex().encode()))
    whole[len(whole) // 2] ^= 4
    with pytest.raises(DataError, match="cannot be decompressed"):
        list(read_lines(written(tmp_path / f"t{extension}", bytes(whole))))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ab\n".encode("utf-16"), "looks like UTF-16; convert: iconv -f UTF-16 -t UTF-8"),
        (b"\xfe\xff" + "ab\n".encode("utf-16-be"), "looks like UTF-16"),
        ("ab\n".encode("utf-32"), "looks like UTF-32"),
        (gzip.compress(b"a\n", mtime=0), "is compressed with gzip; give it the extension .gz"),
        (lzma.compress(b"a\n"), "extension .xz"),
        (COMPRESS[".zst"](b"a\n"), "extension .zst"),
        (b"ab\ncd\0e\n", "line 2: byte 3 is NUL .*binary file"),
        ("ab\n".encode("utf-16-le"), "line 1: byte 2 is NUL .*binary file"),
        (b"ab\nd\xc3\xa9f\xe9g\n", r"line 2: byte 5 \(0xe9\) is not valid UTF-8"),
        (b"\xef\xbb\xbfa\xff\n", r"line 1: byte 5 \(0xff\) is not valid UTF-8"),
        (b"ok\nh\xed\xa0\x80\n", r"line 2: byte 2 \(0xed\) is not valid UTF-8"),
    ],
)
def test_read_lines_rejects_other_encodings_with_file_line_and_byte(tmp_path, content, message):
    with pytest.raises(DataError, match=rf"t\.txt.* {message}"):
        list(read_lines(written(tmp_path / "t.txt", content)))


def test_lines_before_a_bad_one_are_still_streamed(tmp_path):
    lines = read_lines(written(tmp_path / "t.txt", b"good\n\xff\n"))
    assert next(lines) == "good"
    with pytest.raises(DataError):
        next(lines)


def test_missing_file_and_directory_are_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.txt: there is no such file"):
        list(read_lines(str(tmp_path / "gone.txt")))
    (tmp_path / "folder.gz").mkdir()
    with pytest.raises(DataError, match=r"folder\.gz is a directory"):
        list(read_lines(str(tmp_path / "folder.gz")))


def test_unreadable_file_is_named(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", args[0])

    path = written(tmp_path / "t.txt", b"a\n")
    monkeypatch.setattr("builtins.open", refuse)  # permission bits do not stop root, who may run the tests
    with pytest.raises(DataError, match=r"cannot read .*t\.txt: Permission denied"):
        list(read_lines(path))


@pytest.mark.parametrize("extension", COMPRESS)
def test_open_output_and_read_lines_round_trip_and_leave_no_other_file(tmp_path, extension):
    path = tmp_path / f"out.txt{extension}"
    with open_output(str(path)) as file:
        file.write(TEXT)
        assert not path.exists()
    assert list(read_lines(str(path))) == TEXT.splitlines()
    assert os.listdir(tmp_path) == [path.name]
    assert (path.stat().st_size < len(TEXT)) == bool(extension)


@pytest.mark.parametrize("extension", COMPRESS)
def test_failure_while_writing_leaves_the_old_file(tmp_path, extension):
    path = tmp_path / f"out{extension}"
    path.write_bytes(b"old")

    def failing_lines():
        yield TEXT
        raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"), open_output(str(path)) as file:
        file.writelines(failing_lines())
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_written_lines_end_with_a_line_feed_only(tmp_path):
    with open_output(str(tmp_path / "t")) as file:
        file.write("a\nb\r\n")
    assert (tmp_path / "t").read_bytes() == b"a\nb\r\n"


def test_link_stays_a_link_when_its_file_is_written(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with open_output(str(tmp_path / "link")) as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("path", [None, "-"])
def test_standard_output_gets_utf8_and_stays_open(capfdbinary, monkeypatch, path):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    with open_output(path) as file:
        file.write("ä\n")
    out.write("more\n")
    out.flush()
    assert out.buffer.getvalue() == "ä\nmore\n".encode()


@pytest.mark.skipif(not os.path.exists("/dev/fd/0"), reason="needs /dev/fd")
def test_a_pipe_of_the_shell_is_written_directly():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        with open_output(f"/dev/fd/{writing}") as file:
            file.write("ä\n")
        os.close(writing)
        assert pipe.read() == "ä\n".encode()


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="needs /dev/stdout")
def test_a_file_that_standard_output_continues_keeps_what_it_has(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    program = """
from clearhead.files import open_output
with open_output("/dev/stdout") as file:
    file.write("more\\n")
"""
    with log.open("a") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    assert log.read_text() == "before\nmore\n"


def test_missing_directories_of_an_output_are_made(tmp_path):
    with open_output(str(tmp_path / "a" / "b" / "c.txt")) as file:
        assert not (tmp_path / "a" / "b" / "c.txt").exists()
        file.write("x")
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "x"


def test_unwritable_places_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path, message in [
        ("", "a file needs a name"),
        (tmp_path, "it is a directory"),
        (tmp_path / "file" / "t.txt", "file is not a directory that may be changed"),
        (tmp_path / "file" / "no" / "t.txt", "file is not a directory that may be changed"),
    ]:
        with pytest.raises(DataError, match=message), open_output(str(path)):
            pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("size", [1, 1_000_003])
def test_full_disk_is_a_clear_error(tmp_path, size):
    with pytest.raises(DataError, match=r"cannot write /dev/full: No space left"), open_output("/dev/full") as file:
        file.write("x" * size)
    assert os.path.exists("/dev/full")


def test_disk_that_fills_up_leaves_nothing(tmp_path, monkeypatch):
    def fill_up(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(DataError, match=r"cannot write .*t\.gz: No space left"), open_output(str(tmp_path / "t.gz")):
        pass
    assert os.listdir(tmp_path) == []


def test_errors_of_the_block_itself_are_not_taken_for_ours(tmp_path):
    with pytest.raises(FileNotFoundError), open_output(str(tmp_path / "t")):
        open(tmp_path / "another file")  # noqa: SIM115


def test_half_a_character_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match=r"U\+D83D is half of a surrogate pair"), open_output(str(tmp_path / "t")) as f:
        f.write("ok \ud83d\n")
    assert os.listdir(tmp_path) == []


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0")), max_size=7))
def test_open_output_and_read_lines_round_trip_any_lines(tmp_path_factory, lines):
    lines = [line.rstrip("\r") for line in lines]
    lines[:1] = [line.lstrip("\ufeff") for line in lines[:1]]
    path = tmp_path_factory.getbasetemp() / "t.txt"
    with open_output(str(path)) as file:
        file.writelines(f"{line}\n" for line in lines)
    assert list(read_lines(str(path))) == lines
