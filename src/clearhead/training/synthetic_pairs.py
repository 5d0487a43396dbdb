"""Synthetic training pairs, one side of which a model wrote: back-translation and distillation.

Back-translation (Sennrich et al. 2016) makes training pairs from text in the target language alone. A model of the
opposite direction writes the source; the target remains human text. In distillation (Kim and Rush 2016) a small model
learns a large model's translations of the source, which are simpler to learn than human ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

from clearhead.decoding import Sampling
from clearhead.errors import ConfigError
from clearhead.files import output_parts
from clearhead.files.output_parts import Part, Shard
from clearhead.formats import SentencePair
from clearhead.text.languages import LANGUAGE, language_tag
from clearhead.text.placeholders import is_blank
from clearhead.translation.documents import origin_of
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
    first: int = 1,
    on_progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> Iterator[SentencePair]:
    """Stream pairs of lines and their translations, translated in chunks of `SHARD_LINES`.

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
        first: Number of the first line in that file.
        on_progress: Called with the number of lines finished.
        **settings: Decoding settings, as for `Translator.translate`.

    Yields:
        Pairs that were not dropped.

    Raises:
        ConfigError: If the tag is not a valid language name.
        ClearheadError: If `Translator.translate` raises it.
    """
    require_tag(tag)
    remaining = iter(lines)
    head = "" if tag is None else f"{language_tag(tag)} "
    target_lang = translator.decode_config(settings).target_lang
    while some := list(islice(remaining, output_parts.SHARD_LINES)):
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


def require_tag(tag: str | None) -> None:
    """Check a language tag to put before sources.

    Raises:
        ConfigError: If it is not a valid language name.
    """
    if tag is not None and not re.fullmatch(LANGUAGE, tag):
        raise ConfigError(f"the tag {tag!r} must be the name of a language, such as de, without spaces, '<' and '>'")


class Synthesizing(NamedTuple):
    """Synthetic pairs as work in shards, see `translation.line_shards.Work`."""

    machine_side: MachineSide
    tag: str | None
    sampling: Sampling | None
    settings: Mapping[str, Any]
    """Decoding settings, as for `Translator.translate`."""
    on_progress: Callable[[int], None] | None = None

    def origin(self, translator: Translator) -> dict[str, Any]:
        """Return everything that determines the pairs, but for the lines."""
        made = origin_of(translator, scores=False, sampling=self.sampling, **self.settings)
        return {**made, "work": self.machine_side, "tag": self.tag}

    def make(self, translator: Translator, shard: Shard) -> Part:
        """Make the pairs of a shard, as rows of source, tab and target."""
        report = SyntheticReport()
        pairs = synthesize(
            translator,
            shard.lines(),
            machine_side=self.machine_side,
            report=report,
            tag=self.tag,
            sampling=self.sampling,
            name=shard.name,
            first=shard.first,
            on_progress=self.on_progress,
            **self.settings,
        )
        rows, origins = [], []
        for pair in pairs:
            rows.append(f"{pair.source}\t{pair.target}\n")
            origins.append(pair.origin)
        return Part("".join(rows), {"origins": origins, "report": asdict(report)})


def pairs_in(parts: Iterable[tuple[Shard, Part]], report: SyntheticReport) -> Iterator[SentencePair]:
    """Yield the pairs of parts, and add the counts of each to a report."""
    for _, part in parts:
        counts = SyntheticReport(**part.details["report"])
        report.read += counts.read
        report.kept += counts.kept
        for reason, count in counts.dropped.items():
            report.dropped[reason] += count
        for row, origin in zip(part.text.split("\n")[:-1], part.details["origins"], strict=True):
            source, _, target = row.partition("\t")
            yield SentencePair(source, target, origin)


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
