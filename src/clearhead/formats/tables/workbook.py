"""Excel workbooks (`.xlsx`): the rows of a sheet, and sentence pairs in two of its columns."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, time
from itertools import islice
from typing import Any

from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.files.streams import display_name
from clearhead.formats.file_text import read_bytes
from clearhead.formats.office_archive import (
    EXCEL_FILE,
    MOST_PART_BYTES,
    opened_archive,
    part_names,
    refuse_bomb,
    usual_name,
)
from clearhead.formats.pair import EMPTY, PairFile, SentencePair, Wanted
from clearhead.formats.tables.columns import choose_columns, is_header
from clearhead.formats.tables.rows import TableRow
from clearhead.runtime.installation import pip_install
from clearhead.text.lines import first_few, segment_on_one_line

HEAD_ROWS = 200
"""Rows from which the columns are detected."""
MOST_ROWS = 1_048_576
"""Maximum number of a row, as in Excel."""
MOST_CELLS = 20_000_000
"""Maximum rows and cells of a workbook, empty ones too: a file of a few bytes can name billions of them."""
_ERRORS = {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A"}
"""Results of formulas that failed, which are no text."""


def open_workbook(path: str, wanted: Wanted) -> PairFile:
    """Open a workbook of sentence pairs; the origin of a pair is its row number.

    The pairs are in the only sheet with text or, if there are several, in the only one whose first row names columns.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Columns of source and target; if not given, the header decides, see `choose_columns`.

    Raises:
        ConfigError: If a requested column does not exist, or the choice of the sheet or the columns is ambiguous.
        DataError: If openpyxl is not installed, no row has a second column, or the file cannot be read, is damaged or
            too large; the latter also during iteration.
    """
    head = list(islice(workbook_rows(path), HEAD_ROWS))
    rows = [row.cells for row in head if row.cells is not None]
    width = max(map(len, rows), default=0)
    if not rows:
        return PairFile(path, EMPTY, ("column 1", "column 2"), iter(()))
    if width < 2:
        raise DataError(
            f"{display_name(path)}, row {head[0].line}: there is one column (the row begins {rows[0][0][:40]!r}), and "
            f"pairs are in two, source and target"
        )
    # Rows end with their last text, so that their lengths say little.
    chosen = choose_columns(path, [[*row, *[""] * (width - len(row))] for row in rows], wanted, separator=" | ")
    words = f"Excel, {width} columns" + (" with a header" if chosen.has_header else "")

    def pairs() -> Iterator[SentencePair]:
        for row in islice(workbook_rows(path), int(chosen.has_header), None):
            source, target = (row.cells[at] if row.cells and at < len(row.cells) else "" for at in chosen[:2])
            yield SentencePair(source, target, f"{path}:{row.line}")

    return PairFile(path, words, chosen.sides(), pairs(), chosen.languages(), not chosen.names)


def workbook_rows(path: str, names_columns: Callable[[Sequence[str]], bool] = is_header) -> Iterator[TableRow]:
    """Yield the rows with text of a workbook's sheet, each up to its last text; formulas count as their results.

    Args:
        path: The file, as for `open_workbook`.
        names_columns: Returns whether a row is a header; it decides between several sheets with text.

    Raises:
        ConfigError: If several sheets have text, and not exactly one of them a header.
        DataError: If openpyxl is not installed, or the file cannot be read, is damaged or too large.
    """
    name = display_name(path)
    with _opened(path, name) as book:
        left = [MOST_CELLS]
        first: dict[Any, TableRow] = {}
        for sheet in book.worksheets:
            if sheet.sheet_state == "visible" and (row := next(_filled_rows(sheet, name, left), None)) is not None:
                first[sheet] = row
        sheets = [*first] if len(first) < 2 else [one for one, row in first.items() if names_columns(row.cells or ())]
        if len(first) > 1 and len(sheets) != 1:
            which = "none of them has" if not sheets else "several of them have"
            raise ConfigError(
                f"{name} has {len(first)} sheets with text: {first_few([repr(sheet.title) for sheet in first], 20)}; "
                f"{which} a first row that names the columns, which would decide; save the sheet to read as .csv, or "
                f"in a file of its own"
            )
        for sheet in sheets:
            yield from _filled_rows(sheet, name, left)


@contextmanager
def _opened(path: str, name: str) -> Iterator[Any]:
    """Open a workbook, and convert every error of reading it to `DataError`."""
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "openpyxl":
            raise
        raise DataError(
            f"{name}: Excel files need openpyxl, which is not installed: {pip_install('excel')}; or save it as .csv"
        ) from None
    data = read_bytes(path)
    with opened_archive(data, name, EXCEL_FILE) as archive:
        for part in part_names(archive, name, EXCEL_FILE).values():
            info = archive.getinfo(part)
            refuse_bomb(info, name)
            # Sheets are read row by row, everything else as a whole.
            if info.file_size > MOST_PART_BYTES and not usual_name(part).startswith("xl/worksheets/"):
                raise DataError(
                    f"{name}: {part} has more than {MOST_PART_BYTES // 1_000_000} MB when unpacked; save the sheet as "
                    f".csv"
                )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it does not read, such as drop-down lists
            book = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
        yield book
    except ClearheadError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        reason = str(error).splitlines() or [type(error).__name__]
        raise DataError(f"{name} is no XLSX file, or is damaged: {reason[0]}") from None


def _filled_rows(sheet: Any, name: str, left: list[int]) -> Iterator[TableRow]:
    """Yield the rows with text of a sheet.

    Args:
        sheet: The sheet.
        name: Name of the file in messages.
        left: Rows and cells that may still be read; is counted down.
    """
    sheet.reset_dimensions()  # the file may state wrong ones
    for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
        left[0] -= 1 + len(values)
        if left[0] < 0 or number > MOST_ROWS:
            raise DataError(
                f"{name}, sheet {sheet.title!r}, row {number:,}: it has more than {MOST_CELLS:,} cells, empty ones "
                f"too, or {MOST_ROWS:,} rows; remove the empty rows and columns, or save it as .csv"
            )
        cells = [_text(value) for value in values]
        while cells and not cells[-1].strip():
            cells.pop()
        if cells:
            yield TableRow(number, cells)


def _text(value: Any) -> str:
    """Return a cell's value as the text that Excel shows without a format."""
    match value:
        case None:
            return ""
        case str():
            return "" if value in _ERRORS else segment_on_one_line(value.replace("_x000D_", ""))
        case bool():
            return str(value).upper()
        case float() if value.is_integer():
            return str(int(value))
        case datetime() if value.time() == time():
            return value.date().isoformat()
    return str(value)
