"""Parallel text in files: one reader a format, each a stream of `SentencePair`, and the writers beside them."""

from __future__ import annotations

from clearhead.corpora.given_links import GivenLinks
from clearhead.corpora.language_names import language_in_name
from clearhead.corpora.pair import SKIPS, PairFile, SentencePair, Wanted
from clearhead.corpora.pair_files import (
    READERS,
    WRITERS,
    described,
    expand_paths,
    holds_pairs,
    read_pairs,
    write_pairs,
)
from clearhead.corpora.parallel_lines import read_parallel
from clearhead.corpora.text_files import display_name, open_output, read_lines, some_names
from clearhead.corpora.tsv import write_tsv

__all__ = [
    "READERS",
    "SKIPS",
    "WRITERS",
    "GivenLinks",
    "PairFile",
    "SentencePair",
    "Wanted",
    "described",
    "display_name",
    "expand_paths",
    "holds_pairs",
    "language_in_name",
    "open_output",
    "read_lines",
    "read_pairs",
    "read_parallel",
    "some_names",
    "write_pairs",
    "write_tsv",
]
