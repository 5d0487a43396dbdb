"""Comma-separated pairs (RFC 4180), and the same with semicolons or tabs, as spreadsheets write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from clearhead.corpora.columns import is_header
from clearhead.corpora.pair import PairFile, Wanted
from clearhead.corpora.rows import SEPARATOR_NAMES, TableFormat
from clearhead.corpora.tables import open_table

__all__ = ["csv_format", "open_csv"]

SEPARATORS = (",", ";", "\t")
FIRST_LINE = re.compile(r"sep=([^\"\r])")
"""What Excel reads, and some programs write for it, before the table."""


def open_csv(path: str, wanted: Wanted) -> PairFile:
    """Open a table with quotation marks where they are needed; a row with more columns than the others is no pair.

    Args:
        path: `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Source and target; what is not said is left to the file, see `choose_columns`.

    Raises:
        ConfigError: If the columns that are asked for are not there, or the header leaves open which to take.
        DataError: If no row has a second column, or the file cannot be read as text; streaming raises the latter too.
    """
    return open_table(path, wanted, csv_format)


def csv_format(head: Sequence[str], columns: Sequence[int | str] | None) -> TableFormat:
    """Return the format with the separator that a first line names, or else the one that fits the first rows best.

    It makes the first one a header, at best with the columns that are wanted, and as many as can be alike. Among equals
    it is the one with fewer columns: a comma in both texts of a row makes four of two.
    """
    if head and (said := FIRST_LINE.fullmatch(head[0])):
        name = f"{SEPARATOR_NAMES.get(said[1], repr(said[1]))}-separated"
        return TableFormat(name, said[1], is_quoted=True, has_fixed_width=True, num_preamble=1)
    wanted = {column for column in columns or () if isinstance(column, str)}

    def fitness(written: TableFormat) -> tuple[int, bool, int, int]:
        rows = [row.cells for row in written.rows(iter(head)) if row.cells is not None and not row.is_blank]
        widths = Counter(len(row) for row in rows if len(row) > 1)
        if not widths:
            return 0, False, 0, 0
        width, count = max(widths.items(), key=lambda item: (item[1], -item[0]))
        return len(wanted & {cell.strip() for cell in rows[0]}), is_header(rows[0]), count, -width

    formats = [TableFormat(f"{SEPARATOR_NAMES[sign]}-separated", sign, True, True) for sign in SEPARATORS]
    return max(formats, key=fitness)
