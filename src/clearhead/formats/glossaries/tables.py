"""Glossaries in tables: tab-separated text, CSV, and Excel workbooks.

A row that names columns, see `names_columns`, is the header; it says where terms, translations and other forms are, and
all other columns are left out. Without a header, the first column is the term and the second its translation; further
columns of a tab-separated file are other forms. Blank rows, and rows that begin with `#`, are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from clearhead.errors import DataError
from clearhead.files.streams import display_name, format_extension, read_lines
from clearhead.formats.glossaries.columns import TermColumns, names_columns, role_of, term_columns
from clearhead.formats.pair import Wanted
from clearhead.formats.tables.csv_files import csv_format
from clearhead.formats.tables.pairs import read_head
from clearhead.formats.tables.rows import SEPARATOR_NAMES, TableRow
from clearhead.formats.tables.tsv import TAB_SEPARATED
from clearhead.formats.tables.workbook import workbook_rows

_OTHER_WORKBOOKS = (".ods", ".xls")
_FORMS_SEPARATOR = "|"
"""Character between several forms in a cell."""


class GlossaryRow(NamedTuple):
    """A term with its translations, as in the file."""

    place: str
    """File and line, separated by a colon."""
    source: str
    forms: list[str]
    """The required translation first; blank ones are none."""
    problem: str = ""
    """Why it is no term."""


def read_table(path: str, wanted: Wanted) -> Iterator[GlossaryRow]:
    """Yield the rows of a table, without its header; with a header, also without rows that lack one of the texts.

    Args:
        path: The file; `.csv` is separated by commas, semicolons or tabs, `.xlsx` is a workbook, and any other file is
            separated by tabs.
        wanted: Languages of terms and translations, for a header with languages.

    Raises:
        ConfigError: If the header leaves the choice of columns ambiguous.
        DataError: If the file cannot be read.
    """
    extension = format_extension(path)
    if extension in _OTHER_WORKBOOKS:
        raise DataError(f"{display_name(path)}: {extension} files are not read; save the sheet as .xlsx or .csv")
    if extension == ".xlsx":
        separator, rows = "", workbook_rows(path, partial(names_columns, wanted=wanted))
    else:
        lines = read_lines(path)
        head = read_head(lines) if extension == ".csv" else []
        written = csv_format(head, None) if extension == ".csv" else TAB_SEPARATED
        separator, rows = written.separator, written.rows(chain(head, lines))
    return _read(path, rows, wanted, separator)


def _read(path: str, rows: Iterable[TableRow], wanted: Wanted, separator: str) -> Iterator[GlossaryRow]:
    columns: TermColumns | None = None
    is_first = True
    for row in rows:
        place, cells = f"{display_name(path)}:{row.line}", row.cells
        if cells is None:
            yield GlossaryRow(place, "", [], row.problem)
            continue
        if row.is_blank or cells[0].startswith("#"):
            continue
        if is_first and names_columns(cells, wanted):
            columns = term_columns(path, cells, [role_of(cell, wanted) for cell in cells], wanted)
        elif columns is not None:
            source, *forms = (cells[at] if at < len(cells) else "" for at in (columns.source, *columns.forms))
            if forms[0].strip():
                yield from (GlossaryRow(place, term, _split(forms)) for term in _split([source]) if term.strip())
        elif len(cells) == 1:
            sign = SEPARATOR_NAMES.get(separator, "second column")
            yield GlossaryRow(place, "", [], f"no {sign}; a line is a term, a {sign}, and its translation")
        else:
            yield GlossaryRow(place, cells[0], _split(cells[1:] if separator == "\t" else cells[1:2]))
        is_first = False


def _split(cells: Iterable[str]) -> list[str]:
    return [form for cell in cells for form in cell.split(_FORMS_SEPARATOR)]
