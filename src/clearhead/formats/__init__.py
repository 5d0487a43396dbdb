"""File formats of parallel corpora, with pairs to read or write, and of documents, with segments to translate."""

from __future__ import annotations

from clearhead.formats.alignment_links import GivenLinks
from clearhead.formats.languages import language_in_name
from clearhead.formats.pair import SKIPS, PairFile, SentencePair, Wanted
from clearhead.formats.pair_files import READERS, WRITERS, described, expand_paths, holds_pairs, read_pairs, write_pairs
from clearhead.formats.parallel_lines import read_parallel
from clearhead.formats.tables.tsv import write_tsv

__all__ = [
    "READERS",
    "SKIPS",
    "WRITERS",
    "GivenLinks",
    "PairFile",
    "SentencePair",
    "Wanted",
    "described",
    "expand_paths",
    "holds_pairs",
    "language_in_name",
    "read_pairs",
    "read_parallel",
    "write_pairs",
    "write_tsv",
]
