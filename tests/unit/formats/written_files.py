"""Files and texts that the tests of formats make: written, changed by hand, and changed at random."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from hypothesis import strategies as st

from clearhead.errors import ClearheadError
from clearhead.formats import SentencePair, read_pairs
from clearhead.formats.document import Document, Filling


def written(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def written_lines(path: Path, lines: Iterable[str]) -> str:
    return written(path, "".join(f"{line}\n" for line in lines))


def texts(pairs: Iterable[SentencePair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


def replaced(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def damaged(page: bytes, signs: bytes, most: int = 20) -> Iterator[bytes]:
    """Yield a page a hundred times, with at most so many of its bytes replaced by some of these."""
    chance = random.Random(3)
    for _ in range(100):
        changed = bytearray(page)
        for _ in range(chance.randint(1, most)):
            changed[chance.randrange(len(changed))] = chance.choice(signs)
        yield bytes(changed)


def peak_of_reading(path: str, rows: int) -> int:
    """Return the most memory that reading a file with so many rows takes."""
    tracemalloc.start()
    assert sum(1 for _ in read_pairs([path])) == rows
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def xml_sides(*markup: str) -> st.SearchStrategy[str]:
    """Return texts that XML can hold, and texts of this markup and of what XML escapes."""
    pieces = ["<x1/>", "</g2>", "&amp;", "&#10;", "]]>", "<!--", " ", "\t", "\x85", *markup]
    letters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    return st.one_of(st.text(letters, max_size=11), st.lists(st.sampled_from(pieces)).map("".join))


def filled_after_random_changes(
    sample: str, pieces: Sequence[str], read: Callable[[bytes], Document], end: str = ">"
) -> Iterator[Document]:
    """Change a file at random places, 60 times; yield what a document that can be read is after it is filled.

    Most changes are behind an `end`, as more of them stay well-formed. U+DCFF is the byte FF.
    """
    draw, counts = random.Random("changes"), {"refused": 0, "filled": 0}
    for _ in range(60):
        changed = sample
        for _ in range(draw.randrange(1, 3)):
            at = draw.randrange(len(changed))
            if draw.random() < 0.7:
                at = changed.index(end, min(at, len(changed) - 3)) + 1
            behind = at + draw.choice([0, 0, 0, 1, 20])
            changed = changed[:at] + draw.choice([*pieces, "", sample[at : at + 40]]) + changed[behind:]
        content = changed.encode(errors="surrogateescape")
        try:
            document = read(content)
        except ClearheadError:
            counts["refused"] += 1
            continue
        assert document.filled([None] * len(document.segments)) == content
        again = read(document.filled([Filling(f"é <g1>{one.text}</g2><x1/> & \\") for one in document.segments]))
        assert [one.text for one in again.segments] == [one.text for one in document.segments]
        yield again
        counts["filled"] += 1
    assert min(counts.values()) > 5, counts
