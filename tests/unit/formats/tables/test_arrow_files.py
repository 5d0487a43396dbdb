"""Parquet and Arrow: columns by name and type, a batch at a time; what is damaged is refused."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tracemalloc
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from clearhead.errors import ConfigError, DataError
from clearhead.formats import SentencePair, Wanted, described, read_pairs
from clearhead.formats.tables.arrow_files import write_columns


def written(path: Path, table: pa.Table, *, is_stream: bool = False) -> str:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return str(path)


def texts(path: str, wanted: Wanted = Wanted()) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs([path], wanted)]


PLAIN = pa.table({"id": [7, 8, 9], "en": ["yes", None, "no\r\nway"], "de": ["ja", "doch", "nein"]})
NESTED = pa.table(
    {
        "id": ["0", "1", "2"],
        "translation": [{"de": "ja", "en": "yes"}, None, {"de": "nein", "en": None}],
        "n": [1, 2, 3],
    }
)
FORMATS = [("p.parquet", False), ("p.arrow", False), ("p.arrow", True), ("p.feather", False)]


@pytest.mark.parametrize(("name", "is_stream"), FORMATS)
def test_columns_named_by_languages_are_read_with_their_rows(tmp_path, name, is_stream):
    path = written(tmp_path / name, PLAIN, is_stream=is_stream)
    assert list(read_pairs([path])) == [
        SentencePair("yes", "ja", f"{path}:1"),
        SentencePair("", "doch", f"{path}:2"),
        SentencePair("no way", "nein", f"{path}:3"),
    ]
    assert texts(path, Wanted(None, "de", "en"))[0] == ("ja", "yes")
    assert texts(path, Wanted((3, "en")))[0] == ("ja", "yes")


@pytest.mark.parametrize(("name", "is_stream"), FORMATS)
def test_fields_of_a_translation_are_read(tmp_path, name, is_stream):
    path = written(tmp_path / name, NESTED, is_stream=is_stream)
    assert texts(path) == [("ja", "yes"), ("", ""), ("nein", "")]
    assert texts(path, Wanted(("en", "de")))[2] == ("", "nein")


@pytest.mark.parametrize("name", ["p.parquet", "p.arrow"])
def test_every_kind_of_text_is_read(tmp_path, name):
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
    for kind in kinds if name == "p.parquet" else [*kinds, pa.string_view()]:
        path = written(tmp_path / name, pa.table({"a": pa.array(["x", "y", "x"], kind), "b": ["1", "2", "3"]}))
        assert texts(path) == [("x", "1"), ("y", "2"), ("x", "3")]


@pytest.mark.parametrize("name", ["p.parquet", "p.arrow"])
@pytest.mark.parametrize(
    ("table", "wanted", "message"),
    [
        (PLAIN, Wanted(("id", "de")), r"must hold text .* it has 'id' \(int64\), 'en' \(string\), 'de' \(string\)"),
        (PLAIN, Wanted(("en", "fr")), "has no column 'fr'; it has 'id', 'en', 'de'"),
        (PLAIN, Wanted(None, "en", "fr"), "no column of the language 'fr'; it has 'en', 'de'"),
        (pa.table({"a": ["x"], "b": ["y"], "c": ["z"]}), Wanted(), "has 3 columns: 'a', 'b', 'c'; say which two"),
        (pa.table({"en": ["x"], "de": [1.5]}), Wanted(), r"no two columns of text: 'en' \(string\), 'de' \(double\)"),
        (pa.table({"en": ["x"], "de": [b"y"]}), Wanted(), r"no two columns of text: .*'de' \(binary\)"),
        (pa.table({"translation": [{"de": "a", "en": 1}]}), Wanted(), r"no two .* 'de' \(string\), 'en' \(int64\)"),
    ],
)
def test_other_columns_are_refused_with_names_and_types(tmp_path, name, table, wanted, message):
    with pytest.raises(ConfigError, match=message):
        read_pairs([written(tmp_path / name, table)], wanted)


@pytest.mark.parametrize("name", ["p.parquet", "p.arrow"])
def test_column_names_with_dots_or_common_prefixes_are_distinguished(tmp_path, name):
    table = pa.table({"en": ["1"], "en.x": ["2"], "de.x": ["3"], "de": ["4"], "n": [{"en": "5"}]})
    path = written(tmp_path / name, table)
    assert texts(path, Wanted(("en", "de"))) == [("1", "4")]
    assert texts(path, Wanted(("de.x", "en.x"))) == [("3", "2")]


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["en", "de", "en"])
    with pytest.raises(ConfigError, match="names of their own"):
        read_pairs([written(tmp_path / "p.arrow", table)], Wanted((1, 2)))


def test_a_file_without_rows_has_no_pairs(tmp_path):
    assert texts(written(tmp_path / "p.parquet", PLAIN.slice(0, 0))) == []
    assert texts(written(tmp_path / "p.arrow", PLAIN.slice(0, 0), is_stream=True)) == []


def test_described_names_parquet_and_columns(tmp_path):
    path = written(tmp_path / "p.parquet", PLAIN)
    told: list[str] = []
    read_pairs([path], on_open=lambda files: told.extend(described(files)))
    assert told == [f"{path}: Parquet; from 'en' to 'de'"]


@pytest.mark.parametrize("name", ["p.parquet", "p.arrow"])
def test_damaged_missing_and_wrapped_files_are_refused(tmp_path, name):
    path = Path(written(tmp_path / name, PLAIN))
    whole = path.read_bytes()
    for data in (b"", b"en\tde\n", whole[:-9], whole[: len(whole) // 2], b"PAR1" * 9, b"ARROW1\0\0" * 9):
        path.write_bytes(data)
        with pytest.raises(DataError, match=rf"cannot read .*{name}, it is damaged or of another format: "):
            read_pairs([str(path)])
    path.unlink()
    with pytest.raises(DataError, match="there is no such file"):
        list(read_pairs([str(path)]))
    path.with_name(f"{name}.gz").write_bytes(whole)
    with pytest.raises(DataError, match=r"columns of Arrow are compressed within; decompress it, or leave \.gz out"):
        read_pairs([f"{path}.gz"])


def test_offsets_beyond_the_text_and_text_that_is_not_utf8_are_found(tmp_path):
    path = Path(written(tmp_path / "p.arrow", pa.table({"en": ["abcde"], "de": ["x"]})))
    whole = path.read_bytes()
    place = whole.index(b"abcde")
    assert whole[place - 8 : place] == b"\0\0\0\0\5\0\0\0"  # from 0 to 5
    for bad in (whole[: place - 2] + b"\xff\x0f" + whole[place:], whole[:place] + b"\xff" + whole[place + 1 :]):
        path.write_bytes(bad)
        with pytest.raises(DataError, match="damaged"):
            list(read_pairs([str(path)]))


MIB = "x" * 2**20
BOMBS = {
    "plain.parquet": lambda path, table: pq.write_table(table, path, compression="zstd", use_dictionary=False),
    "dictionary.parquet": lambda path, table: pq.write_table(table, path, compression="zstd"),
    "compressed.arrow": lambda path, table: feather.write_feather(table, path, compression="zstd"),
}


READ = """
import sys
from resource import RLIMIT_DATA, getrlimit
import pyarrow as pa
from clearhead.errors import DataError
from clearhead.formats import read_pairs
from clearhead.formats.tables import arrow_files

pa.set_memory_pool(pa.system_memory_pool())  # others keep what is freed, and it counts no more
arrow_files.SPARE_MEMORY = 2**27
usual = getrlimit(RLIMIT_DATA)
for path in sys.argv[1:]:
    try:
        list(read_pairs([path]))
    except DataError as error:
        print(error)
    assert getrlimit(RLIMIT_DATA) == usual
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux alone")
def test_rows_that_unpack_to_far_more_than_the_file_are_refused(tmp_path):
    for name, write in BOMBS.items():
        write(tmp_path / name, pa.table({"en": [MIB] * 150, "de": ["y"] * 150}))
        assert (tmp_path / name).stat().st_size < 2**16
    ran = subprocess.run([sys.executable, "-c", READ, *BOMBS], cwd=tmp_path, capture_output=True, text=True, check=True)
    refused = "a batch of rows takes more than 128 MiB of memory beside four times the size of the file"
    assert [line.partition(", or")[0] for line in ran.stdout.splitlines()] == [f"{name}: {refused}" for name in BOMBS]


def test_a_text_that_many_rows_have_is_unpacked_once(tmp_path):
    numbers = pa.array([0, None] * 50_000, pa.int32())
    table = pa.table({"en": pa.DictionaryArray.from_arrays(numbers, [MIB]), "de": ["y"] * 100_000})
    path = str(tmp_path / "p.arrow")
    feather.write_feather(table, path, compression="zstd")
    pairs = read_pairs([path])
    assert [(len(pair.source), pair.target) for pair in islice(pairs, 3)] == [(2**20, "y"), (0, "y"), (2**20, "y")]


def test_batches_without_rows_end_nothing(tmp_path):
    path, schema = tmp_path / "p.arrow", PLAIN.schema
    with pa.ipc.new_file(str(path), schema) as file:
        for table in (schema.empty_table(), PLAIN, schema.empty_table(), PLAIN):
            for batch in table.to_batches() or [pa.record_batch([pa.array([], one.type) for one in schema], schema)]:
                file.write_batch(batch)
    assert len(texts(str(path))) == 6


def test_version_1_of_feather_is_refused_by_its_name(tmp_path):
    (tmp_path / "p.feather").write_bytes(b"FEA1" + bytes(40))
    with pytest.raises(DataError, match="Feather version 1"):
        read_pairs([str(tmp_path / "p.feather")])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "p.parquet")
    with pytest.raises(DataError, match="it must be a regular file"):
        list(read_pairs([str(tmp_path / "p.parquet")]))


sides = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=9)


@given(st.lists(st.tuples(sides, sides), max_size=5), st.sampled_from(["parquet", "arrow", "feather"]))
def test_arrow_and_parquet_pairs_round_trip(tmp_path_factory, rows, extension):
    path = str(tmp_path_factory.getbasetemp() / f"p.{extension}")
    pairs = [SentencePair(*both, f"{path}:{row}") for row, both in enumerate(rows, start=1)]
    assert write_columns(path, iter(pairs), ("en", "de")) == len(pairs)
    assert list(read_pairs([path], Wanted(None, "en", "de"))) == pairs


def test_columns_have_the_names_of_the_languages_and_batches_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("clearhead.formats.tables.arrow_files.WRITTEN_ROWS", 3)
    monkeypatch.setattr("clearhead.formats.tables.arrow_files.WRITTEN_CHARACTERS", 20)
    path = str(tmp_path / "p.parquet")
    pairs = (
        [SentencePair("a", "b", "x:1")] * 4 + [SentencePair("long" * 5, "b", "x:1")] + [SentencePair("a", "b", "x:1")]
    )
    assert write_columns(path, pairs, ("en", "de")) == 6
    file = pq.ParquetFile(path)
    assert file.schema_arrow.names == ["en", "de"]
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [3, 2, 1]
    write_columns(path, pairs, ("en", "en"))
    assert pq.ParquetFile(path).schema_arrow.names == ["source", "target"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("a\nb", r"f\.tsv:7: the target holds a line feed"), ("\ud800", r"f\.tsv:7: U\+D800 is half of a surrogate pair")],
)
@pytest.mark.parametrize("extension", ["arrow", "parquet"])
def test_write_columns_rejects_line_feeds_and_surrogates_and_writes_nothing(tmp_path, text, message, extension):
    with pytest.raises(DataError, match=message):
        write_columns(str(tmp_path / f"p.{extension}"), [SentencePair("a", text, "f.tsv:7")], ("en", "de"))
    assert list(tmp_path.iterdir()) == []


def test_write_columns_rejects_stdout_gzip_and_directories(tmp_path):
    for path, message in (
        (None, "cannot be written to standard output"),
        ("-", "cannot be written to standard output"),
        (str(tmp_path / "p.parquet.gz"), "compressed within"),
        (str(tmp_path), "it is a directory"),
    ):
        with pytest.raises(DataError, match=message):
            write_columns(path, [], ("en", "de"))


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Arrow's own memory, for texts that compression hardly shortens; most rows are in one row group."""
    peaks, drawn = [], random.Random(5)
    for rows in (10_000, 60_000):
        path = str(tmp_path / "long.parquet")
        pairs = (SentencePair(*(drawn.randbytes(90).hex() for _ in "ab"), "x:1") for _ in range(rows))
        assert write_columns(path, pairs, ("en", "de")) == rows
        before, peak = pa.total_allocated_bytes(), 0
        for count, _ in enumerate(read_pairs([path]), start=1):
            if count % 500 == 0:
                peak = max(peak, pa.total_allocated_bytes() - before)
        assert count == rows
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0]


def test_texts_of_a_batch_become_python_strings_one_at_a_time(tmp_path):
    path = str(tmp_path / "long.parquet")
    pq.write_table(pa.table({"en": [MIB] * 100, "de": ["y"] * 100}), path, compression="zstd")
    tracemalloc.start()
    try:
        assert sum(len(pair.source) for pair in read_pairs([path])) == 100 * 2**20
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
