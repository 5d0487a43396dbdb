"""Corpus cleaning: drop unusable pairs and count all by reason; digests that find duplicates and leakage.

Kept text is never altered. Checks apply to the text after its language tag, if it has one.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from clearhead.config import DataConfig
from clearhead.data.first_seen import FirstRows
from clearhead.formats import SKIPS, SentencePair
from clearhead.text.languages import split_tag
from clearhead.text.line_statistics import RATIO_FLOOR

REASONS = {
    "malformed": "the row of its file is no pair",
    **SKIPS,
    "empty": "a side is blank",
    "unknown_tag": "the source starts with a language tag that tokenizer.language_tags does not name",
    "too_many_characters": "a side is longer than data.max_characters",
    "length_ratio": "one side is more than data.max_ratio times as long as the other",
    "duplicate": "the same pair came before",
    "leakage": "a side is in text that is validated on or excluded",
    "too_many_tokens": "a side is longer than data.max_length",
}
"""Reasons to drop a pair, in the order of the checks, with their meaning; others begin with `DOCTOR`."""

DOCTOR = "doctor_"
"""Beginning of the reasons of `data.fix` and `data.drop`, before the name of the finding."""

NUM_EXAMPLES = 3
DIGEST_BYTES = 16
"""Bytes of the digests of texts and pairs."""
BATCH_PAIRS = 1_000
"""Pairs that are compared with all earlier ones at a time."""


@dataclass
class CleaningReport:
    """Counts of all pairs read: kept, held out for validation, or dropped for one reason."""

    read: int = 0
    """Pairs read."""
    kept: int = 0
    """Pairs kept."""
    held_out: int = 0
    """Pairs set aside for validation."""
    not_needed: int = 0
    """Pairs of general text beyond the share that is mixed in."""
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    """Pairs dropped, by reason."""
    examples: dict[str, list[str]] = field(default_factory=lambda: {reason: [] for reason in REASONS})
    """Origins of the first pairs dropped, by reason."""
    mended: dict[str, int] = field(default_factory=dict)
    """Pairs that `data.fix` mended, by finding; most of them are among those kept."""

    def drop(self, reason: str, origin: str) -> None:
        """Count a pair that was just read as dropped."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if len(examples := self.examples.setdefault(reason, [])) < NUM_EXAMPLES:
            examples.append(origin)

    def drop_kept(self, reason: str, origin: str) -> None:
        """Move a pair from the kept to the dropped ones."""
        self.kept -= 1
        self.drop(reason, origin)

    def hold_out(self) -> None:
        """Move a pair from the kept to the held-out ones."""
        self.kept -= 1
        self.held_out += 1

    def drop_held_out(self, others: CleaningReport) -> None:
        """Move held-out pairs that proved unusable to the dropped ones."""
        self.held_out -= sum(others.dropped.values())
        self._add_dropped(others)

    def add(self, following: CleaningReport) -> None:
        """Add the counts of the pairs that follow."""
        for name in ("read", "kept", "held_out", "not_needed"):
            setattr(self, name, getattr(self, name) + getattr(following, name))
        for name, count in following.mended.items():
            self.mended[name] = self.mended.get(name, 0) + count
        self._add_dropped(following)

    def _add_dropped(self, others: CleaningReport) -> None:
        for reason, count in others.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
            self.examples[reason] = [*self.examples.get(reason, ()), *others.examples.get(reason, ())][:NUM_EXAMPLES]

    def check(self) -> None:
        """Check that every pair read is counted.

        Raises:
            AssertionError: If the counts do not add up, which is a bug of ours.
        """
        total = self.kept + self.held_out + self.not_needed + sum(self.dropped.values())
        assert self.read == total, f"{self.read} pairs read, but {total} accounted for: {self}"

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and examples as plain values."""
        values = {**asdict(self), "examples": {reason: origins for reason, origins in self.examples.items() if origins}}
        if not self.not_needed:
            del values["not_needed"]  # only for general text, which few runs have
        if not self.mended:
            del values["mended"]
        return values

    def lines(self, *, held_out_for: str = "validation") -> list[str]:
        """Return the counts as lines to print, without the reasons that dropped nothing.

        Args:
            held_out_for: Purpose of the held-out pairs.
        """
        result = [f"{self.read:>12,} pairs read", f"{self.kept:>12,} kept"]
        if self.held_out:
            result.append(f"{self.held_out:>12,} held out for {held_out_for}")
        if self.not_needed:
            result.append(f"{self.not_needed:>12,} not needed for the share of general text")
        result += [f"{count:>12,} mended: {name}" for name, count in self.mended.items()]
        for reason, count in self.dropped.items():
            if count:
                examples = ", ".join(self.examples[reason])
                words = REASONS.get(reason, "a finding of the data doctor (data.fix, data.drop)")
                result.append(f"{count:>12,} dropped: {reason}, {words} ({examples})")
        return result


def clean(
    pairs: Iterable[SentencePair],
    config: DataConfig,
    *,
    forbidden: set[bytes],
    report: CleaningReport,
    language_tags: Sequence[str] = (),
) -> Iterator[SentencePair]:
    """Yield the pairs to keep, with their language tags split off, and count all pairs in `report`.

    Duplicates are found by digests of 64 bits, in 17 to 34 bytes a pair. Among a hundred million different pairs, one
    is taken for a duplicate in one corpus of 4,000.

    Args:
        pairs: Pairs as read.
        config: The limits.
        forbidden: `key_digest` of every side that must not be trained on.
        report: Counts every pair, as kept or under the first of `REASONS` that applies.
        language_tags: Languages whose tag may start a source line. The tag does not count towards the length, and is
            removed before the check against `forbidden`. If empty, everything is text.
    """
    seen, num_seen, pairs = FirstRows(), 0, iter(pairs)
    while some := [_split(pair, language_tags) for pair in islice(pairs, BATCH_PAIRS)]:
        report.read += len(some)
        reasons = [_unusable(pair, config, language_tags) for pair in some]
        if config.drop_duplicates:
            places = [place for place, reason in enumerate(reasons) if reason is None]
            digests = np.frombuffer(b"".join(pair_digest(some[place])[:8] for place in places), np.uint64)
            for place, earlier in zip(places, seen.add(digests, num_seen).tolist(), strict=True):
                reasons[place] = None if earlier < 0 else "duplicate"
            num_seen += len(places)
        for pair, reason in zip(some, reasons, strict=True):
            if reason is None and forbidden and _is_among(pair, forbidden):
                reason = "leakage"
            if reason is None:
                report.kept += 1
                yield pair
            else:
                report.drop(reason, pair.origin)


def _split(pair: SentencePair, language_tags: Sequence[str]) -> SentencePair:
    language, text = split_tag(pair.source, language_tags)
    return pair if language is None else replace(pair, language=language, text_at=len(pair.source) - len(text))


def _is_among(pair: SentencePair, forbidden: set[bytes]) -> bool:
    return key_digest(pair.text) in forbidden or key_digest(pair.target) in forbidden


def _unusable(pair: SentencePair, config: DataConfig, language_tags: Sequence[str]) -> str | None:
    """Return why a pair is dropped, whatever the others are."""
    if pair.defect is not None:
        return "malformed"
    if pair.skipped is not None:
        return pair.skipped
    source = pair.text
    if not source.strip() or not pair.target.strip():
        return "empty"
    if pair.language is not None and pair.language not in language_tags:
        return "unknown_tag"
    lengths = sorted((len(source), len(pair.target)))
    if lengths[1] > config.max_characters:
        return "too_many_characters"
    if lengths[1] > config.max_ratio * max(lengths[0], RATIO_FLOOR):
        return "length_ratio"
    return None


class _LettersOnly(dict[int, int | None]):
    """Table for `str.translate`, filled on demand: deletes punctuation, space, symbols and controls."""

    def __missing__(self, code: int) -> int | None:
        # Marks are kept: in Thai or Hindi the vowels are marks, and different words would become equal without them.
        kept = code if unicodedata.category(chr(code))[0] in "LMN" else None
        self[code] = kept
        return kept


_LETTERS_ONLY = _LettersOnly()


def normalized_key(text: str) -> str:
    """Return a comparison key that ignores case, width, spacing and punctuation.

    Text without any letter or digit is its own key.

    >>> normalized_key("Ein Hund, der rennt!") == normalized_key("ein  HUND der rennt")
    True
    >>> normalized_key(" :-) ")
    ':-)'
    """
    key = unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS_ONLY)
    return key or text.strip()


def key_digest(text: str) -> bytes:
    """Return a digest of `normalized_key(text)`, for sets of millions."""
    return _digest(normalized_key(text))


def pair_digest(pair: SentencePair) -> bytes:
    """Return a digest of both sides of a pair, unchanged."""
    # The length of the source makes the boundary unambiguous, whatever characters the two sides contain.
    return _digest(f"{len(pair.source)}:{pair.source}{pair.target}")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=DIGEST_BYTES).digest()
