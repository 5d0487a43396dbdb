"""Files of sentence pairs: expanding paths, and a reader and a writer for each extension."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from glob import glob
from itertools import islice
from typing import Any, Literal

from clearhead.errors import DataError
from clearhead.files import is_utf8
from clearhead.files.streams import COMPRESSIONS, display_name, format_extension, read_lines, some_names
from clearhead.formats.gettext.mo import open_mo
from clearhead.formats.gettext.po import open_po, write_po
from clearhead.formats.languages import GETTEXT, XLIFF, without_region
from clearhead.formats.memory_database import EXTENSION, is_memory, open_memory
from clearhead.formats.pair import PairFile, SentencePair, Wanted
from clearhead.formats.tables.anki import anki_format
from clearhead.formats.tables.columns import NoSuchColumn
from clearhead.formats.tables.csv_files import open_csv, write_csv
from clearhead.formats.tables.json_lines import open_json_lines, write_json_lines
from clearhead.formats.tables.tsv import open_tsv, write_tsv
from clearhead.formats.tables.workbook import open_workbook
from clearhead.formats.tmx.pairs import open_tmx, write_tmx
from clearhead.formats.xliff.pairs import open_xliff, write_xliff
from clearhead.runtime.installation import pip_install

# Importing pyarrow takes a tenth of a second, and it is in an extra, so it is imported only for its own formats.


def _open_columns(path: str, wanted: Wanted) -> PairFile:
    return arrow_files(path).open_columns(path, wanted)


def _write_columns(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    return arrow_files(path).write_columns(path, pairs, languages)


def arrow_files(path: str | None) -> Any:
    """Return the module `tables.arrow_files`.

    Raises:
        DataError: If pyarrow is not installed; the message names the file.
    """
    try:
        from clearhead.formats.tables import arrow_files
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise DataError(
            f"{path}: Parquet and Arrow files need pyarrow, which is not installed: {pip_install('arrow')}"
        ) from None
    return arrow_files


READERS: dict[str, Callable[[str, Wanted], PairFile]] = {
    ".arrow": _open_columns,
    ".csv": open_csv,
    ".feather": _open_columns,
    ".jsonl": open_json_lines,
    ".mo": open_mo,
    ".ndjson": open_json_lines,
    ".parquet": _open_columns,
    **dict.fromkeys(GETTEXT, open_po),
    EXTENSION: open_memory,
    ".tmx": open_tmx,
    ".tsv": open_tsv,
    ".txt": open_tsv,
    **dict.fromkeys(XLIFF, open_xliff),
    ".xlsx": open_workbook,
}
"""Extension to reader, for formats that hold both sides in one file."""

WRITERS: dict[str, Callable[[str | None, Iterable[SentencePair], tuple[str, str]], int]] = {
    ".arrow": _write_columns,
    ".csv": write_csv,
    ".feather": _write_columns,
    ".jsonl": write_json_lines,
    ".ndjson": write_json_lines,
    ".parquet": _write_columns,
    ".po": write_po,
    ".tmx": write_tmx,
    ".tsv": write_tsv,
    ".xlf": write_xliff,
    ".xliff": write_xliff,
}
"""Extension to writer, which takes path, pairs and the two languages, and returns the number of pairs."""

NUM_EXAMPLES = 3
"""Number of defects that an error message describes."""


def read_pairs(
    paths: Sequence[str],
    wanted: Wanted = Wanted(),
    *,
    swap: bool = False,
    tolerated: float = 0.0,
    on_open: Callable[[Sequence[PairFile]], None] | None = None,
    columns_may_be_missing: bool = False,
) -> Iterator[SentencePair]:
    """Stream the sentence pairs of files that hold both sides, in the order of the files.

    Args:
        paths: Files whose extension is in `READERS`, optionally followed by `.gz`, `.xz` or `.zst`; `-` is TSV on
            standard input.
        wanted: Source and target to read from every file; each file decides what is None. Columns that are requested by
            name are read from the files that have them; another file with a header of its own decides itself.
        swap: Exchange source and target.
        tolerated: Maximum share of a file's rows that may have a defect. Such rows are yielded with their `defect`; if
            there are more, the end of the file raises an error. With 0, the first defect raises.
        on_open: Called with opened files, whose formats are then known: immediately with all regular files; with a
            source that can be read only once, such as a pipe, when it is reached.
        columns_may_be_missing: Whether it may be that no file has the columns requested by name.

    Raises:
        ConfigError: Immediately, if no file has the columns requested by name, one has neither them nor a header, one
            has no column of a requested number, or the choice of columns is ambiguous.
        DataError: Immediately, for files with an unknown extension (all are named) and for a file without columns; and
            during iteration, for reader errors and too many defects.
    """
    unknown = [path for path in paths if _format(path) not in READERS]
    if unknown:
        raise DataError(
            f"cannot tell the format of {', '.join(unknown)}; files of pairs end in {', '.join(READERS)}, "
            f"those of text also with {', '.join(COMPRESSIONS)}; two line-aligned files are given as source "
            f"and target instead"
        )

    def opened(path: str, wanted: Wanted = wanted) -> PairFile:
        file = READERS[_format(path)](path, wanted)
        return file.swapped() if swap else file

    def all_opened() -> dict[int, PairFile]:
        files, missing = dict[int, PairFile](), dict[int, NoSuchColumn]()
        for place, path in enumerate(paths):
            if os.path.isfile(path):
                try:
                    files[place] = opened(path)
                except NoSuchColumn as error:
                    missing[place] = error
        if missing and not (files or columns_may_be_missing):
            raise next(iter(missing.values()))
        return files | {place: opened(paths[place], replace(wanted, columns=None)) for place in missing}

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

    ready = all_opened()
    tell([ready[place] for place in sorted(ready)])
    return stream()


def write_pairs(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    """Write pairs in the format of the path's extension, and return their number.

    Args:
        path: The file; `None` or `-` is TSV on standard output. Text formats are compressed if the name ends in `.gz`,
            `.xz` or `.zst`.
        pairs: Pairs to write, in order, including those that have a defect or are skipped.
        languages: Languages of source and target, for formats that name them.

    Raises:
        DataError: Immediately, if the format is unknown; and for errors of the writer.
    """
    extension = _format(path or "-")
    if extension not in WRITERS:
        raise DataError(
            f"cannot tell in which format to write {path}; files of pairs are written as {', '.join(WRITERS)}, "
            f"text also with {', '.join(COMPRESSIONS)}"
        )
    return WRITERS[extension](path, pairs, languages)


def expand_paths(paths: Iterable[str], *, notice: Callable[[str], None] | None = None) -> list[str]:
    """Return the files that paths refer to: directories and patterns are expanded.

    Args:
        paths: Files, directories and patterns. A file is returned as it is, whatever it contains and even if it does
            not exist. A directory is searched recursively for files of which `holds_pairs` is true; hidden files and
            directories are skipped. Patterns have `*`, `?` or `[..]`; `**` matches directories recursively.
        notice: Called with a message that counts the files found and left out in a directory.

    Returns:
        Files in the order of `paths`; those of one directory or pattern are sorted by name.

    Raises:
        DataError: If a directory contains no file of pairs, or a pattern matches nothing.
    """
    files: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            own = _files_in(path, notice)
            if not own:
                raise DataError(f"{path} is a directory without a file of pairs ({', '.join(READERS)})")
        elif os.path.exists(path) or not any(sign in path for sign in "*?["):
            own = [path]
        else:
            matches = glob(path, recursive=True)
            # A set, because `**` matches both a directory and the files in it.
            own = sorted({file for match in matches for file in _files_at(match, notice)})
            if not own:
                raise DataError(f"{path}: no file matches this pattern")
        files += own
    return files


def _files_at(match: str, notice: Callable[[str], None] | None) -> list[str]:
    return _files_in(match, notice) if os.path.isdir(match) else [match]


def _files_in(directory: str, notice: Callable[[str], None] | None) -> list[str]:
    def refuse(error: OSError) -> None:
        raise DataError(f"cannot read {error.filename}: {error.strerror}")

    inside, num_others = [], 0
    for folder, folders, names in os.walk(directory, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(folder, name)
            if not name.startswith(".") and is_utf8(path) and _is_one_of_pairs(path):
                inside.append(path)
            else:
                num_others += 1
    if notice is not None and inside:
        left_out = f"; other files in it, which are left out: {num_others:,}" if num_others else ""
        notice(f"{directory}: files of pairs: {len(inside):,}{left_out}")
    return sorted(inside)


def _is_one_of_pairs(path: str) -> bool:
    try:
        return holds_pairs(path)
    except DataError:  # a `.txt` that is not text
        return False


def described(files: Sequence[PairFile]) -> list[str]:
    """Return a line for each distinct description of the files (`PairFile.read_as`), with the files' names.

    Tables without a header among files whose columns are named after languages are told apart from those, and a side
    that is in several languages is reported.
    """
    alike: dict[str, list[str]] = {}
    for file in files:
        alike.setdefault(file.read_as, []).append(file.path)
    lines = [f"{some_names(paths)}: {words}" for words, paths in alike.items()]
    unnamed = [file for file in files if file.is_unnamed]
    named = next((file for file in files if all(file.languages)), None)
    if unnamed and named is not None:
        header = "\t".join(map(str, named.languages))
        lines.append(
            f"{some_names([file.path for file in unnamed])}: no header, unlike {named.path}, so the source is "
            f"{unnamed[0].sides[0]}; if that is wrong, add a first line that names the columns in their order, such as "
            f"{header!r}"
        )
    return [*lines, *filter(None, (different_languages(files, side) for side in ("source", "target")))]


def different_languages(files: Sequence[PairFile], side: Literal["source", "target"]) -> str | None:
    """Return a message that names the languages of a side, if files name several, with the files of each."""
    by_language: dict[str, list[str]] = {}
    for file in files:
        if language := file.languages[side == "target"]:
            by_language.setdefault(without_region(language), []).append(file.path)
    if len(by_language) < 2:
        return None
    listed = "; ".join(f"{language} ({some_names(paths)})" for language, paths in by_language.items())
    option = "--to-lang" if side == "target" else "--from-lang"
    return f"the files have different {side} languages: {listed}; name the files of one, or the language with {option}"


def holds_pairs(path: str) -> bool:
    """Return whether a file holds both sides; a `.txt` does if its first line has a tab or is an Anki header.

    A `.sqlite` does if it is a translation memory.
    """
    extension = _format(path)
    if path == "-" or extension not in READERS or not os.path.isfile(path):
        return False
    if extension == EXTENSION:
        return is_memory(path)
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


def _format(path: str) -> str:
    """Return the extension of a file's format; standard input is TSV."""
    return ".tsv" if path == "-" else format_extension(path)
