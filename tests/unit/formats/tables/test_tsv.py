"""Tab-separated pairs: columns without quoting rules, and a round trip that loses nothing."""

from __future__ import annotations

import io
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DataError
from clearhead.formats import SentencePair, read_pairs, write_tsv


def test_columns_after_the_second_are_ignored(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_text('a b\t"c\tCC-BY\tmore\n\n\t\nx\t\n', encoding="utf-8")
    assert list(read_pairs([str(path)])) == [
        SentencePair("a b", '"c', f"{path}:1"),
        SentencePair("", "", f"{path}:2"),
        SentencePair("", "", f"{path}:3"),
        SentencePair("x", "", f"{path}:4"),
    ]


def test_anki_file_with_attributions_is_read(data_dir):
    path = data_dir("formats") / "anki-swe-eng.3col.tsv"
    pairs = list(read_pairs([str(path)]))
    assert len(pairs) == len(path.read_bytes().splitlines())
    assert pairs[0] == SentencePair("When did you do that?", "När gjorde du det?", f"{path}:1")
    assert not any("CC-BY" in pair.target for pair in pairs)


def test_tatoeba_export_with_numbers_before_the_sentences_is_read(tmp_path):
    path = tmp_path / "Sentence pairs in English-German.tsv"
    path.write_text("\ufeff1276\tLet's try.\t77\tVersuchen wir's!\n1280\t4711\t98\t4711\n", encoding="utf-8")
    assert [(pair.source, pair.target) for pair in read_pairs([str(path)])] == [
        ("Let's try.", "Versuchen wir's!"),
        ("4711", "4711"),
    ]


def test_line_without_a_tab_is_refused_by_file_and_line(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_text("a\tb\nno tab here\n")
    with pytest.raises(DataError, match=r"p\.tsv, line 2: there is no tab.*'no tab here'"):
        list(read_pairs([str(path)]))


def test_line_without_a_tab_on_standard_input_is_named_so(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"word")))
    with pytest.raises(DataError, match="standard input, line 1"):
        list(read_pairs(["-"]))


@pytest.mark.parametrize("sign", ["\t", "\n", "\r"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_write_tsv_rejects_texts_a_tsv_cannot_keep_and_writes_nothing(tmp_path, sign, side):
    texts = {"source": "a", "target": "b", side: f"x{sign}y"}
    with pytest.raises(DataError, match=rf"f\.tmx:7: the {side} holds a"):
        write_tsv(
            str(tmp_path / "p.tsv"), [SentencePair("ok", "ok", "f.tmx:6"), SentencePair(**texts, origin="f.tmx:7")]
        )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("row", [("German", "English"), ("#html:true", "b"), ("\ufeffa", "b")])
def test_a_first_pair_that_would_be_read_as_a_header_is_refused_and_a_later_one_is_not(tmp_path, row):
    pair, other = SentencePair(*row, "f.po:7"), SentencePair("a", "b", "f.po:6")
    with pytest.raises(DataError, match=r"f\.po:7: .* as the first row of a \.tsv, would be read as its header"):
        write_tsv(str(tmp_path / "p.tsv"), [pair, other])
    path = str(tmp_path / "q.tsv")
    assert write_tsv(path, [other, pair]) == 2
    assert [(pair.source, pair.target) for pair in read_pairs([path])] == [("a", "b"), row]
    assert os.listdir(tmp_path) == ["q.tsv"]


sides = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n\0\ufeff"), max_size=11)


@given(st.lists(st.tuples(sides, sides), max_size=5), st.sampled_from(["tsv", "tsv.gz", "tsv.xz", "tsv.zst"]))
def test_tsv_pairs_round_trip(tmp_path_factory, texts, extension):
    path = str(tmp_path_factory.getbasetemp() / f"p.{extension}")
    pairs = [SentencePair(*both, f"{path}:{line}") for line, both in enumerate(texts, start=1)]
    assert write_tsv(path, pairs) == len(pairs)
    assert list(read_pairs([path])) == pairs


QUOTED = 'id\ten\tde\n1\t"The boat\nis red"\tDas Boot\n2\t"He said ""row"""\tEr sagte\n3\tPlain\tSchlicht\n'


def read_file(tmp_path, text):
    path = tmp_path / "pairs.tsv"
    path.write_text(text, encoding="utf-8")
    return list(read_pairs([str(path)], tolerated=1.0))


def test_quoted_cells_are_read_as_quoted(tmp_path):
    rows = read_file(tmp_path, QUOTED)
    assert [(row.source, row.target) for row in rows] == [
        ("The boat is red", "Das Boot"),
        ('He said "row"', "Er sagte"),
        ("Plain", "Schlicht"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '"Go!"\t"Geh!"\n"Go on," he said.\t"Weiter", sagte er.\n',
        '"Go on.\t„Weiter.\nAnd so on."\tUnd so weiter.“\n',
        'a ""b"" c\td\n',
    ],
)
def test_quotation_marks_of_text_are_kept(text, tmp_path):
    rows = read_file(tmp_path, text)
    assert [f"{row.source}\t{row.target}" for row in rows] == text.splitlines()


def test_a_quoted_row_behind_many_plain_ones_is_not_torn(tmp_path):
    plain = [f"Row {number}.\tZeile {number}." for number in range(300)]
    rows = read_file(tmp_path, "\n".join([*plain, '"The boat', 'is red"\tDas Boot', *plain]) + "\n")
    assert [row.defect is not None for row in rows] == [False] * 300 + [True] * 2 + [False] * 300
    assert "name it .csv" in rows[301].defect
    rows = read_file(tmp_path, "\n".join([*plain, '"Broken', *plain]) + "\n")
    assert [row.defect is not None for row in rows] == [False] * 300 + [True] + [False] * 300


def test_a_cell_that_the_first_lines_cut_off_is_quoted_too(tmp_path):
    plain = [f"Row {number}.\tZeile {number}." for number in range(197)]
    quoted = ['"He said ""row"""\tEr sagte', *plain, "Last\tLetzte", '"One', "two", 'three"\tEins zwei drei']
    rows = read_file(tmp_path, "\n".join(quoted) + "\n")
    assert (rows[0].source, rows[-1].source, len(rows)) == ('He said "row"', "One two three", 200)


def test_a_text_that_would_be_read_as_quoted_is_not_written(tmp_path):
    with pytest.raises(DataError, match=r"write a \.csv"):
        write_tsv(str(tmp_path / "new.tsv"), [SentencePair('"He said ""row"""', "x", "f:1")])
