"""Parallel text in files: one reader a format, each a stream of `SentencePair`, and the writers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from clearhead.corpora.pair import SentencePair
from clearhead.corpora.parallel_lines import read_parallel
from clearhead.corpora.text_files import COMPRESSIONS, display_name, open_output, read_lines
from clearhead.corpora.tsv import read_tsv, write_tsv
from clearhead.errors import DataError

__all__ = [
    "READERS",
    "SentencePair",
    "display_name",
    "open_output",
    "read_lines",
    "read_pairs",
    "read_parallel",
    "read_tsv",
    "write_tsv",
]

READERS: dict[str, Callable[[str], Iterator[SentencePair]]] = {".tsv": read_tsv}
"""Extension to reader, of formats that hold both sides in one file."""


def read_pairs(paths: Sequence[str]) -> Iterator[SentencePair]:
    """Stream the pairs of files that hold both sides, file after file.

    Args:
        paths: Files whose extension is in `READERS`, each also with `.gz`, `.xz` or `.zst`; `-` is TSV on standard
            input.

    Raises:
        DataError: At once, naming every file whose extension is not known; and while reading, as the reader says.
    """
    unknown = [path for path in paths if _format(path) not in READERS]
    if unknown:
        raise DataError(
            f"cannot tell the format of {', '.join(unknown)}; files of pairs end in {', '.join(READERS)}, "
            f"each also with {', '.join(COMPRESSIONS)}; two line-aligned files are given as source and target instead"
        )
    return (pair for path in paths for pair in READERS[_format(path)](path))


def _format(path: str) -> str:
    if path == "-":
        return ".tsv"
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
