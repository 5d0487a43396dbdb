"""Pairs on disk as texts, token ids and links: writer and memory-mapped reader of an Arrow file.

A corpus may be larger than memory. How often an epoch contains each pair is counted by the weights of the files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clearhead.errors import DataError
from clearhead.files import os_error_as, require_regular
from clearhead.formats import SentencePair
from clearhead.text.word_links import Link

SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("target", pa.string()),
        ("source_ids", pa.list_(pa.int32())),
        ("target_ids", pa.list_(pa.int32())),
    ]
)
LINKED_SCHEMA = SCHEMA.append(pa.field("links", pa.list_(pa.int32())))
"""Schema with the links of each pair's tokens, flattened: source index, target index, and so on."""
BATCH_ROWS = 4_096
# Arrow counts the bytes of a batch's text in 32 bits; at most 4 bytes a character, this stays far below.
BATCH_CHARACTERS = 16_000_000


class StorePart(NamedTuple):
    """A finished file of pairs that will be appended to another one."""

    path: str
    num_rows: int
    num_linked_rows: int
    num_linked_tokens: int


class StoreWriter:
    """Write pairs to an Arrow file, a few thousand at a time, in constant memory.

    Use as a context manager; the file is complete when the block ends without an error.

    Args:
        path: The file.
        with_links: Whether to store token links.

    Raises:
        DataError: If the file cannot be written.
    """

    def __init__(self, path: str | Path, *, with_links: bool = False) -> None:
        self.path = Path(path)
        self.num_rows = 0
        self.num_linked_rows = 0
        self.num_linked_tokens = 0  # number of linked target tokens
        self._schema = LINKED_SCHEMA if with_links else SCHEMA
        self._columns: tuple[list[Any], ...] = tuple([] for _ in self._schema)
        self._characters = 0

    def __enter__(self) -> Self:
        try:
            self._file = pa.OSFile(str(self.path), "wb")
            self._writer = pa.ipc.new_file(self._file, self._schema)
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {error}") from None
        return self

    def append(
        self, source: str, target: str, source_ids: list[int], target_ids: list[int], links: Sequence[Link] = ()
    ) -> None:
        """Add one pair; both lists of ids end with the end token. Token links are stored if the file has them."""
        values = source, target, source_ids, target_ids, [place for link in links for place in link]
        for column, value in zip(self._columns, values, strict=False):
            column.append(value)
        self.num_rows += 1
        self.num_linked_rows += bool(links)
        self.num_linked_tokens += len({target for _, target in links})
        self._characters += len(source) + len(target)
        if len(self._columns[0]) >= BATCH_ROWS or self._characters >= BATCH_CHARACTERS:
            self._write_batch()

    def as_part(self, path: Path) -> StorePart:
        """Return the file as a part of another one, once it is renamed to `path`."""
        return StorePart(str(path), self.num_rows, self.num_linked_rows, self.num_linked_tokens)

    @property
    def links(self) -> dict[str, int]:
        """Numbers of pairs and of target tokens that have links."""
        return {"pairs": self.num_linked_rows, "target_tokens": self.num_linked_tokens}

    def append_part(self, part: StorePart) -> None:
        """Append the pairs of a file with the same columns."""
        self._write_batch()
        cannot = f"cannot append {part.path} to {self.path}"
        with os_error_as(DataError, cannot), pa.memory_map(str(part.path)) as file:
            reader = pa.ipc.open_file(file)
            for index in range(reader.num_record_batches):
                self._writer.write_batch(reader.get_batch(index))
        self.num_rows += part.num_rows
        self.num_linked_rows += part.num_linked_rows
        self.num_linked_tokens += part.num_linked_tokens

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self._write_batch()
                self._writer.close()
            self._file.close()
        except OSError as problem:
            raise DataError(f"cannot write {self.path}: {problem}") from None

    def _write_batch(self) -> None:
        if not self._columns[0]:
            return
        arrays = [pa.array(column, type=field.type) for column, field in zip(self._columns, self._schema, strict=True)]
        try:
            self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {error}") from None
        for column in self._columns:
            column.clear()
        self._characters = 0


class PairStore:
    """Tokenized pairs by row number, read from disk on demand."""

    source_lengths: ListLengths
    """Tokens of the sources, their end tokens included."""
    target_lengths: ListLengths
    """Tokens of the targets, their end tokens included."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        """Wrap the record batches of a file written by `StoreWriter`; `open` reads them from a path."""
        self._texts = [(batch.column("source"), batch.column("target")) for batch in batches]
        self._source_ids = [_Lists(batch.column("source_ids")) for batch in batches]
        self._target_ids = [_Lists(batch.column("target_ids")) for batch in batches]
        has_links = bool(batches) and "links" in batches[0].schema.names
        self._links = [_Lists(batch.column("links")) for batch in batches] if has_links else None
        self._starts = [0, *accumulate(batch.num_rows for batch in batches)]
        self.source_lengths = ListLengths(self._source_ids, self._starts)
        self.target_lengths = ListLengths(self._target_ids, self._starts)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map a file into memory; only the positions of the texts are read.

        Raises:
            DataError: If the file is missing, damaged, or not a store.
        """
        advice = "run the same command with --fresh to prepare the data again"
        try:
            require_regular(path)
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            if reader.schema not in (SCHEMA, LINKED_SCHEMA):
                raise DataError(f"{path} is not a file of prepared pairs; {advice}")
            return cls([reader.get_batch(index) for index in range(reader.num_record_batches)])
        except FileNotFoundError:
            raise DataError(f"the prepared data {path} is missing; {advice}") from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"the prepared data {path} is damaged ({error}); {advice}") from None

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self._starts[-1]

    def source_ids(self, row: int) -> NDArray[np.int32]:
        """Return the ids of a source, language tag and end token included; a read-only view of the file."""
        chunk, index = self._locate(row)
        return self._source_ids[chunk][index]

    def target_ids(self, row: int) -> NDArray[np.int32]:
        """Return the ids of a target, end token included; a read-only view of the file."""
        chunk, index = self._locate(row)
        return self._target_ids[chunk][index]

    def links(self, row: int) -> NDArray[np.int32] | None:
        """Return the token links of a pair, [links, 2]: source and target index; None if the store has none."""
        if self._links is None:
            return None
        chunk, index = self._locate(row)
        return self._links[chunk][index].reshape(-1, 2)

    @property
    def has_links(self) -> bool:
        """Whether the pairs have token links."""
        return self._links is not None

    def source(self, row: int) -> str:
        """Return the text of a source, as in the corpus."""
        chunk, index = self._locate(row)
        return self._texts[chunk][0][index].as_py()

    def target(self, row: int) -> str:
        """Return the text of a target, as in the corpus."""
        chunk, index = self._locate(row)
        return self._texts[chunk][1][index].as_py()

    def _locate(self, row: int) -> tuple[int, int]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a store of {len(self)} pairs")
        chunk = bisect_right(self._starts, row) - 1
        return chunk, int(row) - self._starts[chunk]


class _Lists:
    """A column of lists as two NumPy views of the mapped file: all values, and the start of each list."""

    def __init__(self, column: pa.ListArray) -> None:
        self.offsets: NDArray[np.int32] = column.offsets.to_numpy(zero_copy_only=True)
        self.values: NDArray[np.int32] = column.values.to_numpy(zero_copy_only=True)
        # A damaged file must be detected here, not by reading beyond the end of the map.
        if (np.diff(self.offsets) < 0).any() or self.offsets[0] < 0 or self.offsets[-1] > self.values.size:
            raise ValueError("token positions are out of order")

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.values[self.offsets[index] : self.offsets[index + 1]]


def store_of_random(count: int, length: int, *, ids: range) -> PairStore:
    """Return pairs of random tokens without text, in memory.

    Args:
        count: Number of pairs.
        length: Tokens of each source and of each target.
        ids: Ids to draw from.
    """
    drawn = np.random.default_rng(1).integers(ids.start, ids.stop, (count, length))
    column = pa.array(list(drawn), type=SCHEMA.field("source_ids").type)
    texts = pa.array([""] * count)
    return PairStore([pa.record_batch([texts, texts, column, column], schema=SCHEMA)])


class ListLengths:
    """Lengths of the lists of a column, read from the mapped file when they are asked for.

    Args:
        columns: The parts of the column.
        starts: First row of each part, and the number of rows.
    """

    def __init__(self, columns: list[_Lists], starts: list[int]) -> None:
        self._columns, self._starts = columns, np.array(starts)

    def __len__(self) -> int:
        """Return the number of lists."""
        return int(self._starts[-1])

    def __getitem__(self, rows: NDArray[np.integer] | slice) -> NDArray[np.int32]:
        """Return the lengths of some lists, in the order of their rows.

        Raises:
            IndexError: If there is no such row.
        """
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        lengths = np.empty(len(rows), dtype=np.int32)
        order = np.argsort(rows, kind="stable")
        ends = np.searchsorted(rows, self._starts, sorter=order)
        if ends[0] or ends[-1] < len(rows):
            raise IndexError(f"a row is not among the {len(self):,} of the column")
        for part in np.flatnonzero(np.diff(ends)):
            places = order[ends[part] : ends[part + 1]]
            offsets, found = self._columns[part].offsets, rows[places] - self._starts[part]
            lengths[places] = offsets[found + 1] - offsets[found]
        return lengths

    def sum(self) -> int:
        """Return the sum of the lengths."""
        return sum(int(column.offsets[-1] - column.offsets[0]) for column in self._columns)


class EpochWeights:
    """Weights of the rows of a store, run-length encoded: `runs` has `[weight, rows]` of rows with the same weight.

    Args:
        of_files: Weights of files, by their paths; 1 for others.
        entries: Entries of the configuration to which files belong, by their paths, if `temper` shall know them; 0 for
            others.
    """

    def __init__(self, of_files: Mapping[str, float], entries: Mapping[str, int]) -> None:
        self._of_files, self._entries = of_files, entries
        self.runs: list[list[Any]] = []
        self._entry_of_run: list[int] = []
        self.num_rows = 0

    @property
    def num_seen(self) -> int:
        """Number of pairs in an epoch, repetitions included."""
        return round(sum(weight * rows for weight, rows in self.runs))

    def add_of(self, pair: SentencePair) -> None:
        """Add a row with the weight of its file."""
        file = pair.origin.rpartition(":")[0]
        self.add(self._of_files.get(file, 1), 1, self._entries.get(file, 0))

    def add(self, weight: float, rows: int, entry: int = 0) -> None:
        """Add rows with a weight."""
        if not self.runs or self.runs[-1][0] != weight or self._entry_of_run[-1] != entry:
            self.runs.append([weight, 0])
            self._entry_of_run.append(entry)
        self.runs[-1][1] += rows
        self.num_rows += rows

    def added(self) -> list[tuple[float, int, int]]:
        """Return the arguments of `add` by which the same rows are added."""
        return [(weight, rows, entry) for (weight, rows), entry in zip(self.runs, self._entry_of_run, strict=True)]

    def temper(self, temperature: float) -> None:
        """Multiply the weights so that an entry of n rows has a share of n ** (1 / temperature), and the sum stays.

        The sum is that without weights (Arivazhagan et al. 2019, section 4.2).
        """
        sizes = Counter[int]()
        for (_, rows), entry in zip(self.runs, self._entry_of_run, strict=True):
            sizes[entry] += rows
        shares = {entry: rows ** (1.0 / temperature) for entry, rows in sizes.items() if rows}
        for run, entry in zip(self.runs, self._entry_of_run, strict=True):
            if run[1]:
                share = self.num_rows * shares[entry] / sum(shares.values())
                run[0] = round(run[0] * share / sizes[entry], 9)  # 1.0000000000000002 would add a pair to every epoch


class RowWeights:
    """The weight of every row, from the runs of `EpochWeights`: whole numbers if all are."""

    def __init__(self, runs: Sequence[Sequence[float]]) -> None:
        weights, counts = zip(*runs, strict=True)
        self._weights = np.array(weights, dtype=np.float64 if any(weight % 1 for weight in weights) else np.int64)
        self._ends = np.cumsum(np.array(counts, dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._ends[-1])

    def __getitem__(self, rows: NDArray[np.integer]) -> NDArray[Any]:
        """Return the weights of some rows."""
        return self._weights[np.searchsorted(self._ends, rows, side="right")]
