"""CSV files of sentence pairs (RFC 4180), read and written; and detection of the separator of any CSV table."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from clearhead.errors import DataError
from clearhead.files.streams import open_output
from clearhead.formats.pair import PairFile, SentencePair, Wanted, refuse_signs
from clearhead.formats.tables.columns import is_header
from clearhead.formats.tables.pairs import open_table
from clearhead.formats.tables.rows import SEPARATOR_NAMES, TableFormat

SEPARATORS = (",", ";", "\t")
FIRST_LINE = re.compile(r"sep=([^\"\r])")
"""Separator line before the table, which Excel reads and some programs write."""


def open_csv(path: str, wanted: Wanted) -> PairFile:
    """Open a CSV file of sentence pairs; a row with more columns than the others is a defect.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Columns of source and target; if not given, the header decides, see `choose_columns`.

    Raises:
        ConfigError: If a requested column does not exist, or the header leaves the choice ambiguous.
        DataError: If no row has a second column, or the file is not readable text; the latter also during iteration.
    """
    return open_table(path, wanted, csv_format)


def write_csv(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    """Write two columns as CSV (RFC 4180), with every text in quotation marks, and return the number of pairs.

    Args:
        path: The file; `None` or `-` is standard output; `.gz`, `.xz` and `.zst` are compressed.
        pairs: Pairs to write, in order; `origin` is not written.
        languages: Column names for the header; `source` and `target` are used if they are no known languages.

    Raises:
        DataError: If reading would change a text (it contains a line feed or NUL, or is longer than the csv module's
            limit), or the file cannot be written.
    """
    count = 0
    with open_output(path) as file:
        table = csv.writer(file, quoting=csv.QUOTE_ALL)
        table.writerow(languages if is_header(languages) else ("source", "target"))
        for pair in pairs:
            refuse_signs(pair, {"\n": "line feed", "\0": "NUL character"}, "a .csv")
            if (longest := max(len(pair.source), len(pair.target))) > csv.field_size_limit():
                raise DataError(
                    f"{pair.origin}: a side has {longest:,} characters, and a cell of a .csv is read up to "
                    f"{csv.field_size_limit():,}; split it, or write another format"
                )
            table.writerow((pair.source, pair.target))
            count += 1
    return count


def csv_format(head: Sequence[str], columns: Sequence[int | str] | None) -> TableFormat:
    """Return the format of a CSV file: its separator is named by the first line, or chosen to fit the first rows best.

    The best separator gives a header with the most requested columns, then any header, then rows of equal width that
    take the most lines: a quoted cell of several lines may have another separator in each of them. If several are
    equally good, the one with fewer columns is chosen: a comma in both texts of a row turns two columns into four.
    """
    if head and (said := FIRST_LINE.fullmatch(head[0])):
        name = f"{SEPARATOR_NAMES.get(said[1], repr(said[1]))}-separated"
        return TableFormat(name, said[1], is_quoted=True, has_fixed_width=True, num_preamble=1)
    wanted = {column for column in columns or () if isinstance(column, str)}

    def fitness(written: TableFormat) -> tuple[int, bool, int, int]:
        rows = list(written.rows(iter(head)))
        ends = [*(row.line for row in rows[1:]), len(head) + 1]
        lengths = [(row.cells, end - row.line) for row, end in zip(rows, ends, strict=False) if not row.is_blank]
        parsed = [(cells, length) for cells, length in lengths if cells is not None]
        widths: Counter[int] = Counter()
        for cells, length in parsed:
            if len(cells) > 1:
                widths[len(cells)] += length
        if not widths:
            return 0, False, 0, 0
        width, count = max(widths.items(), key=lambda item: (item[1], -item[0]))
        first = parsed[0][0]
        return len(wanted & {cell.strip() for cell in first}), is_header(first), count, -width

    formats = [TableFormat(f"{SEPARATOR_NAMES[sign]}-separated", sign, True, True) for sign in SEPARATORS]
    return max(formats, key=fitness)
