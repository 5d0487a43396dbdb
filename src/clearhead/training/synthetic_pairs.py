"""Synthetic training pairs, one side of which a model wrote: back-translation and distillation.

Back-translation (Sennrich et al. 2016) makes training pairs from text in the target language alone. A model of the
opposite direction writes the source; the target remains human text. In distillation (Kim and Rush 2016) a small model
learns a large model's translations of the source, which are simpler to learn than human ones.
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
from clearhead.text.languages import LANGUAGE, language_tag
from clearhead.text.placeholders import is_blank
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

MachineSide = Literal["source", "target"]
"""The side of a pair that the model writes."""

REASONS = {
    "blank": "the line or its translation is blank",
    "cut": "the line or its translation was longer than the model's limits",
    "copied": "the translation is the line itself",
    "unwritable": "a side holds a tab, a NUL character or the end of a line, which a .tsv cannot keep",
}
"""Reasons to drop a line, in the order in which they are checked."""

_CHUNK_LINES = 2_000


@dataclass
class SyntheticReport:
    """Counts of lines read, kept and dropped."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def lines(self) -> list[str]:
        """Return the counts as lines to print, without reasons that dropped nothing."""
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
    """Stream pairs of lines and their translations, translated in chunks of 2,000 lines.

    Args:
        translator: Translator; for back-translation, one that translates from the target language.
        lines: Human text, one segment per line. A language tag at the start of a line names the language to translate
            into.
        machine_side: Side of the pair that the translation becomes.
        report: Report in which every line is counted.
        tag: Language tag to put before the source of each pair, for training a model with language tags.
        sampling: Options for random sampling of translations: more varied, and with much text better (Edunov et al.
            2018).
        name: Name of the file the lines come from, for messages.
        on_progress: Called with the number of lines finished.
        **settings: Decoding settings, as for `Translator.translate`.

    Yields:
        Pairs that were not dropped.

    Raises:
        ConfigError: If the tag is not a valid language name.
        ClearheadError: If `Translator.translate` raises it.
    """
    if tag is not None and not re.fullmatch(LANGUAGE, tag):
        raise ConfigError(f"the tag {tag!r} must be the name of a language, such as de, without spaces, '<' and '>'")
    remaining = iter(lines)
    first = 1
    head = "" if tag is None else f"{language_tag(tag)} "
    target_lang = translator.decode_config(settings).target_lang
    while some := list(islice(remaining, _CHUNK_LINES)):
        translations = translator.translate(
            some, sampling=sampling, scores=False, name=name, first=first, on_progress=on_progress, **settings
        )
        parts = translator.pair_encoder.split_sources(some, target_lang)
        for number, (translation, (_, text)) in enumerate(zip(translations, parts, strict=True), start=first):
            report.read += 1
            if reason := _reason_to_drop(translation, text):
                report.dropped[reason] += 1
                continue
            report.kept += 1
            source, target = (translation.text, text) if machine_side == "source" else (text, translation.text)
            yield SentencePair(head + source, target, f"{name}:{number}")
        first += len(some)


def _reason_to_drop(translation: Translation, text: str) -> str | None:
    if not text.strip() or is_blank(translation.text) or any(flag.kind == "empty" for flag in translation.warnings):
        return "blank"
    if translation.truncated:
        return "cut"
    if text.strip() == translation.text.strip():
        return "copied"
    if any(sign in side for side in (text, translation.text) for sign in "\t\0\n\r"):
        return "unwritable"
    return None
