"""Choosing the reader of a file of pairs."""

from __future__ import annotations

import gzip
import io
import sys

import pytest

from clearhead.corpora import read_pairs
from clearhead.errors import DataError


def test_format_is_told_by_the_extension_under_any_compression(tmp_path, monkeypatch):
    (tmp_path / "a.b.TSV").write_bytes(b"1\t2\n")
    (tmp_path / "c.tsv.gz").write_bytes(gzip.compress(b"3\t4\n"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"5\t6\n")))
    pairs = list(read_pairs([str(tmp_path / "a.b.TSV"), str(tmp_path / "c.tsv.gz"), "-"]))
    assert [(pair.source, pair.target) for pair in pairs] == [("1", "2"), ("3", "4"), ("5", "6")]


def test_every_unknown_format_is_named_before_anything_is_read():
    with pytest.raises(DataError, match=r"format of a\.docx, b, c\.gz; .* \.tsv, each also with \.gz, \.xz, \.zst"):
        read_pairs(["a.docx", "fine.tsv", "b", "c.gz"])
