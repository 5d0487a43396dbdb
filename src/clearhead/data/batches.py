"""Batching: the pairs of each training step and of a validation, and their tensors (paper section 5.1).

Batches hold pairs of similar length up to a number of target tokens. The content of step n depends only on the seed and
n: not on earlier steps, the machine, or interruptions of the run.

Shapes: B batch, S source length, T target length, L links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.store import PairStore


@dataclass(frozen=True)
class TokenLinks:
    """Word alignment of a batch: links from target tokens to source tokens; many target tokens have none."""

    places: Int64[Tensor, "L 3"]
    """Row, target token and source token of each link."""
    shares: Float[Tensor, " L"]
    """Weight of each link; the links of one target token have equal weights with the sum 1."""

    @property
    def num_target_tokens(self) -> int:
        """Number of target tokens that have links."""
        return round(self.shares.sum(dtype=torch.float64).item())


@dataclass(frozen=True)
class Batch:
    """Padded ids of a batch of pairs."""

    source: Int64[Tensor, "B S"]
    """Source ids, each ending with the end token."""
    target_in: Int64[Tensor, "B T"]
    """Decoder input: the start token, then the target without its end token ("shifted right", figure 1)."""
    target_out: Int64[Tensor, "B T"]
    """Labels: the target, then the end token."""
    num_target_tokens: int
    """Number of target tokens without padding."""
    rows: tuple[int, ...]
    """Rows of the store, in the order of the tensors."""
    copies: tuple[int, ...]
    """Number of each pair among the equal pairs of its step, from 0; above 0 for pairs with a weight alone."""
    links: TokenLinks | None = None
    """Word alignment; None if the store has none."""


class Lengths(Protocol):
    """A number for every pair, such as the tokens of its source: an array, or what a store reads on demand."""

    def __len__(self) -> int:
        """Return the number of pairs."""

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        """Return the numbers of some pairs."""


WINDOW = 2**22
"""Most pairs that are sorted and shuffled together. More need more memory, fewer have more padding."""
BLOCK = 1_024
"""Neighbouring pairs that are dealt to a window together."""


class BatchOrder:
    """The endless sequence of training batches: every pair once an epoch, or as often as its weight.

    Pairs are sorted by target length and then by source length. Equal ones are shuffled anew every epoch, and so is the
    order of the batches. The sorted lengths of the same pairs are the same in every epoch, and therefore so are the
    cuts between batches, and their number.

    A corpus of more pairs than a window has is cut into several of about equal size, each of blocks from all of the
    corpus. They are sorted and shuffled one at a time, in an order that is shuffled anew every epoch, so that the
    memory grows with the number of batches alone, by 8 bytes.

    General text mixed in for several epochs is cut into parts. Each epoch has all of the new text and one part, as one
    window; after the last part the first one is used again.

    Pairs may occur a fraction of a time: of n pairs with the same fraction f, each epoch has the same number, f * n to
    the nearest whole number above 0, spread evenly over the sorted pairs (systematic sampling). The next epoch has
    their neighbours. So in any number of consecutive epochs, the counts of two such pairs differ by at most one.
    Batches are cut for the longest pairs that any epoch has.

    Args:
        source_lengths: Source tokens of every pair.
        target_lengths: Target tokens of every pair.
        batch_tokens: Most target tokens in a batch, padding not counted; a longer pair is a batch of its own.
        seed: Determines the shuffling, together with the epoch.
        epochs: Number of parts of the general text, one for each epoch.
        num_new: Number of pairs of new text, which precede the general text; ignored with one part.
        times: Number of occurrences of each pair in an epoch (of the new text, if general text is mixed in), whole or
            not; once if not given.
        window: Most pairs of a window, repetitions not counted; all if not given.

    Raises:
        ValueError: If there are no pairs.
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths,
        *,
        batch_tokens: int,
        seed: int,
        epochs: int = 1,
        num_new: int = 0,
        times: Lengths | None = None,
        window: int | None = None,
    ) -> None:
        if not (count := len(target_lengths)):
            raise ValueError("there is no pair to make batches of")
        self._source_lengths, self._target_lengths, self._times = source_lengths, target_lengths, times
        self._seed, self._epochs, self._num_pairs, self._num_new = seed, epochs, count, num_new
        blocks = np.arange(-(-count // BLOCK))
        self._parts = [blocks]
        if epochs > 1:
            drawn = _random(seed, _NO_EPOCH).random_raw(count - num_new)
            self._parts = np.array_split(num_new + np.argsort(drawn, kind="stable"), epochs)
        elif window is not None and count > window:
            dealt = np.argsort(_random(seed, _NO_EPOCH).random_raw(blocks.size), kind="stable")
            self._parts = [np.sort(part) for part in np.array_split(dealt, -(-blocks.size // max(1, window // BLOCK)))]
        lengths = (target_lengths[self._rows_of(part)] for part in range(len(self._parts)))
        self._cuts = [_greedy_cuts(np.sort(some), batch_tokens) for some in lengths]
        self._sizes = np.array([len(cuts) - 1 for cuts in self._cuts])  # batches of each part
        self._round_order = self._order = self._batch_order = np.zeros(0, dtype=np.int64)
        self._planned = (-1, -1)  # round and part

    @property
    def batches_per_epoch(self) -> int:
        """Steps of an epoch; with general text mixed in, on average."""
        return round(int(self._sizes.sum()) / self._epochs)

    def rows(self, step: int) -> NDArray[np.int64]:
        """Return the rows of the pairs of a step, counted from 0, in order of target length."""
        number, rest = divmod(step, int(self._sizes.sum()))
        if number != self._planned[0]:
            self._round_order, self._planned = self._parts_of_round(number), (number, -1)
        starts = np.cumsum([0, *self._sizes[self._round_order]])
        place = int(np.searchsorted(starts, rest, side="right")) - 1
        part = int(self._round_order[place])
        if part != self._planned[1]:
            self._plan(number, part)
        batch, cuts = self._batch_order[rest - starts[place]], self._cuts[part]
        return self._order[cuts[batch] : cuts[batch + 1]]

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of batches with the lengths of all batches of the run: every epoch has batches of the same.

        With general text mixed in, the batches of each part. With fractional weights, no epoch has longer targets in
        its batches, but it may have longer sources: see `most_tokens`.
        """
        for part, cuts in enumerate(self._cuts):
            yield from np.split(self._sorted_rows(part), cuts[1:-1])

    def most_tokens(self) -> Iterator[tuple[NDArray[np.integer], NDArray[np.integer]]]:
        """Yield the lengths of `batches`, of sources and targets; no epoch has a longer one in the same place."""
        for part, cuts in enumerate(self._cuts):
            rows = self._sorted_rows(part)
            sources = self._source_lengths[rows] if self._times is None else self._longest_sources(part, rows)
            yield from zip(*(np.split(side, cuts[1:-1]) for side in (sources, self._target_lengths[rows])), strict=True)

    def _sorted_rows(self, part: int) -> NDArray[np.int64]:
        rows = self._rows_of(part)
        return rows[np.argsort(self._keys(rows), kind="stable")]

    def _longest_sources(self, part: int, rows: NDArray[np.int64]) -> NDArray[np.integer]:
        """Return the longest source that any epoch has in the place of each row of the longest targets.

        The key of the pair in a place lies between two keys: of the pair there in epoch 0, and of the one in `rows`.
        """
        first, pairs = self._rows_of(part, epoch=0), self._pairs_of(part)
        keys = self._keys(np.concatenate([first, rows, pairs]))
        low, high, others = np.split(keys, [first.size, first.size + rows.size])
        known, places = np.unique(others, return_index=True)
        sources = np.append(self._source_lengths[pairs[places]], 0)  # a range may end after the last one
        starts, ends = np.searchsorted(known, np.sort(low)), np.searchsorted(known, np.sort(high), side="right")
        return np.maximum.reduceat(sources, np.column_stack([starts, ends]).reshape(-1))[::2]

    def _rows_of(self, part: int, epoch: int | None = None) -> NDArray[np.int64]:
        """Return the rows of a part in an epoch, the repeated ones as often as they occur.

        Args:
            part: Number of the part.
            epoch: Number of the epoch; without it the longest pairs that any epoch has.
        """
        if self._epochs > 1:
            return np.concatenate([self._repeated(np.arange(self._num_new), epoch), self._parts[part]])
        return self._repeated(self._pairs_of(part), epoch)

    def _pairs_of(self, part: int) -> NDArray[np.int64]:
        """Return the rows of all pairs of a part, once each."""
        if self._epochs > 1:
            return np.concatenate([np.arange(self._num_new), self._parts[part]])
        rows = (self._parts[part][:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
        return rows[rows < self._num_pairs]

    def _repeated(self, rows: NDArray[np.int64], epoch: int | None) -> NDArray[np.int64]:
        if self._times is None:
            return rows
        times = self._times[rows]
        whole = np.floor(times).astype(np.int64)
        some = [np.repeat(rows, whole)]
        if not np.issubdtype(times.dtype, np.integer):
            fractions = times - whole
            for fraction in np.unique(fractions[fractions > 0]).tolist():
                alike = rows[fractions == fraction]
                alike = alike[np.argsort(self._keys(alike), kind="stable")]
                some.append(alike[_sampled(alike.size, fraction, epoch)])
        return np.concatenate(some)

    def _parts_of_round(self, number: int) -> NDArray[np.int64]:
        """Return the order of the parts in an epoch or, if they are for several epochs, in as many."""
        count = len(self._parts)
        if self._epochs > 1:
            return np.arange(count)
        return np.argsort(_random(self._seed, number, _NO_PART).random_raw(count), kind="stable")

    def _plan(self, number: int, part: int) -> None:
        key = (number * self._epochs + part, 0) if self._epochs > 1 else (number, part)
        rows = self._rows_of(part, epoch=key[0])
        random = _random(self._seed, *key)
        self._order = rows[np.lexsort((random.random_raw(rows.size), self._keys(rows)))]
        self._batch_order = np.argsort(random.random_raw(int(self._sizes[part])), kind="stable")
        self._planned = number, part

    def _keys(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return _sort_keys(self._source_lengths[rows], self._target_lengths[rows])


def _sampled(count: int, fraction: float, epoch: int | None) -> NDArray[np.int64]:
    """Return the places of a fraction of some items: evenly spread, and in each epoch one further back.

    Each epoch has one place of each of as many intervals; without an epoch, the last places of the intervals.

    >>> [_sampled(5, 0.4, epoch).tolist() for epoch in (0, 1, 2, 3, 4, 5, None)]
    [[0, 2], [1, 4], [0, 3], [2, 4], [1, 3], [0, 2], [2, 4]]
    """
    chosen = max(1, round(fraction * count))
    shift = count - 1 if epoch is None else -epoch * chosen % count
    return (np.arange(chosen) * count + shift) // chosen


_NO_EPOCH = _NO_PART = 2**64 - 1


def _random(seed: int, epoch: int, part: int = 0) -> np.random.Philox:
    # NumPy guarantees that raw Philox output stays the same in every later version, unlike its shuffling.
    key = np.array([seed, epoch], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, part], dtype=np.uint64))


def _sort_keys(source_lengths: NDArray[np.integer], target_lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return sort keys by target length, then by source length: ascending for even target lengths, descending for odd.

    The alternation keeps neighbours similar where the target length changes, which is often the middle of a batch.
    """
    sources, targets = source_lengths.astype(np.int64), target_lengths.astype(np.int64)
    width = int(sources.max()) + 1
    return targets * width + np.where(targets % 2, width - 1 - sources, sources)


def _greedy_cuts(sorted_lengths: NDArray[np.integer], batch_tokens: int) -> NDArray[np.int64]:
    """Return the start of each batch, and the end of the last: each as full as possible, with at least one pair."""
    ends = np.cumsum(sorted_lengths, dtype=np.int64)
    cuts = [0]
    while cuts[-1] < ends.size:
        used = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, used + batch_tokens, side="right"))))
    return np.array(cuts, dtype=np.int64)


def shares(rows: NDArray[np.int64], lengths: Lengths, count: int) -> list[NDArray[np.int64]]:
    """Split the rows of a step into parts of roughly equal target tokens; with few rows, some parts are empty.

    Args:
        rows: Rows of the step, preferably in order of length.
        lengths: Target tokens of every pair of the store.
        count: Number of parts.
    """
    tokens = lengths[rows].astype(np.int64)
    middles = np.cumsum(tokens) - tokens / 2
    return np.split(rows, np.searchsorted(middles, tokens.sum() * np.arange(1, count) / count))


def split(rows: NDArray[np.int64], lengths: Lengths, micro_batch_tokens: int) -> list[NDArray[np.int64]]:
    """Split the rows of a step into micro-batches.

    Args:
        rows: Rows of the step, preferably in order of length.
        lengths: Target tokens of every pair of the store.
        micro_batch_tokens: Most target tokens in a part, padding counted; a longer pair is a part of its own.

    Returns:
        The parts, in order; together they are `rows`.
    """
    cuts, longest = [0], 0
    for position, length in enumerate(lengths[rows].tolist()):
        longest = max(longest, length)
        if position > cuts[-1] and longest * (position + 1 - cuts[-1]) > micro_batch_tokens:
            cuts.append(position)
            longest = length
    return np.split(rows, cuts[1:])


def copy_numbers(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row of a step how many equal ones precede it.

    >>> copy_numbers(np.array([7, 3, 7, 7, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(rows, kind="stable")
    places = np.arange(len(rows))
    starts = np.searchsorted(rows[order], rows[order])  # of the equal rows, sorted
    numbers = np.empty_like(places)
    numbers[order] = places - starts
    return numbers


def collate(
    store: PairStore,
    rows: Sequence[int] | NDArray[np.int64],
    *,
    pad_id: int,
    bos_id: int,
    copies: Sequence[int] | NDArray[np.int64] | None = None,
) -> Batch:
    """Read pairs from the store and pad each side to its longest text.

    Args:
        store: The tokenized pairs.
        rows: Rows of the pairs, in the order of the batch; at least one.
        pad_id: Id of the padding.
        bos_id: Id of the start token of every target.
        copies: Number of each pair among the equal pairs of its step; 0 if not given.
    """
    chosen = tuple(int(row) for row in rows)
    sources = [store.source_ids(row) for row in chosen]
    targets = [store.target_ids(row) for row in chosen]
    shifted = [shifted_right(target, bos_id) for target in targets]
    return Batch(
        source=_padded(sources, pad_id),
        target_in=_padded(shifted, pad_id),
        target_out=_padded(targets, pad_id),
        num_target_tokens=sum(map(len, targets)),
        rows=chosen,
        copies=(0,) * len(chosen) if copies is None else tuple(int(copy) for copy in copies),
        links=_token_links([store.links(row) for row in chosen]),
    )


def shifted_right(target: NDArray[np.integer], bos_id: int) -> NDArray[np.integer]:
    """Return decoder input: the start token, then the target without its end token (figure 1)."""
    return np.concatenate(([bos_id], target[:-1]))


def _token_links(links: Sequence[NDArray[np.int32] | None]) -> TokenLinks | None:
    known = [some for some in links if some is not None]
    if not known:  # a store has links for all of its rows, or none
        return None
    places = np.concatenate(
        [np.column_stack((np.full(len(some), row), some[:, ::-1])) for row, some in enumerate(known)]
    )
    _, target, counts = np.unique(places[:, :2], axis=0, return_inverse=True, return_counts=True)
    shares = 1.0 / counts[target.reshape(-1)]
    return TokenLinks(torch.from_numpy(places.astype(np.int64)), torch.from_numpy(shares.astype(np.float32)))


def _padded(ids: Sequence[NDArray[np.integer]], pad_id: int) -> Int64[Tensor, "B L"]:
    padded = np.full((len(ids), max(map(len, ids))), pad_id, dtype=np.int64)
    for row, values in enumerate(ids):
        padded[row, : len(values)] = values
    return torch.from_numpy(padded)


def valid_batches(store: PairStore, batch_tokens: int, *, pad_id: int, bos_id: int) -> Iterator[Batch]:
    """Yield batches of every pair of a store once, in a fixed order.

    Args:
        store: Validation pairs.
        batch_tokens: Most target tokens in a batch, padding counted; a longer pair is a batch of its own.
        pad_id: Id of the padding.
        bos_id: Id of the start token of every target.
    """
    order = np.lexsort((store.source_lengths[:], store.target_lengths[:]))
    for rows in split(order, store.target_lengths, batch_tokens):
        yield collate(store, rows, pad_id=pad_id, bos_id=bos_id)
