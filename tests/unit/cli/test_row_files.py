"""Rows with named columns (`.jsonl`, Parquet, Arrow) in `translate`, `score`, `distill` and `backtranslate`."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clearhead.cli.corpus import convert
from clearhead.cli.score import score
from clearhead.cli.synthesize import backtranslate, distill
from clearhead.cli.translate import translate
from clearhead.errors import ConfigError, DataError
from clearhead.formats import row_files
from clearhead.formats.tables import arrow_files
from clearhead.runtime.installation import pip_install

TEXTS = ["Ein Hund.", None, "Zwei\nHunde.", "", "Drei Katzen, 4 Hunde.", "Ein Hund.", "Das ist gut."]
LINES = ["" if text is None else text.replace("\n", " ") for text in TEXTS]


def table_of(texts=TEXTS, **columns):
    """Return a table with a text column `de` between others, and metadata."""
    numbers = pa.array(range(len(texts)), pa.uint16())
    lists = pa.array([[1.5] * (number % 3) for number in range(len(texts))])
    kinds = pa.array(["a", "b", None, "a", "a", "b", "b"][: len(texts)]).dictionary_encode()
    found = {"id": numbers, "de": pa.array(texts, pa.string()), "lists": lists, "kind": kinds, **columns}
    return pa.table(found).replace_schema_metadata({"made by": "a test"})


def write(path, table, rows=3):
    """Write a table in groups of few rows, in the format of the file's name."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows)
        return path
    is_stream = path.suffix == ".arrow"
    with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(str(path), table.schema) as file:
        file.write_table(table, rows)
    return path


def read(path):
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.OSFile(str(path)) as file:
        opened = (pa.ipc.open_stream if path.suffix == ".arrow" else pa.ipc.open_file)(file)
        return opened.read_all()


@pytest.fixture
def translations(run_command, make_model_dir, write_lines):
    """Return a model, and its translations of `LINES` as lines of text."""
    model = make_model_dir()
    return model, run_command(translate, model, write_lines("in.txt", *LINES)).stdout.split("\n")[:-1]


@pytest.mark.parametrize("extension", [".parquet", ".feather", ".arrow"])
def test_translations_are_a_column_beside_unchanged_ones(run_command, translations, tmp_path, monkeypatch, extension):
    (model, expected), table = translations, table_of()
    monkeypatch.setattr(arrow_files, "READ_ROWS", 2)
    monkeypatch.setattr(arrow_files, "WRITTEN_ROWS", 4)
    given, made = write(tmp_path / f"in{extension}", table), tmp_path / f"out{extension}"
    run_command(translate, model, given, "--columns", "de,en", "-o", made)
    found = read(made)
    assert found.column("en").to_pylist() == expected
    assert expected[1] == expected[3] == "" != expected[0]
    assert found.drop_columns("en").equals(table)
    assert found.schema.remove(4).equals(read(given).schema, check_metadata=True)


def test_a_key_is_added_to_json_lines_and_all_else_is_as_written(run_command, translations, write_lines, tmp_path):
    model, expected = translations
    rows = [f'{{"n": 1.50, "de":{json.dumps(text)} , "big": {10**25}}}' for text in TEXTS]
    rows += ["", '{"de": "", "n": 2}  ']
    given, packed = write_lines("rows.jsonl", *rows), tmp_path / "rows.ndjson.gz"
    packed.write_bytes(gzip.compress(given.read_bytes()))
    run_command(translate, model, packed, "-o", tmp_path / "out.jsonl.gz", "--columns", "de,en <3")
    made = gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).decode().split("\n")
    first = json.dumps(expected[0], ensure_ascii=False)
    assert made[0] == f'{{"n": 1.50, "de":"Ein Hund." , "big": {10**25}, "en <3": {first}}}'
    assert made[7:] == ["", '{"de": "", "n": 2, "en <3": ""}', ""]
    assert [json.loads(line)["en <3"] for line in made[:7]] == expected
    # Without --columns the only key of text is translated; the key that is added is `target`.
    printed = run_command(translate, model, given).stdout
    assert printed.split("\n") == [line.replace('"en <3"', '"target"') for line in made]


@pytest.mark.parametrize("extension", [".parquet", ".feather", ".jsonl"])
def test_scores_are_a_column_of_the_pairs(run_command, make_model_dir, write_lines, tmp_path, extension):
    model, targets = make_model_dir(), [f"A dog, {number}." for number in range(len(TEXTS))]
    files = "--source", write_lines("a", *LINES), "--target", write_lines("b", *targets)
    expected = [float(line) for line in run_command(score, model, *files).stdout.split()]
    table, given, made = table_of(en=pa.array(targets)), tmp_path / f"in{extension}", tmp_path / f"out{extension}"
    if extension == ".jsonl":
        given.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        write(given, table)
    run_command(score, model, "--pairs", given, "--columns", "de,en", "-o", made)
    if extension == ".jsonl":
        assert [json.loads(line) for line in made.read_text().splitlines()] == [
            {**row, "score": found} for row, found in zip(table.to_pylist(), expected, strict=True)
        ]
    else:
        assert read(made).equals(table.append_column("score", pa.array(expected)))
    # Of pairs in another format, rows are made.
    run_command(score, model, *files, "-o", made)
    pairs = tmp_path / "pairs.tsv"
    run_command(convert, made, pairs)
    assert pairs.read_text() == "".join(f"{pair[0]}\t{pair[1]}\n" for pair in zip(LINES, targets, strict=True))
    again = json.loads(made.read_text().split("\n")[0]) if extension == ".jsonl" else read(made).to_pylist()[0]
    assert again["score"] == expected[0]


@pytest.mark.parametrize("command", [distill, backtranslate])
@pytest.mark.parametrize("extension", [".parquet", ".arrow", ".jsonl", ".tsv", ".csv"])
def test_synthetic_pairs_are_those_of_the_same_lines_as_text(
    run_command, make_model_dir, write_lines, tmp_path, command, extension
):
    model = make_model_dir(seed=6, printable=True, decode={"beam_size": 2, "extra_length": 60})
    given, quote = tmp_path / f"in{extension}", '"' if extension == ".csv" else ""
    if extension in (".csv", ".tsv"):
        sign = "," if quote else "\t"
        rows = ["id", "de"], *([str(n), quote + (text or "") + quote] for n, text in enumerate(LINES))
        write_lines(given.name, *map(sign.join, rows))
    elif extension == ".jsonl":
        write_lines(given.name, *map(json.dumps, table_of().to_pylist()))
    else:
        write(given, table_of())
    text, made = tmp_path / "text.tsv", tmp_path / f"made{extension.replace('.csv', '.tsv')}"
    alone = run_command(command, model, write_lines("in.txt", *LINES), "-o", text)
    result = run_command(command, model, given, "--column", "de", "-o", made)
    assert result.stderr == alone.stderr
    run_command(convert, made, tmp_path / "again.tsv")
    assert (tmp_path / "again.tsv").read_text() == text.read_text()
    assert text.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.tsv"], "in.tsv has 2 columns of text; say which to translate with --column (it has numbers 1 to 2)"),
        (["in.tsv", "--column", "3"], "column 3 is asked for, but in.tsv has 2 columns"),
        (["in.tsv", "--column", "1,2"], "--column 1,2: name one column"),
        (["in.txt", "--column", "1"], "--column 1: in.txt has lines of text, and no columns"),
        (["short.tsv", "--column", "2"], "short.tsv, line 3: there is no tab (the row begins 'x')"),
    ],
)
def test_columns_of_distill_that_cannot_be_read_are_named(
    run_command, make_model_dir, write_lines, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    write_lines("in.txt", "a")
    write_lines("in.tsv", "a\tb")
    write_lines("short.tsv", "a\tb", "a\tb", "x")
    with pytest.raises((ConfigError, DataError), match=re.escape(message)):
        run_command(distill, make_model_dir(), *arguments, "-o", "out.tsv")


BAD = [
    (["in.parquet", "--columns", "none"], "has no column 'none'; it has 'id', 'de', 'lists', 'kind'"),
    (["in.parquet", "--columns", "id"], "column 'id' holds no text; it has 'id', 'de', 'lists', 'kind'"),
    (["in.parquet"], "has 2 columns of text; say which to translate with --columns NAME (it has 'id', 'de', "),
    (["in.parquet", "--columns", "de,id"], "has a column 'id' already; name another: --columns COLUMN,NAME"),
    (["in.parquet", "--columns", "de,2"], "--columns de,2: give the column to translate, and a name"),
    (["in.parquet", "--columns", "de,"], "--columns de,: give the column to translate, and a name"),
    (["in.parquet", "--columns", "0,en"], "column 0 is asked for, but in.parquet has 4 columns"),
    (["number.jsonl", "--columns", "0"], "column 0 is asked for, but number.jsonl has 1 columns"),
    (["nested.jsonl"], "nested.jsonl has no column of text (it has 'translation')"),
    (["in.parquet", "--columns", "de", "-o", "out.txt"], "are written as .parquet; name such a file with --output"),
    (["in.parquet", "--columns", "de", "-o", "-"], "are written as .parquet; name such a file with --output"),
    (["in.parquet", "--columns", "de", "--nbest", "2"], "a file of rows cannot be used with --nbest"),
    (["in.parquet", "--columns", "de", "--format", "jsonl"], "a file of rows cannot be used with --format jsonl"),
    (["in.parquet", "--columns", "de", "--paragraphs"], "a file of rows cannot be used with --paragraphs"),
    (["in.parquet", "in.txt", "--columns", "de"], "a file of rows cannot be used with more than one FILE"),
    (["in.parquet", "--columns", "de", "--only-missing"], "--only-missing needs a document"),
    (["in.txt", "--columns", "de"], "--columns needs a document or a file of rows"),
    (["twice.feather", "--columns", "1"], "has several columns 'de'; a column to read needs a name of its own"),
    (["cut.parquet", "--columns", "de"], "cannot read cut.parquet, it is damaged or of another format"),
    (["torn.parquet", "--columns", "de"], "cannot read torn.parquet, it is damaged or of another format"),
    (["bad.jsonl"], "bad.jsonl, line 2: it is no JSON: "),
    (["missing.jsonl"], "missing.jsonl, line 2: there is no 'de' (the line begins '{\"en\": 1}')"),
    (["number.jsonl", "--columns", "de"], "number.jsonl, line 2: 'de' is no text"),
    (["late.jsonl"], "late.jsonl, line 201: there is 'target' already"),
    (["pipe.jsonl"], "cannot read pipe.jsonl: it is a pipe, a socket or a device"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_rows_that_cannot_be_translated_are_one_line(
    run_command, make_model_dir, write_lines, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    write_lines("in.txt", "a")
    write(tmp_path / "in.parquet", table_of())
    write(tmp_path / "twice.feather", pa.table([["a"], ["b"]], names=["de", "de"]))
    whole = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    pq.write_table(
        pa.table({"de": [f"Hund {number}" for number in range(5_000)]}), "torn.parquet", use_dictionary=False
    )
    torn = bytearray((tmp_path / "torn.parquet").read_bytes())
    torn[1_000:9_000] = bytes(8_000)
    (tmp_path / "torn.parquet").write_bytes(torn)
    write_lines("bad.jsonl", '{"de": "Hund"}', '{"de": "Hund"')
    write_lines("nested.jsonl", '{"translation": {"de": "Hund"}}')
    write_lines("missing.jsonl", '{"de": "Hund"}', '{"en": 1}')
    write_lines("number.jsonl", '{"de": "Hund"}', '{"de": 2}')
    write_lines("late.jsonl", *['{"de": ""}'] * 200, '{"de": "", "target": "dog"}')
    os.mkfifo("pipe.jsonl")
    before = sorted(path.name for path in tmp_path.iterdir())
    output = [] if "-o" in arguments else ["-o", f"out{Path(arguments[0]).suffix}"]
    with pytest.raises((ConfigError, DataError), match=re.escape(message)):
        run_command(translate, make_model_dir(), *arguments, *output)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file() or path.is_fifo()) == before


def test_rows_without_pyarrow_name_the_extra(run_command, make_model_dir, tmp_path, monkeypatch):
    given = write(tmp_path / "in.parquet", table_of())
    monkeypatch.delitem(sys.modules, "clearhead.formats.tables.arrow_files")
    monkeypatch.delattr("clearhead.formats.tables.arrow_files", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=f"need pyarrow, which is not installed: {re.escape(pip_install('arrow'))}"):
        run_command(translate, "none", given, "-o", tmp_path / "out.parquet")


@pytest.mark.parametrize("command", [translate, score, distill])
def test_rows_in_a_compressed_file_are_refused_before_anything_is_done(run_command, tmp_path, command):
    given = write(tmp_path / "in.parquet", table_of())
    arguments = {score: ["--pairs", given, "--columns", "de,kind"], translate: [given, "--columns", "de"]}
    output = tmp_path / "out.parquet.gz"
    with pytest.raises(DataError, match=r"out\.parquet\.gz: columns of Arrow are compressed within"):
        run_command(command, "none", *arguments.get(command, [given, "--column", "de"]), "-o", output)


@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: [*rows, rows[0]]])
@pytest.mark.parametrize("extension", [".parquet", ".jsonl"])
def test_rows_that_change_meanwhile_are_refused(tmp_path, change, extension):
    rows, path = [{"de": text} for text in TEXTS], tmp_path / f"in{extension}"
    changed = change(rows)
    if extension == ".parquet":
        write(path, pa.Table.from_pylist(changed))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in changed))
    added = row_files.added_column(str(path), str(tmp_path / f"out{extension}"), "en")
    with pytest.raises(DataError, match="when it was read first"), added as lines:
        lines.writelines(text + "\n" for text in LINES)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("extension", [".parquet", ".jsonl"])
def test_rows_that_are_written_again_meanwhile_are_refused(tmp_path, extension):
    path = tmp_path / f"in{extension}"

    def write_all(texts):
        if extension == ".parquet":
            write(path, table_of(texts))
        else:
            path.write_text("".join(json.dumps({"de": text}) + "\n" for text in texts))

    write_all(TEXTS)
    rows = row_files.TranslatedRows.of(str(path), ["de", "en"], str(tmp_path / f"out{extension}"))

    def translate_while_it_is_written():
        with rows.opened(str(tmp_path / f"out{extension}")) as lines:
            lines.writelines(text + "\n" for text in LINES)
            write_all(["Eine ganz andere Zeile.", *TEXTS[1:]])

    with pytest.raises(DataError, match=r"in\.\w+ changed while it was read; run the same command again"):
        translate_while_it_is_written()
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_files_without_rows_stay_so(run_command, make_model_dir, write_lines, tmp_path):
    write(tmp_path / "in.parquet", table_of([], kind=pa.array([], pa.string())))
    run_command(
        translate, make_model_dir(), tmp_path / "in.parquet", "--columns", "de,en", "-o", tmp_path / "o.parquet"
    )
    assert read(tmp_path / "o.parquet").schema.names == ["id", "de", "lists", "kind", "en"]
    assert run_command(translate, make_model_dir(), write_lines("in.jsonl", ""), "--columns", "1").stdout == "\n"
