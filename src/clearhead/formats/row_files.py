"""Files of rows with named columns (`.jsonl`, Parquet, Arrow): one column is read as lines, and another is added."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Self, TextIO

from clearhead.errors import ConfigError, DataError
from clearhead.files import is_standard_output, os_error_as, require_regular
from clearhead.files.reading import file_version
from clearhead.files.streams import format_extension
from clearhead.formats.document_files import ROW_FILES, is_row_file
from clearhead.formats.pair_files import arrow_files
from clearhead.formats.tables import json_lines
from clearhead.formats.tables.columns import TextColumns, column_index
from clearhead.formats.tables.csv_files import csv_format
from clearhead.formats.tables.pairs import text_columns
from clearhead.formats.tables.tsv import tsv_format
from clearhead.text.lines import first_few

TABLES: dict[str, Callable[..., Any]] = {".csv": csv_format, ".tsv": tsv_format}
"""Extension of a table of text, of which a column can be read as lines, to how its format is recognized."""

ADDED = "target"
"""Name of the column of translations, unless another is given."""

_SHOWN = 20


def has_columns(path: str) -> bool:
    """Return whether a column of a file can be read as lines: it is one of `ROW_FILES`, or a table of text."""
    return is_row_file(path) or format_extension(path) in TABLES


def is_same_kind(path: str, output: str | None) -> bool:
    """Return whether two files have rows in the same format.

    >>> is_same_kind("in.jsonl.gz", "out.ndjson"), is_same_kind("in.jsonl", "out.parquet"), is_same_kind("in", "out")
    (True, False, False)
    """
    kind = ROW_FILES.get(format_extension(path))
    return kind is not None and kind == ROW_FILES.get(format_extension(output or ""))


def lines_in_column(path: str, column: int | str | None, option: str) -> Iterator[str]:
    """Read a column of a file of `ROW_FILES` or `TABLES` as lines, one for each row; missing values are empty ones.

    Args:
        path: A regular file.
        column: Number of the column, counted from 1, or its name; None: the only one of text.
        option: The option that names it, for messages.

    Raises:
        ConfigError: If there is no such column, or it holds no text; immediately.
        DataError: If the file cannot be read, is damaged, or a row has no text in the column; the latter also during
            iteration.
    """
    names, width, others, lines = _columns(path, column)
    texts = [place for place in range(width) if place not in others]
    listed = first_few([repr(name[:40]) for name in names], _SHOWN) or f"numbers 1 to {width}"
    if not texts:
        raise ConfigError(f"{path} has no column of text (it has {listed})")
    if column is None and len(texts) > 1:
        raise ConfigError(
            f"{path} has {len(texts)} columns of text; say which to translate with {option} (it has {listed})"
        )
    place = texts[0] if column is None else column_index(path, column, names, width)
    if place in others:
        raise ConfigError(f"{path}: column {column!r} holds no text; it has {listed}")
    return lines(place)


def _columns(path: str, column: int | str | None) -> TextColumns:
    with os_error_as(DataError, f"cannot read {path}"):
        require_regular(path)  # it is read twice
    match ROW_FILES.get(extension := format_extension(path)):
        case "JSON lines":
            return json_lines.text_columns(path)
        case None:
            return text_columns(path, column, TABLES[extension])
        case _:
            columns: TextColumns = arrow_files(path).text_columns(path)
            return columns


def refuse_unwritable_rows(output: str | None) -> None:
    """Make sure that rows can be written to a file, if it is one of `ROW_FILES`.

    Raises:
        DataError: If it is for Arrow or Parquet, and pyarrow is missing or the name asks for compression around it.
    """
    if ROW_FILES.get(format_extension(output or "")) in ("Parquet", "Arrow"):
        arrow_files(output).refuse_what_is_around(output)


def require_new_column(path: str, output: str | None, name: str, option: str = "") -> None:
    """Make sure that a column can be added to the rows of a file.

    Args:
        path: The file.
        output: File that will be written.
        name: Name of the column.
        option: The option that names it, for messages.

    Raises:
        ConfigError: If the output is of another format, or there is such a column.
        DataError: If the file cannot be read, or as `refuse_unwritable_rows`.
    """
    kind = ROW_FILES[format_extension(path)]
    is_printed = kind == "JSON lines" and is_standard_output(output)
    if not (is_printed or is_same_kind(path, output)):
        endings = " or ".join(extension for extension, other in ROW_FILES.items() if other == kind)
        raise ConfigError(f"the rows of {path} are written as {endings}; name such a file with --output")
    refuse_unwritable_rows(output)
    if name in _columns(path, None).names:
        raise ConfigError(f"{path} has a column {name!r} already{option and '; name another: '}{option}")


@contextmanager
def added_column(
    path: str,
    output: str | None,
    name: str,
    kind: type[str] | type[float] = str,
    since: tuple[int, int, int] | None = None,
) -> Iterator[TextIO]:
    r"""Yield a text file for the values of a new column, one a line; after them, write the rows of a file with it.

    The output appears only when it is complete. The lines are in a temporary file.

    Args:
        path: The file of rows.
        output: File to write, of the same format; only JSON lines go to standard output (`None` or `-`).
        name: Name of the column.
        kind: Type of its values.
        since: The file's `file_version` when it was read for them; None if nothing else can write it.

    Raises:
        DataError: If the file cannot be read, has changed or has other rows than values, or the output cannot be
            written.
    """
    above = None if output is None else os.path.dirname(os.path.realpath(output))
    beside = above if above and os.path.isdir(above) else None
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", dir=beside) as lines:
        try:
            yield lines
            lines.seek(0)
        except OSError as error:
            if error.filename is not None:  # of another file
                raise
            raise DataError(f"cannot write a temporary file for {output}: {error.strerror or error}") from None
        if since is not None and file_version(path) != since:
            raise DataError(f"{path} changed while it was read; run the same command again")
        values = (kind(line.removesuffix("\n")) for line in lines)
        if ROW_FILES[format_extension(path)] == "JSON lines":
            json_lines.add_column(path, output, name, values)
        else:
            arrow_files(path).add_column(path, output, name, values, kind)


class TranslatedRows(NamedTuple):
    """Rows of a file, whose translations become a column."""

    path: str
    source: int | str | None
    """Number or name of the column to translate; None: the only one of text."""
    added: str
    """Name of the column of translations."""
    since: tuple[int, int, int] | None
    """The file's `file_version` before it is read."""

    @classmethod
    def of(cls, path: str, columns: Sequence[int | str], output: str | None) -> Self:
        """Check what is to be done with the rows of a file.

        Args:
            path: The file.
            columns: The column to translate, and the name of the new column; both may be left out.
            output: File to write.

        Raises:
            ConfigError: As `require_new_column` and `lines_in_column`, or if there are more columns, or the second one
                is no name or empty.
            DataError: As these.
        """
        source, added = columns[0] if columns else None, columns[1] if len(columns) > 1 else ADDED
        if len(columns) > 2 or not isinstance(added, str) or not added:
            named = ",".join(map(str, columns))
            raise ConfigError(f"--columns {named}: give the column to translate, and a name for the new column")
        require_new_column(path, output, added, "--columns COLUMN,NAME")
        rows = cls(path, source, added, file_version(path))
        rows.lines()  # what it cannot read is refused before anything is translated
        return rows

    def lines(self) -> Iterator[str]:
        """Read the column to translate, as `lines_in_column` does."""
        return lines_in_column(self.path, self.source, "--columns NAME")

    def opened(self, output: str | None) -> AbstractContextManager[TextIO]:
        """Open a file for the translations, as `added_column` does."""
        return added_column(self.path, output, self.added, since=self.since)
