"""Tables of sentence pairs: format and columns are detected from the head of a file, then its rows are streamed."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from clearhead.errors import DataError
from clearhead.files.streams import display_name, read_lines
from clearhead.formats.pair import EMPTY, Columns, PairFile, SentencePair, Wanted
from clearhead.formats.tables.anki import anki_format, text_of_html
from clearhead.formats.tables.columns import TextColumns, TwoColumns, choose_columns, is_header
from clearhead.formats.tables.rows import SEPARATOR_NAMES, TableFormat, TableRow

HEAD_LINES = 200
HEAD_CHARACTERS = 1_000_000
"""Maximum lines and characters of the head of a file."""
SHOWN_CHARACTERS = 40


def open_table(
    path: str, wanted: Wanted, recognise: Callable[[Sequence[str], Columns | None], TableFormat]
) -> PairFile:
    """Open a table of sentence pairs; its rows are streamed, one in memory at a time.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Columns of source and target; if not given, the file decides.
        recognise: Returns the format of a table that is no Anki export, from its first lines and the requested columns.

    Raises:
        ConfigError: If a requested column does not exist, or the header leaves the choice ambiguous.
        DataError: If no row has a second column, or the file is not readable text; the latter also during iteration.
    """
    lines: Iterator[str] = read_lines(path)
    head = read_head(lines)
    written = anki_format(head) or recognise(head, wanted.columns)
    filled = [row for row in written.rows(iter(head)) if not row.is_blank]
    rows = [row.cells for row in filled if row.cells is not None]
    if any(len(row) > 1 for row in rows):
        chosen = choose_columns(
            path, rows, wanted, names=written.names, others=written.other_columns, separator=written.separator
        )
    elif filled:
        raise DataError(_no_columns(path, head, filled[0], written))
    else:
        chosen = TwoColumns(0, 1, has_header=False, names=())
    # A regular file is read again from the start, and opened only when iteration begins; a pipe can be read only once.
    lines = read_lines(path) if os.path.isfile(path) else chain(head, lines)
    width = len(chosen.names) or max(Counter(map(len, rows)).most_common(1), default=(0, 0))[0]
    words = f"{written.name}, {width} columns" + (" with a header" if chosen.has_header else "") if width else EMPTY
    pairs = _pairs(path, lines, written, chosen, width)
    is_unnamed = bool(width) and not chosen.names
    return PairFile(path, words, chosen.sides(), pairs, chosen.languages(), is_unnamed)


def text_columns(
    path: str, column: int | str | None, recognise: Callable[[Sequence[str], Columns | None], TableFormat]
) -> TextColumns:
    """Open a table of which a column is read as lines.

    Args:
        path: A regular file.
        column: The column, whose name shows that the first row is a header; or its number, or None.
        recognise: As for `open_table`.

    Raises:
        DataError: If the file is not readable text; or during iteration, if a row lacks the column or is malformed.
    """
    head = read_head(read_lines(path))
    written = anki_format(head) or recognise(head, None)
    rows = [row.cells for row in written.rows(iter(head)) if row.cells is not None and not row.is_blank]
    has_header = (
        not written.names and bool(rows) and (is_header(rows[0]) or column in [cell.strip() for cell in rows[0]])
    )
    names = [name.strip() for name in (rows[0] if has_header else written.names)]
    width = len(names) or max(Counter(map(len, rows)).most_common(1), default=(1, 0))[0]

    def lines(place: int) -> Iterator[str]:
        is_header_due = has_header
        for row in written.rows(read_lines(path)):
            if row.is_blank or row.cells is None or not is_header_due:
                if row.cells is None or (len(row.cells) <= place and not row.is_blank):
                    raise DataError(f"{path}, line {row.line}: {_defect(row, written, place + 1, width)}")
                text = "" if row.is_blank else row.cells[place]
                yield text_of_html(text) if written.is_html else text
            else:
                is_header_due = False

    return TextColumns(names, width, written.other_columns, lines)


def read_head(lines: Iterator[str]) -> list[str]:
    """Return the first lines of a file, from which its format is detected."""
    head: list[str] = []
    room = HEAD_CHARACTERS
    for line in islice(lines, HEAD_LINES):
        head.append(line)
        room -= len(line)
        if room < 0:
            break
    return head


def _no_columns(path: str, head: Sequence[str], first: TableRow, written: TableFormat) -> str:
    separator = _separator(written)
    return (
        f"{display_name(path)}, line {first.line}: {first.problem or f'there is no {separator}'} (the line begins "
        f"{head[first.line - 1][:SHOWN_CHARACTERS]!r}), and none of the first {len(head)} lines has two columns; a row "
        f"of pairs is source, {separator}, target; two line-aligned files are given as source and target instead"
    )


def _pairs(
    path: str, lines: Iterator[str], written: TableFormat, chosen: TwoColumns, width: int
) -> Iterator[SentencePair]:
    source, target, is_header_due, _ = chosen
    least, most = max(source, target) + 1, width if written.has_fixed_width else sys.maxsize
    is_torn = False
    for row in written.rows(lines):
        cells = row.cells
        if not written.is_quoted and cells is not None:
            is_part, is_torn = _torn(cells, width, is_torn)
            if is_part:
                yield SentencePair("", "", f"{path}:{row.line}", defect=_TORN)
                continue
        if is_header_due and cells is not None and not row.is_blank:
            is_header_due = False
        elif cells is not None and least <= len(cells) <= most:
            texts = cells[source], cells[target]
            if written.is_html:
                texts = text_of_html(texts[0]), text_of_html(texts[1])
            yield SentencePair(*texts, f"{path}:{row.line}")
        else:
            defect = None if row.is_blank else _defect(row, written, least, width)
            yield SentencePair("", "", f"{path}:{row.line}", defect=defect)


_TORN = (
    "it is part of a row with a line end in quotation marks, and the first lines of the file do not show that it is "
    "quoted; name it .csv"
)


def _torn(cells: Sequence[str], width: int, was_torn: bool) -> tuple[bool, bool]:
    """Return whether a row of an unquoted table is part of a quoted one, and whether that goes on with the next row.

    Args:
        cells: The cells of the row.
        width: Columns of the other rows.
        was_torn: Whether the row before goes on with this one.
    """
    is_short = len(cells) < width
    if was_torn:
        closes = cells[0].endswith('"') and cells[0].count('"') % 2 == 1
        return closes or is_short, is_short and not closes
    opens = is_short and cells[-1].startswith('"') and cells[-1].count('"') % 2 == 1
    return opens, opens


def _defect(row: TableRow, written: TableFormat, least: int, width: int) -> str:
    """Return the reason why a row that is not blank is no pair."""
    if row.cells is None:
        return row.problem
    count, begins = len(row.cells), f"(the row begins {row.cells[0][:SHOWN_CHARACTERS]!r})"
    if count == 1:
        return f"there is no {_separator(written)} {begins}"
    if count < least:
        return f"it has {count} columns, and number {least} is to be read {begins}"
    return (
        f"it has {count} columns and the others {width}; a text with a {_separator(written)} in it must stand in "
        f"quotation marks {begins}"
    )


def _separator(written: TableFormat) -> str:
    return SEPARATOR_NAMES.get(written.separator, repr(written.separator))
