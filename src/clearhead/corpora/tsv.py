"""Tab-separated pairs, as Tatoeba and manythings.org/anki write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clearhead.corpora.pair import Columns, PairFile, SentencePair, Wanted
from clearhead.corpora.rows import TableFormat
from clearhead.corpora.tables import open_table
from clearhead.corpora.text_files import open_output
from clearhead.errors import DataError

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


def write_tsv(path: str | None, pairs: Iterable[SentencePair]) -> int:
    """Write two columns and return the number of pairs.

    Args:
        path: `None` or `-` is standard output; `.gz`, `.xz` and `.zst` are compressed.
        pairs: Pairs to write, in order; `origin` is not written.

    Raises:
        DataError: If a text would not come back as it is (it holds a tab or a line end), or the file cannot be written.
    """
    count = 0
    with open_output(path) as file:
        for pair in pairs:
            for side, text in (("source", pair.source), ("target", pair.target)):
                if bad := next((name for sign, name in _REFUSED.items() if sign in text), None):
                    raise DataError(
                        f"{pair.origin}: the {side} holds a {bad}, which a .tsv cannot keep; "
                        f"replace it, or write two line-aligned files"
                    )
            file.write(f"{pair.source}\t{pair.target}\n")
            count += 1
    return count


_REFUSED = {"\t": "tab", "\n": "line feed", "\r": "carriage return"}
