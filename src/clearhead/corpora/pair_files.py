"""Files that hold both sides: a reader for every extension, what each was taken for, and how many rows are no pairs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from clearhead.corpora.anki import anki_format
from clearhead.corpora.csv_files import open_csv
from clearhead.corpora.pair import PairFile, SentencePair, Wanted
from clearhead.corpora.text_files import COMPRESSIONS, display_name, read_lines, some_names
from clearhead.corpora.tmx import open_tmx
from clearhead.corpora.tsv import open_tsv, write_tsv
from clearhead.corpora.xliff import open_xliff
from clearhead.errors import DataError

__all__ = ["READERS", "described", "holds_pairs", "read_pairs", "write_pairs"]

READERS: dict[str, Callable[[str, Wanted], PairFile]] = {
    ".csv": open_csv,
    ".tsv": open_tsv,
    ".txt": open_tsv,
    ".tmx": open_tmx,
    ".xlf": open_xliff,
    ".xliff": open_xliff,
}
"""Extension to reader, of formats that hold both sides in one file."""

NUM_EXAMPLES = 3
"""Defects that a message describes."""


def read_pairs(
    paths: Sequence[str],
    wanted: Wanted = Wanted(),
    *,
    swap: bool = False,
    tolerated: float = 0.0,
    on_open: Callable[[Sequence[PairFile]], None] | None = None,
) -> Iterator[SentencePair]:
    """Stream the pairs of files that hold both sides, file after file.

    Args:
        paths: Files whose extension is in `READERS`, each also with `.gz`, `.xz` or `.zst`; `-` is TSV on standard
            input.
        wanted: Source and target, of every file; what is not said is left to each file.
        swap: Read them in the other direction.
        tolerated: Share of a file's rows that may have a defect. Each of them is a pair with its `defect`; more are an
            error at the end of the file. With 0 the first one is an error.
        on_open: Called with files that it is known of what they were taken for: at once, but with what can be read only
            once, such as a pipe, when its turn comes.

    Raises:
        ConfigError: At once, if a file does not have the columns that are asked for, or leaves open which to take.
        DataError: At once, naming every file whose extension is not known, or a file without columns; and while
            reading, as the reader says, or for its defects.
    """
    unknown = [path for path in paths if _extension(path) not in READERS]
    if unknown:
        raise DataError(
            f"cannot tell the format of {', '.join(unknown)}; files of pairs end in {', '.join(READERS)}, "
            f"each also with {', '.join(COMPRESSIONS)}; two line-aligned files are given as source and target instead"
        )

    def opened(path: str) -> PairFile:
        file = READERS[_extension(path)](path, wanted)
        return file.swapped() if swap else file

    def tell(files: Sequence[PairFile]) -> None:
        if on_open is not None:
            on_open(files)

    def stream() -> Iterator[SentencePair]:
        for place, path in enumerate(paths):
            file = ready.pop(place, None)
            if file is None:
                file = opened(path)
                tell([file])
            yield from _with_few_defects(file, tolerated)

    ready = {place: opened(path) for place, path in enumerate(paths) if os.path.isfile(path)}
    tell([*ready.values()])
    return stream()


def write_pairs(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    """Write pairs in the format that the extension names, and return their number.

    Args:
        path: `None` or `-` is TSV on standard output.
        pairs: In order.
        languages: Of source and target, for formats that name them.

    Raises:
        DataError: If the extension is not known, or as the writer says.
    """
    if path is not None and _extension(path) != ".tsv":
        raise DataError(f"cannot write {path}: files of pairs are written as .tsv")
    return write_tsv(path, pairs)


def described(files: Sequence[PairFile]) -> list[str]:
    """Return what files were taken for, a line for those that agree."""
    alike: dict[str, list[str]] = {}
    for file in files:
        alike.setdefault(file.read_as, []).append(file.path)
    return [f"{some_names(paths)}: {words}" for words, paths in alike.items()]


def holds_pairs(path: str) -> bool:
    """Tell whether a file holds both sides, not segments; `.txt` does if its first line has a tab or is Anki's."""
    extension = _extension(path)
    if path == "-" or extension not in READERS or not os.path.isfile(path):
        return False
    if extension != ".txt":
        return True
    first = list(islice(read_lines(path), 1))
    return any("\t" in line for line in first) or anki_format(first) is not None


def _with_few_defects(file: PairFile, tolerated: float) -> Iterator[SentencePair]:
    rows, defects = 0, 0
    examples: list[str] = []
    for pair in file.pairs:
        rows += 1
        if pair.defect is not None:
            defects += 1
            if tolerated == 0:
                raise DataError(f"{display_name(file.path)}, line {pair.line}: {pair.defect}")
            if defects <= NUM_EXAMPLES:
                examples.append(f"line {pair.line}: {pair.defect}")
        yield pair
    if rows and defects / rows > tolerated:
        raise DataError(
            f"{display_name(file.path)} was taken for: {file.format}; but {defects:,} of {rows:,} rows are no pairs, "
            f"and at most {tolerated * 100:g} % may be skipped: {'; '.join(examples)}; mend or remove such rows, or "
            f"say with --columns which columns to read"
        )


def _extension(path: str) -> str:
    if path == "-":
        return ".tsv"
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
