"""File formats of parallel corpora, with pairs to read or write, and of documents, with segments to translate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clearhead.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from clearhead.formats.alignment_links import GivenLinks
    from clearhead.formats.languages import in_common, language_in_name
    from clearhead.formats.pair import SKIPS, PairFile, SentencePair, Wanted
    from clearhead.formats.pair_files import (
        READERS,
        WRITERS,
        described,
        different_languages,
        expand_paths,
        holds_pairs,
        read_pairs,
        write_pairs,
    )
    from clearhead.formats.parallel_lines import read_parallel
    from clearhead.formats.tables.tsv import write_tsv

# Imported on first use, because a document needs no reader of pairs.
if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazy_names(
        __name__,
        {
            "GivenLinks": "alignment_links",
            **dict.fromkeys(("in_common", "language_in_name"), "languages"),
            **dict.fromkeys(("SKIPS", "PairFile", "SentencePair", "Wanted"), "pair"),
            **dict.fromkeys(("READERS", "WRITERS", "described", "different_languages", "expand_paths"), "pair_files"),
            **dict.fromkeys(("holds_pairs", "read_pairs", "write_pairs"), "pair_files"),
            "read_parallel": "parallel_lines",
            "write_tsv": "tables.tsv",
        },
    )

__all__ = [
    "READERS",
    "SKIPS",
    "WRITERS",
    "GivenLinks",
    "PairFile",
    "SentencePair",
    "Wanted",
    "described",
    "different_languages",
    "expand_paths",
    "holds_pairs",
    "in_common",
    "language_in_name",
    "read_pairs",
    "read_parallel",
    "write_pairs",
    "write_tsv",
]
