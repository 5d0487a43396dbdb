"""Tab-separated pairs, as Tatoeba and manythings.org/anki write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clearhead.errors import DataError
from clearhead.files.streams import open_output
from clearhead.formats.pair import LINE_ENDS, Columns, PairFile, SentencePair, Wanted, refuse_signs
from clearhead.formats.tables.anki import anki_format
from clearhead.formats.tables.columns import is_header
from clearhead.formats.tables.pairs import open_table
from clearhead.formats.tables.rows import TableFormat

__all__ = ["TAB_SEPARATED", "open_tsv", "write_tsv"]

TAB_SEPARATED = TableFormat("tab-separated", "\t", is_quoted=False)
"""Without quoting rules: a quotation mark is text like any other."""


def open_tsv(path: str, wanted: Wanted) -> PairFile:
    """Open a table where a quotation mark is text like any other, for there are no quoting rules.

    A blank line gives an empty pair, so that cleaning counts it.

    Args:
        path: `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Source and target; what is not said is left to the file, see `choose_columns`.

    Raises:
        ConfigError: If the columns that are asked for are not there, or the header leaves open which to take.
        DataError: If no row has a tab, or the file cannot be read as text; streaming raises the latter too.
    """
    return open_table(path, wanted, _recognised)


def _recognised(head: Sequence[str], columns: Columns | None) -> TableFormat:
    return TAB_SEPARATED


def write_tsv(
    path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str] = ("source", "target")
) -> int:
    """Write two columns without a header, and return the number of pairs.

    Args:
        path: `None` or `-` is standard output; `.gz`, `.xz` and `.zst` are compressed.
        pairs: Pairs to write, in order; `origin` is not written.
        languages: Of source and target; they are not written.

    Raises:
        DataError: If a text would not come back as it is (it holds a tab, a line end or NUL, or looks like the
            header of a table in the first row), or the file cannot be written.
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
    """Refuse a first pair that would not be read as one.

    Raises:
        DataError: Saying so.
    """
    row = (pair.source, pair.target)
    if is_header(row) or anki_format(["\t".join(row)]) is not None or pair.source.startswith("\ufeff"):
        raise DataError(
            f"{pair.origin}: {pair.source[:40]!r} and {pair.target[:40]!r}, as the first row of a .tsv, would be read "
            f"as its header; write another pair first, or a .csv, which has a header of its own"
        )
