"""Tab-separated sentence pairs, read and written, as in files of Tatoeba and manythings.org/anki."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clearhead.errors import DataError
from clearhead.files.streams import open_output
from clearhead.formats.pair import LINE_ENDS, Columns, PairFile, SentencePair, Wanted, refuse_signs
from clearhead.formats.tables.anki import anki_format
from clearhead.formats.tables.columns import is_header
from clearhead.formats.tables.pairs import HEAD_LINES, open_table
from clearhead.formats.tables.rows import TableFormat

TAB_SEPARATED = TableFormat("tab-separated", "\t", is_quoted=False)
"""TSV without quoting: a quotation mark is ordinary text."""

QUOTED_TAB_SEPARATED = TableFormat("tab-separated, quoted", "\t", is_quoted=True)
"""TSV as spreadsheets write it: cells with tabs, line ends or quotation marks are quoted (RFC 4180)."""

_CUT_ROW_LINES = 50
"""Lines at the end of a head in which a quoted cell may be cut off."""


def open_tsv(path: str, wanted: Wanted) -> PairFile:
    """Open a TSV file of sentence pairs; a quotation mark is ordinary text unless its first lines show quoting.

    A blank line gives an empty pair, so that cleaning counts it.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Columns of source and target; if not given, the header decides, see `choose_columns`.

    Raises:
        ConfigError: If a requested column does not exist, or the header leaves the choice ambiguous.
        DataError: If no row has a tab, or the file is not readable text; the latter also during iteration.
    """
    return open_table(path, wanted, tsv_format)


def tsv_format(head: Sequence[str], columns: Columns | None = None) -> TableFormat:
    """Return the format of a TSV file: quoted, or with quotation marks as ordinary text.

    It is quoted if all rows, parsed so, have the same number of columns, and if there is a sign of it: a quoted cell
    with doubled quotation marks, or lines of different numbers of columns, since some cells have tabs or line ends.
    """
    if not any('"' in line for line in head):
        return TAB_SEPARATED
    rows = list(QUOTED_TAB_SEPARATED.rows(iter(head)))
    first_problem = next((place for place, row in enumerate(rows) if row.cells is None), len(rows))
    if first_problem < len(rows) and len(head) >= HEAD_LINES and rows[first_problem].line > len(head) - _CUT_ROW_LINES:
        rows = rows[:first_problem]
    if any(row.cells is None for row in rows):
        return TAB_SEPARATED
    widths = {len(row.cells or ()) for row in rows if not row.is_blank}
    if len(widths) != 1 or widths == {1}:
        return TAB_SEPARATED
    is_regular = len({line.count("\t") for line in head if line.strip()}) == 1
    ends = [*(row.line for row in rows[1:]), len(head) + 1]
    of_one_line = (head[row.line - 1] for row, end in zip(rows, ends, strict=False) if end == row.line + 1)
    has_doubled = any(cell.startswith('"') and '""' in cell[1:-1] for line in of_one_line for cell in line.split("\t"))
    return QUOTED_TAB_SEPARATED if has_doubled or not is_regular else TAB_SEPARATED


def write_tsv(
    path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str] = ("source", "target")
) -> int:
    """Write two columns without a header, and return the number of pairs.

    Args:
        path: The file; `None` or `-` is standard output; `.gz`, `.xz` and `.zst` are compressed.
        pairs: Pairs to write, in order; `origin` is not written.
        languages: Source and target language; ignored, TSV has no place for them.

    Raises:
        DataError: If reading would change a text (it contains a tab, a line ending or NUL, or the first row looks like
            a header or the pair as quoted), or the file cannot be written.
    """
    count = 0
    with open_output(path) as file:
        for pair in pairs:
            refuse_signs(pair, _REFUSED, "a .tsv")
            if count < HEAD_LINES and tsv_format([f"{pair.source}\t{pair.target}"]).is_quoted:
                raise DataError(
                    f"{pair.origin}: a side is in quotation marks and has doubled ones; among the first rows of a "
                    f".tsv it would be read as quoted; write a .csv"
                )
            if count == 0:
                _refuse_header(pair)
            file.write(f"{pair.source}\t{pair.target}\n")
            count += 1
    return count


_REFUSED = {"\t": "tab", "\0": "NUL character", **LINE_ENDS}


def _refuse_header(pair: SentencePair) -> None:
    """Raise `DataError` for a first pair that a reader would take for a header.

    Raises:
        DataError: If it looks like a header or begins with a byte order mark.
    """
    row = (pair.source, pair.target)
    if is_header(row) or anki_format(["\t".join(row)]) is not None or pair.source.startswith("\ufeff"):
        raise DataError(
            f"{pair.origin}: {pair.source[:40]!r} and {pair.target[:40]!r}, as the first row of a .tsv, would be read "
            f"as its header; write another pair first, or a .csv, which has a header of its own"
        )
