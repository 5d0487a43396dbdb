"""A sentence to translate, as tokens, with its forced target prefix; and batches of sentences of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from clearhead.decoding.repetition import most_times
from clearhead.errors import DeviceError
from clearhead.runtime.lazy import cached_property
from clearhead.runtime.pytorch import imported_pytorch

if TYPE_CHECKING:
    from clearhead.decoding.constraints import Required
    from clearhead.decoding.neighbours import Neighbours


class Prefix(NamedTuple):
    """A forced target prefix; see `token_masks`."""

    tokens: tuple[int, ...]
    """The prefix as the tokenizer encodes it."""
    completions: tuple[tuple[int, ...], ...]
    """For each token, all tokens whose text begins with the rest of the prefix from there on."""
    given: int = 0
    """Number of leading tokens that are control tokens, not text, such as the target language; they cost nothing."""


NO_PREFIX = Prefix((), ())


def given_prefix(given: tuple[int, ...], prefix: Prefix = NO_PREFIX) -> Prefix:
    """Return a prefix with control tokens before its text."""
    alone = tuple((token,) for token in given)
    return Prefix((*given, *prefix.tokens), (*alone, *prefix.completions), len(given)) if given else prefix


@dataclass(frozen=True)
class Sentence:
    """One input of a search."""

    number: int
    source: Sequence[int]
    """Source ids, ended by `eos_id`."""
    max_length: int
    """Maximum target tokens, end token included; more than the prefix has."""
    prefix: Prefix = NO_PREFIX
    draws: range = range(0)
    """Numbers of the samples to draw; empty for a search."""
    required: Required | None = None
    """Required terms of the translation; None if there are none."""
    neighbours: Neighbours | None = None
    """Retrieved pairs that the search consults; None if there are none."""

    @cached_property
    def times_in_source(self) -> int:
        """Largest number of consecutive repetitions of any tokens in the source."""
        return most_times(self.source)


def sentences_of(
    sources: Sequence[Sequence[int]],
    max_lengths: Sequence[int],
    prefixes: Sequence[Prefix] = (),
    required: Sequence[Required] = (),
    neighbours: Sequence[Neighbours | None] = (),
) -> list[Sentence]:
    """Return sentences, numbered in input order.

    Args:
        sources: Source ids of each sentence, ended by `eos_id`.
        max_lengths: Maximum target tokens of each sentence.
        prefixes: Forced target prefix of each sentence; empty if there are none.
        required: Required terms of each sentence; empty if there are none.
        neighbours: Retrieved pairs of each sentence; empty if there are none.
    """
    nothing = [None] * len(sources)
    columns = prefixes or [NO_PREFIX] * len(sources), required or nothing, neighbours or nothing
    return [
        Sentence(number, source, most, prefix, required=forms, neighbours=near)
        for number, (source, most, prefix, forms, near) in enumerate(zip(sources, max_lengths, *columns, strict=True))
    ]


@contextmanager
def advice_on_memory(batch_tokens: int) -> Iterator[None]:
    """Turn an out-of-memory error into a `DeviceError` that suggests a smaller batch.

    Raises:
        DeviceError: If the device ran out of memory.
    """
    try:
        yield
    except _out_of_memory():
        raise DeviceError(
            f"the device ran out of memory; lower decode.batch_tokens ({batch_tokens}), for example "
            f"--batch-tokens {max(1, batch_tokens // 4)}"
        ) from None


def _out_of_memory() -> tuple[type[BaseException], ...]:
    """Return the errors of full memories: PyTorch's too, if it is in use."""
    torch = imported_pytorch()
    return (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)


def length_batches(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices, longest sentence first, of at most `batch_tokens` padded tokens (or one sentence)."""
    batch: list[int] = []
    # Longest first, so that a batch that is too big for the memory fails at once, not after an hour.
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
