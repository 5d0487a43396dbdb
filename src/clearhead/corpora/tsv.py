"""Tab-separated pairs: source, tab, target; further columns, such as the attribution in Anki's files, are ignored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clearhead.corpora.pair import SentencePair
from clearhead.corpora.text_files import display_name, open_output, read_lines
from clearhead.errors import DataError

__all__ = ["read_tsv", "write_tsv"]


def read_tsv(path: str) -> Iterator[SentencePair]:
    """Stream the first two columns; a quotation mark is text like any other, for there are no quoting rules.

    A blank line gives an empty pair, so that cleaning counts it.

    Args:
        path: `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.

    Raises:
        DataError: If a line has text but no tab, or the file cannot be read as text.
    """
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t", 2)
        if len(columns) >= 2:
            yield SentencePair(columns[0], columns[1], f"{path}:{number}")
        elif not line.strip():
            yield SentencePair("", "", f"{path}:{number}")
        else:
            raise DataError(
                f"{display_name(path)}, line {number}: there is no tab; a line must be source, tab, target "
                f"(the line begins {line[:40]!r})"
            )


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
