"""Tab-separated sentence pairs, read and written, as in files of Tatoeba and manythings.org/anki."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clearhead.errors import DataError
from clearhead.files.streams import open_output
from clearhead.formats.pair import LINE_ENDS, Columns, PairFile, SentencePair, Wanted, refuse_signs
from clearhead.formats.tables.anki import anki_format
from clearhead.formats.tables.columns import is_header
from clearhead.formats.tables.pairs import open_table
from clearhead.formats.tables.rows import TableFormat

TAB_SEPARATED = TableFormat("tab-separated", "\t", is_quoted=False)
"""TSV without quoting: a quotation mark is ordinary text."""


def open_tsv(path: str, wanted: Wanted) -> PairFile:
    """Open a TSV file of sentence pairs; there is no quoting, a quotation mark is ordinary text.

    A blank line gives an empty pair, so that cleaning counts it.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Columns of source and target; if not given, the header decides, see `choose_columns`.

    Raises:
        ConfigError: If a requested column does not exist, or the header leaves the choice ambiguous.
        DataError: If no row has a tab, or the file is not readable text; the latter also during iteration.
    """
    return open_table(path, wanted, _recognised)


def _recognised(head: Sequence[str], columns: Columns | None) -> TableFormat:
    return TAB_SEPARATED


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
            a header), or the file cannot be written.
    """
    count = 0
    with open_output(path) as file:
        for pair in pairs:
            refuse_signs(pair, _REFUSED, "a .tsv")
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
