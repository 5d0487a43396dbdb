"""Survey of the cleaned training text as a whole: how many pairs look wrong, and the vocabulary learned from it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

from clearhead.config import Config
from clearhead.data.doctor.wrong_pairs import MOST_PAIRS, count_wrong, refuse_wrong
from clearhead.data.staged_corpus import Progress, StagedPairs, with_progress
from clearhead.errors import ConfigError, DataError
from clearhead.runtime.shards import FEWER_PROCESSES, run_shards
from clearhead.text.placeholder_masking import protect_pair, without_signs
from clearhead.tokenizers import Tokenizer, Vocabulary

LEAST_PAIRS = 50_000
"""Pairs of a text of which each part of the survey takes longer than the start of a process."""
PAIRS_LOOKED_AT = 20_000
MOST_LEARNED_FROM = 1_000_000
"""Most pairs that a vocabulary is learned from."""
LEAST_PROTECTED = 0.01
"""Least share of pairs with the same placeholders on both sides for the vocabulary to get placeholder tokens."""
# Fewer bytes cannot fill a vocabulary, which begins with the 256 bytes and a few special tokens.
LEAST_TEXT_BYTES = 300


def survey(
    train: StagedPairs,
    config: Config,
    tokenizer: Vocabulary | None,
    *,
    is_forced: bool,
    on_progress: Progress,
    processes: int,
) -> tuple[dict[str, Any], Vocabulary]:
    """Count the wrong pairs of a training text, and learn its vocabulary, at the same time if there are two processes.

    Args:
        train: The text.
        config: The settings of the vocabulary.
        tokenizer: The vocabulary to use; if not given, one is learned.
        is_forced: Whether text of which much is wrong is taken all the same.
        on_progress: Called about every thousand items, by one process; else once.
        processes: Number of processes at most.

    Returns:
        The counts of wrong pairs, and the vocabulary.

    Raises:
        ConfigError: If the configured vocabulary is too small or larger than the text yields.
        DataError: If the text is too small, or more than `MOST_SHARE` of it looks wrong.
    """
    if tokenizer is not None:
        return _wrong_pairs(train, config, is_forced, on_progress), tokenizer
    workers = 2 if processes > 1 and train.report.kept >= LEAST_PAIRS else 1
    if workers > 1:
        on_progress("looking for wrong pairs, and learning the vocabulary", 0)
        on_progress = _tell_nothing
    parts: list[partial[Any]] = [
        partial(_wrong_pairs, train, config, is_forced, on_progress),
        partial(_learned_tokenizer, train, config, on_progress),
    ]
    # The number of threads decides how the sums of a Unigram vocabulary are rounded, so it is the same in a process.
    with closing(run_shards(_calling, parts, workers=workers, shares_threads=False, advice=FEWER_PROCESSES)) as results:
        wrong, learned = results
    return wrong, learned


def automatic_vocab_size(num_pairs: int) -> int:
    """Return the default vocabulary size for a number of training pairs.

    >>> automatic_vocab_size(29_000)
    8000
    """
    for below, vocab_size in ((15_000, 4_000), (100_000, 8_000), (1_000_000, 16_000)):
        if num_pairs < below:
            return vocab_size
    return 32_000


def _calling() -> Callable[[partial[Any]], Any]:
    return operator.call


def _tell_nothing(stage: str, count: int) -> None:
    """Take the progress of another process, which nobody sees."""


def _wrong_pairs(train: StagedPairs, config: Config, is_forced: bool, on_progress: Progress) -> dict[str, Any]:
    """Return the counts of wrong training pairs.

    Raises:
        DataError: If they are too many, and the preparation is not forced.
    """
    looked_at = with_progress(train.sample(MOST_PAIRS), "looking for wrong pairs", on_progress)
    wrong = count_wrong(looked_at, is_multilingual=bool(config.tokenizer.language_tags))
    if not is_forced:
        refuse_wrong(wrong, train.report.kept)
    return wrong


def _learned_tokenizer(train: StagedPairs, config: Config, on_progress: Progress) -> Tokenizer:
    asked, with_numbers = config.tokenizer, config.decode.protect_numbers
    placeholders = asked.placeholders
    if placeholders is None:
        placeholders = with_numbers or _share_of_protected(train) >= LEAST_PROTECTED

    def sides() -> Iterator[str]:
        for pair in train.sample(MOST_LEARNED_FROM):
            texts = pair.text, pair.target
            yield from map(without_signs, protect_pair(*texts, with_numbers=with_numbers)) if placeholders else texts

    num_bytes = 0
    for side in sides():
        num_bytes += len(side.encode())
        if num_bytes >= LEAST_TEXT_BYTES:
            break
    else:
        raise DataError(
            f"the training text ({num_bytes} bytes) is smaller than the smallest vocabulary "
            f"({LEAST_TEXT_BYTES} bytes and special tokens); give more text"
        )
    tokenizer = Tokenizer.train(
        with_progress(sides(), "learning the vocabulary", on_progress),
        kind=asked.kind,
        vocab_size=asked.vocab_size or automatic_vocab_size(train.report.kept),
        split_digits=asked.split_digits,
        language_tags=asked.language_tags,
        placeholders=placeholders,
    )
    if asked.vocab_size is not None and tokenizer.vocab_size < asked.vocab_size:
        raise ConfigError(
            f"tokenizer.vocab_size ({asked.vocab_size}) is more than the {tokenizer.vocab_size} pieces this corpus "
            f"yields; set it to at most {tokenizer.vocab_size}"
        )
    return tokenizer


def _share_of_protected(train: StagedPairs) -> float:
    """Return the share of pairs, among the first thousands, with the same placeholder on both sides."""
    texts = [(pair.text, pair.target) for pair in islice(train, PAIRS_LOOKED_AT)]
    return sum(protect_pair(*pair) != pair for pair in texts) / max(1, len(texts))
