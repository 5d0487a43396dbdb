"""Training pairs whose one side a model wrote: back-translation and distillation.

Back-translation (Sennrich et al. 2016) makes more training text of sentences in the target language alone: a model of
the other direction writes the source, and what is learned to be written stays what people wrote. Distillation (Kim and
Rush 2016) lets a small model learn a large one's translations of the source, which are simpler to learn than people's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from clearhead.decoding import Sampling
from clearhead.errors import ConfigError
from clearhead.formats import SentencePair
from clearhead.text.language_tags import LANGUAGE, language_tag
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

__all__ = ["REASONS", "MachineSide", "SyntheticReport", "synthesize"]

MachineSide = Literal["source", "target"]
"""Which side of a pair the model writes."""

REASONS = {
    "blank": "the line or its translation is blank",
    "cut": "the line or its translation was longer than the model's limits",
    "copied": "the translation is the line itself",
    "unwritable": "a side holds a tab, a NUL character or the end of a line, which a .tsv cannot keep",
}
"""Every reason to drop a line, in the order in which they are looked for."""

_CHUNK_LINES = 2_000


@dataclass
class SyntheticReport:
    """Where every line went that was read."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def lines(self) -> list[str]:
        """Return the counts as lines to print; reasons that dropped nothing are left out."""
        dropped = [
            f"{count:>12,} dropped: {reason}, {REASONS[reason]}" for reason, count in self.dropped.items() if count
        ]
        return [f"{self.read:>12,} lines read", f"{self.kept:>12,} kept", *dropped]


def synthesize(
    translator: Translator,
    lines: Iterable[str],
    *,
    machine_side: MachineSide,
    report: SyntheticReport,
    tag: str | None = None,
    sampling: Sampling | None = None,
    name: str = "",
    on_progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> Iterator[SentencePair]:
    """Stream pairs of lines and their translations, some thousand lines at a time.

    Args:
        translator: The model; for back-translation one that translates from the target language.
        lines: Text of people, one segment a line; a language tag at its head says what to translate into.
        machine_side: The side of the pair that the translation becomes.
        report: Counts every line.
        tag: Language whose tag heads the source of each pair, for a model with language tags that will learn from it.
        sampling: Draw translations at random: more varied, and for much text better (Edunov et al. 2018).
        name: File the lines come from, for messages.
        on_progress: Called with the number of lines finished.
        **settings: As of `Translator.translate`.

    Raises:
        ConfigError: If the tag is no name of a language.
        ClearheadError: As `Translator.translate` does.
    """
    if tag is not None and not re.fullmatch(LANGUAGE, tag):
        raise ConfigError(f"the tag {tag!r} must be the name of a language, such as de, without spaces, '<' and '>'")
    remaining = iter(lines)
    first = 1
    head = "" if tag is None else f"{language_tag(tag)} "
    target_lang = translator.decode_config(settings).target_lang
    while some := list(islice(remaining, _CHUNK_LINES)):
        found = translator.translate(
            some, sampling=sampling, scores=False, name=name, first=first, on_progress=on_progress, **settings
        )
        parts = translator.speller.split_sources(some, target_lang)
        for number, (translation, (_, text)) in enumerate(zip(found, parts, strict=True), start=first):
            report.read += 1
            if reason := _reason_to_drop(translation, text):
                report.dropped[reason] += 1
                continue
            report.kept += 1
            source, target = (translation.text, text) if machine_side == "source" else (text, translation.text)
            yield SentencePair(head + source, target, f"{name}:{number}")
        first += len(some)


def _reason_to_drop(translation: Translation, text: str) -> str | None:
    if not text.strip() or not translation.text.strip():
        return "blank"
    if translation.truncated:
        return "cut"
    if text.strip() == translation.text.strip():
        return "copied"
    if any(sign in side for side in (text, translation.text) for sign in "\t\0\n\r"):
        return "unwritable"
    return None
