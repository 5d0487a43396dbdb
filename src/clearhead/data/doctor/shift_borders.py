"""The rows of misaligned blocks that certainly are misaligned, and blocks for which only some of the evidence speaks.

The search tells about where a block begins and ends. Here its rows are read again, with the meanings of both sides
where the encoder is installed. A target is given to another source only where it is certain that it belongs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.code_points import PairBatch
from clearhead.data.doctor.meaning import Meaning
from clearhead.data.doctor.misalignment import CLEAR_MARGIN, MOST_GAIN, MOST_SHIFT, Rows, ShiftedRows, ShiftWeights
from clearhead.errors import DataError
from clearhead.formats import SentencePair

CERTAIN = 4.5
"""Nats that the rows from the border of a block up to a row have to gain together for the row to be certain."""

VERY_CLEAR_GAIN = 40.0
"""Gain in nats, mostly of lengths, with which a block needs little other evidence."""

CHECKED_ROWS = 500
"""Rows at each end of a block that are read again."""


class Borders(NamedTuple):
    """A block whose rows have been compared again."""

    likely: ShiftedRows
    """The rows that are more likely misaligned than not."""
    certain: ShiftedRows
    """Those of them that certainly are."""


def find_borders(
    blocks: Sequence[ShiftedRows],
    pairs: Iterable[SentencePair],
    num_pairs: int,
    weights: ShiftWeights,
    meaning: Meaning | None,
) -> list[Borders | None]:
    """Compare the rows of blocks again, and return the borders of each; None if only some evidence speaks for it.

    Args:
        blocks: The blocks found, in order.
        pairs: All pairs of the corpus.
        num_pairs: Their number.
        weights: The weights of the evidence.
        meaning: Compares meanings as well, if the weights have learned them.

    Raises:
        DataError: If there are fewer pairs by now.
    """
    ends = [0, *(block.start + block.rows for block in blocks)]
    starts = [*(block.start for block in blocks), num_pairs]
    spans = [
        _spans(block, max(end, block.start - MOST_SHIFT), min(start, block.start + block.rows + MOST_SHIFT), num_pairs)
        for block, end, start in zip(blocks, ends, starts[1:], strict=False)
    ]
    is_read = np.zeros(num_pairs, dtype=bool)
    for of_block in spans:
        for first, last in of_block:
            is_read[max(0, first - MOST_SHIFT) : last + MOST_SHIFT] = True
    kept = {place: pair for place, pair in enumerate(islice(pairs, num_pairs)) if is_read[place]}
    if len(kept) < np.count_nonzero(is_read):
        raise DataError("the corpus became shorter while it was read; clean it when nothing writes to its files")
    return [
        _borders(
            block,
            [_Gains.of(kept, *span, block.shift, weights, meaning) for span in of_block],
            has_meaning=meaning is not None,
        )
        for block, of_block in zip(blocks, spans, strict=True)
    ]


class _Gains(NamedTuple):
    """What consecutive rows gain under a shift, in nats."""

    start: int
    sums: NDArray[np.float64]
    """Sums of the gains of all rows before each row, and of all rows."""
    beside_length: NDArray[np.float64]
    """The same sums without the evidence of lengths."""
    of_length: NDArray[np.float64]
    """The same sums of the evidence of lengths alone."""

    @classmethod
    def of(
        cls,
        kept: dict[int, SentencePair],
        start: int,
        end: int,
        shift: int,
        weights: ShiftWeights,
        meaning: Meaning | None,
    ) -> _Gains:
        low, high = min(start, start + shift), max(end, end + shift)
        rows = Rows.of(PairBatch([kept[place] for place in range(low, high)], low).texts, meaning)
        by_chance = weights.by_chance_in(rows, 0, high - low)
        own = weights.evidence(rows, 0, high - low, 0, by_chance)
        here = slice(start - low, end - low)
        there = slice(here.start + shift, here.stop + shift)
        fitting = weights.evidence(rows, here.start, here.stop, shift, by_chance[here])
        features, of_own = (weights.features(rows, here.start, here.stop, by) for by in (shift, 0))
        of_length, *others = features - of_own
        # Both the source and the target leave the sides beside them, one of which may be its own.
        gains = fitting - np.maximum(own[here], own[there])
        return cls(start, _sums(gains), _sums(np.sum(others, axis=0)), _sums(of_length))


def _spans(block: ShiftedRows, low: int, high: int, num_pairs: int) -> list[tuple[int, int]]:
    """Return the rows to be read again, as one span or two."""
    low, high = max(low, -block.shift), min(high, num_pairs - block.shift)
    if block.rows <= 2 * CHECKED_ROWS:
        return [(low, high)]
    return [(low, block.start + CHECKED_ROWS), (block.start + block.rows - CHECKED_ROWS, high)]


def _borders(block: ShiftedRows, gains: Sequence[_Gains], *, has_meaning: bool) -> Borders | None:
    first, last = gains[0], gains[-1]
    if first is last:
        end = int(np.argmax(first.sums - np.minimum.accumulate(first.sums)))
        begin = int(np.argmin(first.sums[: end + 1]))
        rising = falling = first.sums[begin : end + 1]
    else:
        begin, end = int(np.argmin(first.sums)), int(np.argmax(last.sums))
        rising, falling = first.sums[begin:], last.sums[: end + 1]
    likely = first.start + begin, last.start + end
    num_unclear = (
        np.flatnonzero(rising < rising[0] + CERTAIN)[-1],
        np.flatnonzero(falling[::-1] > falling[-1] - CERTAIN)[-1],
    )
    certain = np.array([likely[0] + num_unclear[0], likely[1] - num_unclear[1]])
    places = [np.clip(certain - own.start, 0, own.sums.size - 1) for own in gains]
    speaks = sum(np.diff(own.beside_length[at])[0] for own, at in zip(gains, places, strict=True))
    is_clear = speaks >= CLEAR_MARGIN
    if not has_meaning:
        # Meanings would show it at once. Names and numbers do not alone: two sides may be numbered differently, as the
        # verses of psalms are. Beside very clear lengths a little is enough.
        of_length = sum(np.diff(own.of_length[at])[0] for own, at in zip(gains, places, strict=True))
        is_clear = of_length >= CLEAR_MARGIN and (is_clear or (speaks > 0 and block.gain >= VERY_CLEAR_GAIN))
    if certain[0] >= certain[1] or not is_clear:
        return None
    return Borders(*(replace(block, start=start, rows=end - start) for start, end in (likely, certain.tolist())))


def _sums(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.append(0.0, np.cumsum(np.clip(gains, -MOST_GAIN, MOST_GAIN)))
