"""Files of pairs: choice of the reader, its report for each file, and rows that are not pairs."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_files import peak_of_reading, texts, written

from clearhead.errors import ConfigError, DataError
from clearhead.formats import (
    READERS,
    WRITERS,
    SentencePair,
    Wanted,
    described,
    expand_paths,
    holds_pairs,
    read_pairs,
    write_pairs,
)
from every_run import slow

CSV = 'id,english,german\n1,"Hi, you","Hallo, du"\n2,no,nein\n'


def test_pair_format_goes_by_the_extension_under_any_compression(tmp_path, monkeypatch):
    (tmp_path / "a.b.TSV").write_bytes(b"1\t2\n")
    (tmp_path / "c.tsv.gz").write_bytes(gzip.compress(b"3\t4\n"))
    (tmp_path / "d.csv.xz").write_bytes(lzma.compress(b'"5",6\n'))
    (tmp_path / "e.txt").write_bytes(b"7\t8\tCC-BY\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"9\t10\n")))
    names = [str(tmp_path / name) for name in ("a.b.TSV", "c.tsv.gz", "d.csv.xz", "e.txt")]
    assert texts(read_pairs([*names, "-"])) == [("1", "2"), ("3", "4"), ("5", "6"), ("7", "8"), ("9", "10")]


def test_every_unknown_format_is_named_before_anything_is_read():
    with pytest.raises(
        DataError,
        match=r"of a\.docx, b, c\.gz; .* \.csv, .* \.tmx, \.tsv, \.txt, .*, those of text also with \.gz, \.xz, \.zst",
    ):
        read_pairs(["a.docx", "fine.tsv", "b", "c.gz"])


def test_described_merges_files_of_the_same_format_into_one_line(tmp_path):
    same = [written(tmp_path / f"{n}.tsv", "a\tb\tc\n") for n in range(5)]
    told: list[str] = []
    read_pairs([*same, written(tmp_path / "d.csv", CSV)], on_open=lambda files: told.extend(described(files)))
    assert told == [
        f"{same[0]}, {same[1]}, {same[2]} and 2 more: tab-separated, 3 columns; from column 1 to column 2",
        f"{tmp_path / 'd.csv'}: comma-separated, 3 columns with a header; from column 2 (english) to column 3 (german)",
        f"{same[0]}, {same[1]}, {same[2]} and 2 more: no header, unlike {tmp_path / 'd.csv'}, so the source is "
        f"column 1; if that is wrong, add a first line that names the columns in their order, such as 'en\\tde'",
    ]


def test_described_reports_files_of_different_languages(tmp_path):
    told: list[str] = []
    first = written(tmp_path / "a.csv", "en,de-AT\nyes,ja\n")
    second = written(tmp_path / "b.tsv", "eng\tdeu\nno\tnein\n")  # the same two languages
    third = written(tmp_path / "c.jsonl", '{"en": "yes", "fr": "oui"}\n')
    read_pairs([first, second], on_open=lambda files: told.extend(described(files)))
    assert len(told) == 2
    told.clear()
    read_pairs([first, second, third], on_open=lambda files: told.extend(described(files)))
    assert told[3:] == [
        f"the files have different target languages: de ({first}, {second}); fr ({third}); name the files of one, or "
        f"the language with --to-lang"
    ]


def test_swap_reads_and_describes_the_other_direction(tmp_path):
    told: list[str] = []
    path = written(tmp_path / "d.csv", CSV)
    assert texts(read_pairs([path], swap=True, on_open=lambda files: told.extend(described(files)))) == [
        ("Hallo, du", "Hi, you"),
        ("nein", "no"),
    ]
    assert told[0].endswith("from column 3 (german) to column 2 (english)")
    assert texts(read_pairs([path], Wanted(("german", 1)), swap=True)) == [("1", "Hallo, du"), ("2", "nein")]


def test_columns_are_required_in_every_file_when_opened(tmp_path):
    first = written(tmp_path / "a.csv", CSV)
    second = written(tmp_path / "b.tsv", "german\tenglish\nja\tyes\n")
    third = written(tmp_path / "c.tsv", "x\ty\n")
    assert texts(read_pairs([first, second], Wanted(("german", "english"))))[-1] == ("ja", "yes")
    with pytest.raises(
        ConfigError, match=r"c\.tsv has no header with 'german' and 'english': its first row is 'x', 'y'"
    ) as told:
        read_pairs([first, second, third], Wanted(("german", "english")))
    assert "add the line 'german\\tenglish' before it" in str(told.value)
    with pytest.raises(ConfigError, match=r"column 3 is asked for, but .*b\.tsv has 2 columns: 'german', 'english'"):
        read_pairs([first, second], Wanted((1, 3)))


def test_columns_by_name_do_not_bind_files_whose_header_has_others(tmp_path):
    first = written(tmp_path / "a.csv", CSV)
    other = written(tmp_path / "b.tsv", "source\ttarget\nja\tyes\n")
    lines = written(tmp_path / "c.jsonl", '{"source": "Hund", "target": "dog"}\n')
    wanted = Wanted(("german", "english"))
    for files in ([first, other, lines], [lines, other, first]):
        rows = texts(read_pairs(files, wanted))
        assert ("ja", "yes") in rows
        assert ("Hund", "dog") in rows
        assert ("nein", "no") in rows
    # None of them has the columns: they are misspelled.
    with pytest.raises(ConfigError, match=r"b\.tsv has no column 'german'; it has 'source', 'target'"):
        read_pairs([other, lines], wanted)
    assert texts(read_pairs([other], wanted, columns_may_be_missing=True)) == [("ja", "yes")]
    # A misspelled name beside a right one.
    with pytest.raises(ConfigError, match=r"d\.tsv has no column 'engl'; it has 'x', 'german'"):
        read_pairs([first, written(tmp_path / "d.tsv", "x\tgerman\n")], Wanted(("german", "engl")))


def test_a_header_to_add_has_a_name_for_every_column(tmp_path):
    path = written(tmp_path / "c.csv", "1,Hund,dog\n2,Kuh,cow\n")
    with pytest.raises(ConfigError, match="add the line 'german,english,column3' before it"):
        read_pairs([path], Wanted(("german", "english")))


def test_a_file_named_twice_is_read_twice(tmp_path):
    path = written(tmp_path / "a.tsv", "a\tb\n")
    assert texts(read_pairs([path, path])) == [("a", "b")] * 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipe_is_read_once_and_described_when_read(tmp_path):
    os.mkfifo(tmp_path / "p.csv")
    told: list[str] = []
    pairs = read_pairs([str(tmp_path / "p.csv")], on_open=lambda files: told.extend(described(files)))
    assert told == []
    rows = "".join(f'{n},"text, {n}",Text {n}\n' for n in range(997))
    writer = threading.Thread(target=(tmp_path / "p.csv").write_text, args=(f"id,en,de\n{rows}",))
    writer.start()
    assert texts(pairs) == [(f"text, {n}", f"Text {n}") for n in range(997)]
    writer.join()
    assert [line.partition(": ")[2] for line in told] == [
        "comma-separated, 3 columns with a header; from column 2 (en) to column 3 (de)"
    ]


def test_row_without_a_tab_is_an_error_unless_tolerated(tmp_path):
    rows = [f"{n}\tx\n" for n in range(100)]
    rows[16] = "no tab here\n"
    path = written(tmp_path / "p.tsv", "".join(rows))
    with pytest.raises(DataError, match=r"p\.tsv, line 17: there is no tab \(the row begins 'no tab here'\)"):
        list(read_pairs([path]))
    found = list(read_pairs([path], tolerated=0.01))
    assert len(found) == 100
    assert [(pair.origin, pair.source, pair.target) for pair in found if pair.defect] == [(f"{path}:17", "", "")]


def test_more_than_tolerated_is_an_error_that_shows_the_first_and_counts_all(tmp_path):
    rows = [f"{n}\tx\n" for n in range(400)]
    rows[3] = rows[50] = rows[99] = rows[300] = rows[398] = "broken\n"
    path = written(tmp_path / "p.tsv", "".join(rows))
    with pytest.raises(DataError) as caught:
        list(read_pairs([path], tolerated=0.01))
    message = str(caught.value)
    assert "p.tsv was taken for: tab-separated, 2 columns; but 5 of 400 rows are no pairs, and at most 1 %" in message
    assert [line for line in (4, 51, 100, 301) if f"line {line}: there is no tab" in message] == [4, 51, 100]
    rows[398] = "mended\tx\n"
    written(tmp_path / "p.tsv", "".join(rows))
    assert len(list(read_pairs([path], tolerated=0.01))) == 400


def test_each_file_has_its_own_share(tmp_path):
    good = written(tmp_path / "a.tsv", "a\tb\n" * 1_000)
    bad = written(tmp_path / "b.tsv", "a\tb\n" * 10 + "broken\n")
    with pytest.raises(DataError, match=r"b\.tsv was taken for: .* 1 of 11 rows"):
        list(read_pairs([good, bad], tolerated=0.01))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "t.txt",
            "\njust text\nmore\n",
            r"t\.txt, line 2: there is no tab \(the line begins 'just text'\), and none of the first 3 lines has two",
        ),
        ("t.csv", "just text\nmore\n", r"t\.csv, line 1: there is no comma "),
    ],
)
def test_a_file_without_columns_is_refused_at_once(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read_pairs([written(tmp_path / name, text)], tolerated=0.5)


def test_blank_lines_are_empty_pairs_and_an_empty_file_has_none(tmp_path):
    assert texts(read_pairs([written(tmp_path / "a.tsv", "\n \n\t\n")])) == [("", ""), ("", ""), ("", "")]
    assert texts(read_pairs([written(tmp_path / "a.csv", "\n,\n")])) == [("", ""), ("", "")]
    told: list[str] = []
    empty = [written(tmp_path / name, "") for name in ("b.csv", "b.jsonl")]
    assert texts(read_pairs(empty, swap=True, on_open=lambda files: told.extend(described(files)))) == []
    assert told == [f"{empty[0]}, {empty[1]}: empty"]


def test_holds_pairs_distinguishes_tables_from_text(tmp_path):
    names = {"a.tsv": "", "b.csv": "x", "c.csv.gz": "", "d.txt": "a\tb\n", "e.txt": "a\nb\tc\n", "f.de": "a\tb\n"}
    names["g.txt"] = "#separator:comma\na,b\n"
    for name, text in names.items():
        written(tmp_path / name, text)
    found = {name for name in names if holds_pairs(str(tmp_path / name))}
    assert found == {"a.tsv", "b.csv", "c.csv.gz", "d.txt", "g.txt"}
    assert not holds_pairs("-")


strange = st.lists(
    st.sampled_from(
        ["a", "b c", '"', '""', ",", ";", "\t", "\n", "\n", "\r", "#separator:", "sep=", "#html:true\n", "en", "<b>"]
    )
)


@given(strange.map("".join), st.sampled_from([".csv", ".tsv", ".txt"]))
def test_every_line_of_a_table_is_in_one_row_or_the_file_is_rejected(tmp_path_factory, text, extension):
    path = written(tmp_path_factory.getbasetemp() / f"p{extension}", text)
    try:
        pairs = list(read_pairs([path], tolerated=1.0))
    except (ConfigError, DataError):
        return
    lines = [pair.line for pair in pairs]
    assert lines == sorted(set(lines))
    if extension != ".csv" and not text.startswith("#"):
        assert len(lines) == len(text.removesuffix("\n").split("\n")) if text else not lines


def test_memory_does_not_grow_with_the_file(tmp_path):
    row = f'"{"x" * 200}\n{"y" * 200}","z, z"\n'
    few, many = (peak_of_reading(written(tmp_path / "long.csv", row * rows), rows) for rows in (2_000, 10_000))
    assert many < 1.5 * few


@pytest.mark.parametrize("name", [*WRITERS, ".TSV.gz", ".po.xz", ".jsonl.zst", ".csv.gz"])
def test_the_extension_chooses_the_writer_and_its_reader_brings_the_pairs_back(tmp_path, name):
    path = str(tmp_path / f"p{name}")
    pairs = [SentencePair("Hi, you", "Hallo\u2028du", "x:1"), SentencePair('"no"', "nein;", "x:2")]
    assert write_pairs(path, iter(pairs), ("en", "de")) == 2
    assert texts(read_pairs([path])) == texts(pairs)


def test_writers_have_readers_and_write_pairs_rejects_unknown_formats_first(tmp_path):
    assert WRITERS.keys() <= READERS.keys()
    for name in ("p.docx", "p.txt", "p", "p.gz", "p.mo"):
        with pytest.raises(
            DataError, match=rf"cannot tell in which format to write .*{name}; .* \.csv, .*\.tsv, .*, text"
        ):
            write_pairs(str(tmp_path / name), iter(lambda: pytest.fail("was read"), None), ("en", "de"))


@pytest.mark.parametrize(
    ("extension", "end"),
    [
        (".po", '\nmsgid "a"\nmsgstr "ä"\n'),
        (".tsv", "a\tä\n"),
        (".tmx", "<seg>ä</seg></tuv>\n</tu>\n</body>\n</tmx>\n"),
        (".xlf", "<target>ä</target>\n</trans-unit>\n</body>\n</file>\n</xliff>\n"),
    ],
)
def test_writers_without_a_path_write_to_standard_output(monkeypatch, extension, end):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert WRITERS[extension](None, [SentencePair("a", "ä", "x:1")], ("en", "de")) == 1
    assert sys.stdout.buffer.getvalue().decode().endswith(end)


def test_tsv_is_written_to_standard_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert write_pairs("-", [SentencePair("a", "b", "x:1")], ("en", "de")) == 1
    assert write_pairs(None, [SentencePair("c", "d", "x:2")], ("en", "de")) == 1
    assert sys.stdout.buffer.getvalue() == b"a\tb\nc\td\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a directory with files of pairs and others, by which it is named while it is the current one."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "all/b.tsv": "a\tb\n",
        "all/a.CSV.gz": "",
        "all/sub/deep/c.po": "",
        "all/sub/pairs.txt": "a\tb\n",
        "all/sub/notes.txt": "no pairs\n",
        "all/README.md": "",
        "all/model.bin": "",
        "all/.hidden.tsv": "",
        "all/.git/d.tsv": "",
        "all/sub/.e.po.0123456789abcdef.partial": "",
        "more/x.tsv": "",
        "more/y[1].tsv": "",
        "none/notes.txt": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "all/sub/latin.txt").write_bytes(b"\xe4\tb\n")
    return tmp_path


IN_ALL = ["all/a.CSV.gz", "all/b.tsv", "all/sub/deep/c.po", "all/sub/pairs.txt"]


def test_expand_paths_lists_the_files_of_pairs_in_a_directory(folder):
    told: list[str] = []
    assert expand_paths(["more/x.tsv", "all"], notice=told.append) == ["more/x.tsv", *IN_ALL]
    assert told == ["all: files of pairs: 4; other files in it, which are left out: 6"]
    assert expand_paths(["more/"], notice=told.append) == ["more/x.tsv", "more/y[1].tsv"]
    assert told[1:] == ["more/: files of pairs: 2"]


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*/*.tsv", ["all/b.tsv", "more/x.tsv", "more/y[1].tsv"]),
        ("all/**/*.po", ["all/sub/deep/c.po"]),
        ("more/[xz].tsv", ["more/x.tsv"]),
        ("more/y[1].tsv", ["more/y[1].tsv"]),  # there is such a file
        ("all/README.*", ["all/README.md"]),  # asked for by its name
        ("al?", IN_ALL),
        ("all/sub/**", ["all/sub/deep/c.po", "all/sub/latin.txt", "all/sub/notes.txt", "all/sub/pairs.txt"]),
        ("[mn]o*", ["more/x.tsv", "more/y[1].tsv"]),  # and a directory without any
        ("no/such.tsv", ["no/such.tsv"]),
        ("-", ["-"]),
    ],
)
def test_expand_paths_lists_the_files_matching_a_pattern(folder, pattern, files):
    assert expand_paths([pattern]) == files


def test_expand_paths_rejects_empty_directories_and_unmatched_patterns(folder):
    with pytest.raises(DataError, match=r"none is a directory without a file of pairs \(\.arrow, .*\.xliff, \.xlsx\)"):
        expand_paths(["none"])
    with pytest.raises(DataError, match=r"all/\*\.xlsx: no file matches this pattern"):
        expand_paths(["all/*.xlsx"])


def test_the_real_folder_of_catalogues_is_a_directory_of_pairs(data_dir):
    folder = data_dir("formats") / "python-docs-tutorial.fr"
    files = expand_paths([str(folder)])
    assert files == sorted(map(str, folder.glob("*.po")))
    assert len(files) == 17
    kept = [pair for pair in read_pairs(files, Wanted(None, "en", "fr")) if pair.skipped is None]
    assert len(kept) == 846  # as `msgfmt --statistics` counts translated messages


@pytest.mark.parametrize("number", [100, slow(1_000)])
def test_every_real_file_round_trips_through_every_format(data_dir, tmp_path, number):
    files = [path for path in sorted(data_dir("formats").iterdir()) if path.suffix in READERS]
    assert len(files) == 8
    for path in files:
        pairs = [pair for pair in read_pairs([str(path)]) if pair.skipped is None]
        for extension in WRITERS:
            some = pairs if extension == ".tsv" else pairs[:number]
            out = str(tmp_path / f"p{extension}")
            assert write_pairs(out, some, ("en", "de")) == len(some)
            assert texts(read_pairs([out])) == texts(some)
