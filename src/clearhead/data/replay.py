"""General text, which a run that starts from a model must not unlearn: what of it is mixed in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from clearhead.config import Config
from clearhead.data.clean import pair_digest
from clearhead.data.hold_out import drawn_rows, side_keys
from clearhead.data.spool import StagedPairs
from clearhead.formats import SentencePair

__all__ = ["mixed_in", "rows_of"]

MOST_EPOCHS = 30
"""General text is mixed in for so many epochs; then it comes again. Few runs that start from a model make more."""
MOST_ROWS = 20_000_000
"""New pairs of these epochs together: each epoch is cut into batches before training begins."""
MOST_MIXED_IN = 1_000_000
"""General pairs that are mixed in, if one epoch does not take more: each is spelled before training begins."""


def mixed_in(
    general: StagedPairs, watched: set[int], valid: StagedPairs, train: StagedPairs, num_new: int, config: Config
) -> tuple[int, Iterator[SentencePair]]:
    """Choose the general pairs that are learned from, and count what becomes of the rest.

    Args:
        general: All of them.
        watched: Rows of those that are held out.
        valid: Validation pairs, which may be of the training text.
        train: The training text, whose pairs are not learned a second time.
        num_new: Pairs of it in an epoch, as often as their weights say.
        config: `data.general_share` is the share of general pairs in every epoch.

    Returns:
        How many epochs they are enough for without one that comes twice, and they themselves, as their files have them.
    """
    share, report = config.data.general_share, general.report
    forbidden = {key for pair in chain(valid, rows_of(general, watched)) for key in side_keys(pair)}
    learned = {pair_digest(pair) for pair in train} if config.data.drop_duplicates and share else set()
    free = []
    for row, pair in enumerate(general):
        if row in watched:
            report.hold_out()
        elif not forbidden.isdisjoint(side_keys(pair)):
            report.drop_kept("leakage", pair.origin)
        elif pair_digest(pair) in learned:
            report.drop_kept("duplicate", pair.origin)
        else:
            free.append(row)
    wanted = round(num_new * share / (1.0 - share))  # in an epoch
    enough_for = min(len(free), MOST_MIXED_IN) // wanted if wanted else 1
    epochs = max(1, min(enough_for, MOST_EPOCHS, MOST_ROWS // num_new))
    chosen = {free[place] for place in drawn_rows(len(free), seed=config.train.seed)[: wanted * epochs]}
    report.not_needed = len(free) - len(chosen)
    report.kept -= report.not_needed
    return epochs, rows_of(general, chosen)


def rows_of(pairs: Iterable[SentencePair], rows: set[int]) -> Iterator[SentencePair]:
    """Return the pairs of some rows, in order."""
    return (pair for row, pair in enumerate(pairs) if row in rows)
