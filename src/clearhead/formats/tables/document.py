"""Tables (`.csv`, `.tsv`) as documents: cells of a column as segments, translated in place or into another column.

The other cells are unchanged. The format of a table is detected as for files of pairs, see `tables.pairs`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from clearhead.errors import ConfigError
from clearhead.formats.document import Document, Filling, Segment
from clearhead.formats.file_text import FileText
from clearhead.formats.tables.anki import anki_format
from clearhead.formats.tables.columns import column_index, is_header
from clearhead.formats.tables.csv_files import csv_format
from clearhead.formats.tables.rows import SEPARATOR_NAMES, TableFormat, too_many_columns
from clearhead.formats.tables.tsv import TAB_SEPARATED
from clearhead.text.shortening import first_few

HEAD_ROWS = 200
"""Rows from which the format and the columns are detected."""
SHOWN_NAMES = 20


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
        self._source, self._written = source, written
        self._rows: list[_Row] = []
        self.segments: list[Segment] = []
        head = [cells for cells in islice(_rows(source, written), HEAD_ROWS) if self._is_filled(cells)]
        if not head:
            return
        texts = [[self._text(cell) for cell in cells] for cells in head]
        of_names = any(isinstance(column, str) for column in columns or ())
        has_header = not written.names and (of_names or is_header(texts[0]))
        names = [name.strip() for name in (texts[0] if has_header else written.names)]
        self._width = len(names) or Counter(map(len, texts)).most_common(1)[0][0]
        from_column, to_column = self._chosen(columns, names, max(self._width, *map(len, texts)))
        for cells in islice(filter(self._is_filled, _rows(source, written)), int(has_header), None):
            self._refuse_superfluous(cells)
            if len(cells) > from_column:
                self._add(cells, from_column, to_column)

    def _add(self, cells: Sequence[_Cell], from_column: int, to_column: int) -> None:
        missing = max(0, to_column + 1 - len(cells))
        end = cells[-1].end
        target = _Cell(end, end, False) if missing else cells[to_column]
        there = self._text(target) if to_column != from_column else ""
        line = self._source.line(cells[from_column].start)
        self._rows.append(_Row(target, missing))
        self.segments.append(Segment(self._text(cells[from_column]), line, there, bool(there.strip())))

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

    def _is_filled(self, cells: Sequence[_Cell]) -> bool:
        return any(self._text(cell).strip() for cell in cells)

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
                f"{','.join(names[:2]) if names else '1,2'}"
            )
        indices = [column_index(path, column, names, width) for column in columns]
        if not 1 <= len(indices) <= 2 or len(set(indices)) < len(indices) or min(indices) < 0:
            raise ConfigError(
                f"columns {','.join(map(str, columns))}: name one or two different ones, the second for translations, "
                f"by their numbers, counted from 1, or their names in the header"
            )
        return indices[0], indices[-1]

    def _refuse_superfluous(self, cells: Sequence[_Cell]) -> None:
        if self._written.has_fixed_width and self._is_filled(cells[self._width :]):
            sign = SEPARATOR_NAMES.get(self._separator, repr(self._separator))
            raise self._source.refuse(
                cells[0].start,
                f"the row has {len(cells)} columns and the others {self._width}; a text with a {sign} in it must stand "
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
    """Read a tab-separated table without quoting: a quotation mark is ordinary text.

    Args:
        path: The file.
        columns: The column to translate, optionally followed by the column for the translations; by number, counted
            from 1, or by name.

    Raises:
        ConfigError: If a column does not exist, or None is given for a table of several columns.
        DataError: If the file cannot be read, or is too large.
    """
    return _read(path, columns, lambda head: TAB_SEPARATED)


def _read(path: str, columns: Sequence[int | str] | None, recognise: Callable[[Sequence[str]], TableFormat]) -> Table:
    source = FileText.read(path)
    head = [source.text[line.start : line.end] for line in islice(source.lines(), HEAD_ROWS)]
    return Table(source, anki_format(head) or recognise(head), columns)


def _rows(source: FileText, written: TableFormat) -> Iterator[list[_Cell]]:
    """Yield the cells of every row after the preamble.

    Raises:
        DataError: If a quotation mark is not closed, or text follows it.
    """
    separator, text = written.separator, source.text
    plain = re.compile(rf"[^\r\n{re.escape(separator)}]*+")
    # Many programs write a space between the separator and the quotation mark.
    space = re.compile(' *+(?=")' if separator in ",;" else "")
    quoted = re.compile(r'"(?:[^"]++|"")*+"')
    position = next((line.start for line in islice(source.lines(), written.num_preamble, None)), len(text))
    cells: list[_Cell] = []
    while position < len(text):
        is_quoted = False
        if written.is_quoted:
            if (blank := space.match(text, position)) is not None:
                position = blank.end()
            is_quoted = text.startswith('"', position)
        cell = (quoted if is_quoted else plain).match(text, position)
        if cell is None:
            raise source.refuse(position, "a quotation mark is not closed")
        cells.append(_Cell(cell.start(), cell.end(), is_quoted))
        if problem := too_many_columns(cells):
            raise source.refuse(position, problem)
        position = cell.end()
        if text.startswith(separator, position):
            position += 1
            if position < len(text):
                continue
            cells.append(_Cell(position, position, False))
        elif is_quoted and position < len(text) and text[position] not in "\r\n":
            raise source.refuse(position, "text follows a closing quotation mark")
        yield cells
        cells = []
        position += 2 if text.startswith("\r\n", position) else 1
