"""Replay of general text during fine-tuning, against forgetting: the choice of the pairs to mix in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from clearhead.config import Config
from clearhead.data.clean import key_digest, pair_digest
from clearhead.data.hold_out import drawn_rows, side_keys
from clearhead.data.staged_corpus import StagedPairs
from clearhead.formats import SentencePair

MOST_EPOCHS = 30
"""Most epochs with different general text; then it repeats. Few fine-tuning runs last longer."""
MOST_ROWS = 20_000_000
"""Most new pairs in these epochs together, since each epoch is cut into batches before training begins."""
MOST_MIXED_IN = 1_000_000
"""Most general pairs mixed in, unless one epoch needs more: each is tokenized before training begins."""


def mixed_in(
    general: StagedPairs, watched: set[int], valid: StagedPairs, train: StagedPairs, num_new: int, config: Config
) -> tuple[int, Iterator[SentencePair]]:
    """Choose the general pairs to train on, and count the others by reason.

    Args:
        general: All general pairs.
        watched: Rows of the held-out general pairs.
        valid: Validation pairs, possibly from the training text.
        train: The training text, whose pairs are not used a second time.
        num_new: Number of pairs of it in an epoch, repetitions by weight included.
        config: `data.general_share` is the share of general pairs in every epoch.

    Returns:
        The number of epochs without a repeated general pair, and the chosen pairs, in the order of their files.
    """
    share, report = config.data.general_share, general.report
    forbidden = {key for pair in chain(valid, general.of_rows(watched)) for key in side_keys(pair)}
    learned = {pair_digest(pair) for pair in train} if config.data.drop_duplicates and share else set()
    corrected = {key_digest(pair.text) for pair in train} if config.data.corrections else set()
    free = []
    for row, pair in enumerate(general):
        if row in watched:
            report.hold_out()
        elif not forbidden.isdisjoint(side_keys(pair)):
            report.drop_kept("leakage", pair.origin)
        elif pair_digest(pair) in learned or key_digest(pair.text) in corrected:
            report.drop_kept("duplicate", pair.origin)
        else:
            free.append(row)
    wanted = round(num_new * share / (1.0 - share))  # pairs per epoch
    enough_for = min(len(free), MOST_MIXED_IN) // wanted if wanted else 1
    epochs = max(1, min(enough_for, MOST_EPOCHS, MOST_ROWS // num_new))
    chosen = {free[place] for place in drawn_rows(len(free), seed=config.train.seed)[: wanted * epochs].tolist()}
    report.not_needed = len(free) - len(chosen)
    report.kept -= report.not_needed
    return epochs, general.of_rows(chosen)
