"""Tables (`.csv`, `.tsv`) as documents: cells of a column as segments, translated in place or into another column.

The other cells are unchanged. The format of a table is detected as for files of pairs, see `tables.pairs`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import NamedTuple

from clearhead.errors import ConfigError
from clearhead.formats.document import Document, DocumentSegment, Filling
from clearhead.formats.file_text import FileText
from clearhead.formats.tables.anki import anki_format
from clearhead.formats.tables.columns import column_index, is_header
from clearhead.formats.tables.csv_files import csv_format
from clearhead.formats.tables.pairs import read_head
from clearhead.formats.tables.rows import MOST_COLUMNS, SEPARATOR_NAMES, TableFormat
from clearhead.formats.tables.tsv import tsv_format
from clearhead.text.lines import first_few, shortened

HEAD_ROWS = 200
"""Rows from which the columns are detected."""
SHOWN_NAMES = 20
MOST_NAME = 60
"""Characters shown of the name of a column."""


Range = tuple[int, int]
"""Start and end of a row in the text."""


class _Cell(NamedTuple):
    """Position of a cell in the text, including its quotation marks."""

    start: int
    end: int
    is_quoted: bool


class _Row(NamedTuple):
    """A row to translate."""

    target: _Cell
    """Cell for the translation; if the row is too short to have it, the position at the end of the row."""
    num_missing: int
    """Number of cells to add to the row, up to and including this one."""


class Table(Document):
    """A table; its segments are the cells of one column, without the header and rows too short to have the column."""

    def __init__(self, source: FileText, written: TableFormat, columns: Sequence[int | str] | None) -> None:
        """Find the cells to translate.

        Args:
            source: Text of the file.
            written: Format of the table.
            columns: The column to translate, optionally followed by the column for the translations; an integer is a
                number counted from 1, a string a name in the header. None is allowed only if the table has one column.

        Raises:
            ConfigError: If a column does not exist, or None is given for a table of several columns.
            DataError: If a quotation mark is not closed or text follows it, or a row has more cells than the others.
        """
        self.format = f"{written.name} table"
        self._source, self._written, self._cut = source, written, _Cut(source, written)
        self._rows: list[_Row] = []
        self.segments: list[DocumentSegment] = []
        # Numbered as spreadsheets number rows, which show blank ones too.
        rows = ((number, row) for number, row in enumerate(self._cut.rows(), start=1) if self._is_filled(row))
        head = list(islice(rows, HEAD_ROWS))
        if not head:
            return
        first = [self._text(cell) for cell in self._cut.cells(head[0][1])]
        widths = [len(self._cut.lengths(row)) for _, row in head]
        of_names = any(isinstance(column, str) for column in columns or ())
        has_header = not written.names and (of_names or is_header(first))
        names = [name.strip() for name in (first if has_header else written.names)]
        self._width = len(names) or Counter(widths).most_common(1)[0][0]
        from_column, to_column = self._chosen(columns, names, max(self._width, *widths))
        self.keeps_finished = from_column != to_column
        name = " ".join(names[from_column].split()) if from_column < len(names) else ""
        column = shortened(name, MOST_NAME) or str(from_column + 1)
        for number, row in islice(chain(head, rows), int(has_header), None):
            self._add(row, from_column, to_column, f"row {number}, column {column}")

    def _add(self, row: Range, from_column: int, to_column: int, place: str) -> None:
        lengths = self._cut.lengths(row)
        if self._written.has_fixed_width and len(lengths) > self._width:
            self._refuse_superfluous(row, len(lengths))
        if len(lengths) <= from_column:
            return
        source = self._cut.cell(row, lengths, from_column)
        missing = max(0, to_column + 1 - len(lengths))
        target = _Cell(row[1], row[1], False) if missing else self._cut.cell(row, lengths, to_column)
        there = self._text(target) if to_column != from_column else ""
        self._rows.append(_Row(target, missing))
        self.segments.append(
            self.watched(
                DocumentSegment(
                    self._text(source), self._source.line(source.start), there, bool(there.strip()), place=place
                )
            )
        )

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations in their cells.

        A quoted cell stays quoted; any other cell is quoted if its new text requires it. A `.tsv` has no quoting, so
        tabs and line endings of a translation become spaces.

        Raises:
            DataError: If a translation contains half of a surrogate pair.
        """
        return self._source.replaced(
            (row.target.start, row.target.end, self._separator * row.num_missing + self._cell(filling.text, row.target))
            for row, filling in zip(self._rows, fillings, strict=True)
            if filling is not None
        )

    @property
    def _separator(self) -> str:
        return self._written.separator

    def _is_filled(self, row: Range) -> bool:
        return self._cut.shows_text(row) or self._has_text(row, 0)

    def _has_text(self, row: Range, first: int) -> bool:
        return any(self._text(cell).strip() for cell in islice(self._cut.cells(row), first, None))

    def _text(self, cell: _Cell) -> str:
        written = self._source.text[cell.start : cell.end]
        return written[1:-1].replace('""', '"') if cell.is_quoted else written

    def _cell(self, text: str, cell: _Cell) -> str:
        if not self._written.is_quoted:
            return re.sub(rf"[\r\n{re.escape(self._separator)}]+", " ", text)
        if cell.is_quoted or any(sign in text for sign in ('"', "\r", "\n", self._separator)):
            return '"' + text.replace('"', '""') + '"'
        return text

    def _chosen(self, columns: Sequence[int | str] | None, names: Sequence[str], width: int) -> tuple[int, int]:
        """Return the indices of the columns to translate from and into, counted from 0."""
        path = self._source.path
        if columns is None:
            if width == 1:
                return 0, 0
            which = first_few([repr(name) for name in names], SHOWN_NAMES) if names else f"numbers 1 to {width}"
            raise ConfigError(
                f"{path} has {width} columns ({which}); say which to translate, for example --columns "
                f"{names[0] if names else 1}, or which one into which other, --columns "
                f"{','.join(names[:2]) if names else '1,2'}; a file of one column needs no choice"
            )
        indices = [column_index(path, column, names, width) for column in columns]
        if not 1 <= len(indices) <= 2 or len(set(indices)) < len(indices):
            raise ConfigError(
                f"columns {','.join(map(str, columns))}: name one or two different ones, the second for translations, "
                f"by their numbers, counted from 1, or their names in the header"
            )
        return indices[0], indices[-1]

    def _refuse_superfluous(self, row: Range, num_cells: int) -> None:
        if self._has_text(row, self._width):
            sign = SEPARATOR_NAMES.get(self._separator, repr(self._separator))
            raise self._source.refuse(
                row[0],
                f"the row has {num_cells} columns and the others {self._width}; a text with a {sign} in it must stand "
                f"in quotation marks",
            )


def read_csv(path: str, columns: Sequence[int | str] | None = None) -> Table:
    """Read a table separated by commas, semicolons or tabs, with quotation marks where needed.

    Args:
        path: The file.
        columns: The column to translate, optionally followed by the column for the translations; by number, counted
            from 1, or by name.

    Raises:
        ConfigError: If a column does not exist, or None is given for a table of several columns.
        DataError: If the file cannot be read, is too large, or a row is damaged.
    """
    return _read(path, columns, lambda head: csv_format(head, columns))


def read_tsv(path: str, columns: Sequence[int | str] | None = None) -> Table:
    """Read a tab-separated table; a quotation mark is ordinary text unless all rows show quoting.

    Args:
        path: The file.
        columns: The column to translate, optionally followed by the column for the translations; by number, counted
            from 1, or by name.

    Raises:
        ConfigError: If a column does not exist, or None is given for a table of several columns.
        DataError: If the file cannot be read, or is too large.
    """
    return _read(path, columns, tsv_format, has_whole=True)


def _read(
    path: str,
    columns: Sequence[int | str] | None,
    recognise: Callable[[Sequence[str]], TableFormat],
    *,
    has_whole: bool = False,
) -> Table:
    source = FileText.read(path)
    lines = (source.text[line.start : line.end] for line in source.lines())
    head = list(lines) if has_whole else read_head(lines)
    return Table(source, anki_format(head) or recognise(head), columns)


class _Cut:
    """Cuts the text of a file into rows, and a row into cells.

    A wide table has many cells of which few are needed, so that regular expressions pass over whole rows.
    """

    def __init__(self, source: FileText, written: TableFormat) -> None:
        self._source, self._written = source, written
        separator = re.escape(written.separator)
        plain = rf"[^\r\n{separator}]*+"
        # Many programs write a space between the separator and the quotation mark.
        blank = " *+" if written.separator in ",;" else ""
        quoted = r'"(?:[^"]++|"")*+"'
        cell = rf'(?:{blank}{quoted}|(?!{blank}"){plain})' if written.is_quoted else plain
        self._row = re.compile(rf"{cell}(?:{separator}{cell}){{0,{MOST_COLUMNS - 1}}}+")
        self._part = re.compile(rf"{cell}(?:{separator}|\Z)")
        self._cell = re.compile(rf'{blank}(?=")({quoted})|({plain})' if written.is_quoted else f"((?!))?({plain})")
        self._shown = re.compile(rf'[^\s"{separator}]')
        self._quote = re.compile(f'{blank}(?=")')

    def rows(self) -> Iterator[Range]:
        """Yield start and end of every row after the preamble.

        Raises:
            DataError: If a quotation mark is not closed, text follows it, or a row has too many cells.
        """
        text = self._source.text
        lines = islice(self._source.lines(), self._written.num_preamble, None)
        position = next((line.start for line in lines), len(text))
        while position < len(text):
            row = self._row.match(text, position)
            end = position if row is None else row.end()
            if end < len(text) and text[end] not in "\r\n":
                raise self._source.refuse(*self._problem(end, is_first=row is None))
            yield position, end
            position = end + (2 if text.startswith("\r\n", end) else 1)

    def shows_text(self, row: Range) -> bool:
        """Return whether a row has a character that is no white space, separator or quotation mark, as most have."""
        return self._shown.search(self._source.text, *row) is not None

    def lengths(self, row: Range) -> list[int]:
        """Return the characters of each cell of a row as written, and of the separator behind it."""
        text = self._source.text
        if text.find('"', *row) < 0:
            return list(map((1).__add__, map(len, text[slice(*row)].split(self._written.separator))))
        cells = self._part.findall(text, *row)
        if len(cells) > 1 and not cells[-2].endswith(self._written.separator):
            cells.pop()  # the empty match behind the last cell
        return list(map(len, cells))

    def cell(self, row: Range, lengths: Sequence[int], index: int) -> _Cell:
        """Return a cell of a row."""
        return self._cell_at(row[0] + sum(islice(lengths, index)))

    def cells(self, row: Range) -> Iterator[_Cell]:
        """Yield all cells of a row."""
        lengths = self.lengths(row)
        return map(self._cell_at, islice(accumulate(lengths, initial=row[0]), len(lengths)))

    def _cell_at(self, place: int) -> _Cell:
        match = self._cell.match(self._source.text, place)
        assert match is not None
        group = 2 if match[1] is None else 1
        return _Cell(*match.span(group), group == 1)

    def _problem(self, place: int, *, is_first: bool) -> tuple[int, str]:
        """Return where and why a row cannot be read on from a place: a separator, or the start of the row."""
        text = self._source.text
        start = place if is_first else place + 1
        if not is_first and text[place] != self._written.separator:
            return place, "text follows a closing quotation mark"
        if quote := self._quote.match(text, start):
            return quote.end(), "a quotation mark is not closed"
        return start, f"the row has more than {MOST_COLUMNS:,} columns"
