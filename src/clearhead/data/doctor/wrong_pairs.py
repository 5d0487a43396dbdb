"""How many pairs of a training text are wrong for learning, as the data doctor sees it, in two lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np

from clearhead.data.doctor.checks import ONE_LANGUAGE_KINDS
from clearhead.data.doctor.cleaning import FIXABLE
from clearhead.data.doctor.examination import BITS, examine
from clearhead.data.doctor.text_report import percent
from clearhead.errors import DataError
from clearhead.formats import SentencePair
from clearhead.text.languages import split_tag

WORDS = {
    "shifted": "beside the translation of another row",
    "swapped": "with source and target exchanged",
    "wrong_language": "with a side in the other side's language",
    "other_language": "with a side in a third language",
    "wrong_script": "with a side in another script",
    "mojibake": "garbled",
}
"""Findings that are wrong for learning, in words. The others are handled in cleaning, or mild."""

LEAST_SHARE = 0.01
"""Share of wrong pairs below which nothing is said. In the clean corpora (docs/data-doctor.md) it is at most 0.0007."""

MOST_SHARE = 0.1
"""Share above which training does not begin unless it is forced to."""

MOST_PAIRS = 1_000_000
"""Most pairs of a corpus that are examined; of more, parts of thousands that follow each other."""

_FIRST_PAIRS = 100
"""First pairs whose sources are looked at for language tags."""


def count_wrong(pairs: Iterable[SentencePair], *, is_multilingual: bool) -> dict[str, Any]:
    """Examine a training text, or a sample of it.

    Args:
        pairs: The pairs.
        is_multilingual: Whether they are of several languages, so that findings of language mean nothing. So are those
            whose first sources all begin with tags, of several languages.

    Returns:
        `examined`, the number of pairs examined; `wrong`, how many of them have a finding of `WORDS`; and `findings`,
        how many have each.
    """
    first = list(islice(pairs := iter(pairs), _FIRST_PAIRS))
    tags = {split_tag(pair.source, ("",))[0] for pair in first}
    is_multilingual = is_multilingual or (len(tags) > 1 and None not in tags)
    pairs = chain(first, pairs)
    kinds = [name for name in WORDS if not (is_multilingual and name in ONE_LANGUAGE_KINDS)]
    result = examine(pairs, kinds=kinds)
    counts = {name: count for name in kinds if (count := result.findings[name].count)}
    is_wrong = result.kinds_of_pairs & sum(BITS[name] for name in kinds) != 0
    return {"examined": result.rows.pairs, "wrong": int(np.count_nonzero(is_wrong)), "findings": counts}


def wrong_share(counted: Mapping[str, Any]) -> float:
    """Return the share of wrong pairs."""
    return float(counted["wrong"] / max(1, counted["examined"]))


def refuse_wrong(counted: Mapping[str, Any], num_pairs: int) -> None:
    """Refuse a training text of `num_pairs` pairs, if more than `MOST_SHARE` of it looks wrong.

    Raises:
        DataError: If so.
    """
    if wrong_share(counted) > MOST_SHARE:
        raise DataError("; ".join(wrong_lines(counted, num_pairs)) + "; if all is as it should be, add --force-data")


def wrong_lines(counted: Mapping[str, Any], num_pairs: int) -> list[str]:
    """Return what is wrong and how much, and what to do about it; nothing if it is next to nothing.

    Args:
        counted: Result of `count_wrong`.
        num_pairs: Number of pairs of the training text.
    """
    share = wrong_share(counted)
    if share < LEAST_SHARE:
        return []
    by_count = sorted(counted["findings"].items(), key=lambda item: -item[1])
    kinds = ", ".join(f"{count:,} {WORDS[name]}" for name, count in by_count)
    of = "" if counted["examined"] >= num_pairs else f" of {counted['examined']:,} that were examined"
    settings = {
        "fix": [name for name, _ in by_count if name in FIXABLE],
        "drop": [name for name, _ in by_count if name not in FIXABLE],
    }
    flags = " ".join(f"--set data.{name}={','.join(names)}" for name, names in settings.items() if names)
    return [
        f"about {percent(share)} of the training pairs look wrong{of}: {kinds}",
        f"`clearhead corpus check` shows them; `clearhead corpus clean` mends or drops them, and so does {flags}",
    ]
