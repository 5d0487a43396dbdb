"""The report of translations: those to check first, worst first, with the reasons.

The page is one HTML file that needs no other file, no script and no network. It shows a bounded number of segments,
however many were translated, and counts the rest.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape

from clearhead.files import open_output
from clearhead.formats.inline_tags import Tag, tokens
from clearhead.pages import Html, fill, joined
from clearhead.pages.parts import (
    SEVERITY_WEIGHTS,
    bullets,
    filter_rules,
    folded,
    kind_filter,
    long_text,
    paragraph,
    report_page,
)
from clearhead.text.line_statistics import length_ratio
from clearhead.text.quality_flags import FlagKind
from clearhead.translation.documents import TranslatedSegment, document_summary
from clearhead.translation.quality import GOOD_CHRF
from clearhead.translation.result import PROBLEMS, Translation

MOST_SHOWN = 100
"""Segments shown for each reason: the worst."""

_FIRST_SHOWN = 5

MOST_CHARACTERS = 2_000
"""Characters shown of each text; a longer one is cut, and the number left out is shown."""

UNSURE = "unsure"


_REASONS = {
    **PROBLEMS,
    UNSURE: FlagKind("nothing looks wrong; these are what the model is least sure of", "mild"),
}
"""Reasons, in the order of the page."""

_ABOUT_TAGS = (
    "Small codes such as <g1> and <x2/> are no words: they are the places of formatting, links, pictures and the like "
    "in the document."
)
_PARTS = "translation_report_parts.html"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A segment that may be shown."""

    place: str
    source: str
    """Cut if it is long, like `translation`."""
    translation: str
    score_per_token: float | None
    """None if the text is not the model's."""
    quality: float | None
    """None if it was not estimated, or the text is not the model's."""
    length_ratio: float
    details: Mapping[str, str]
    """Details of what was found, by reason."""


class TranslationReport:
    """Collects translations; counts all of them and keeps the worst."""

    def __init__(self) -> None:
        self._files: list[str] = []
        self._counts: Counter[str] = Counter()
        self.num_segments = 0
        """Number of translations so far."""
        self.num_flagged = 0
        """Number of translations with problems so far."""
        self._num_reused = 0
        self._qualities: list[float] = []
        # A min-heap for each reason: the mildest entry comes first and is replaced by a worse one.
        self._worst: defaultdict[str, list[tuple[float, float, int, _Entry]]] = defaultdict(list)

    def add(self, translations: Iterable[tuple[str, Translation]], *, name: str) -> None:
        """Add translations of a file, in order.

        Args:
            translations: Where each is in the file, such as `line 3`, and the scored translation; those reused from a
                memory need no score.
            name: Name of the file.
        """
        for place, translation in translations:
            self.num_segments += 1
            details = translation.problems
            is_reused = translation.memory is not None and translation.memory.is_reused
            self.num_flagged += bool(details)
            self._num_reused += is_reused and not details
            if not details and (translation.score is None or not translation.source.strip()):
                continue  # the model did not translate it
            if translation.quality is not None:
                self._qualities.append(translation.quality)
            entry = _Entry(
                f"{name}, {place}",
                _clipped(translation.source),
                _clipped(translation.text),
                translation.score_per_token,
                translation.quality,
                length_ratio(translation.source, translation.text),
                details or {UNSURE: ""},
            )
            key = (*severity_and_doubt(translation), -self.num_segments, entry)
            for kind in entry.details:
                self._counts[kind] += 1
                kept = self._worst[kind]
                if len(kept) < MOST_SHOWN:
                    heapq.heappush(kept, key)
                else:
                    heapq.heappushpop(kept, key)

    def add_document(self, translated: Sequence[TranslatedSegment], *, name: str, remarks: Sequence[str] = ()) -> None:
        """Add the segments of a document, and its summary.

        Args:
            translated: All its segments, their translations scored.
            name: Name of its file.
            remarks: See `Document.remarks`.
        """
        done = [(each.segment.shown_place, each.translation) for each in translated if each.translation is not None]
        self.add(done, name=name)
        self.add_file(document_summary(translated, name=name))
        for remark in remarks:
            self.add_file(f"{name}: {remark}")

    def add_file(self, words: str) -> None:
        """Add a summary line about a file."""
        self._files.append(words)

    def page(self, title: str) -> str:
        """Return the page as HTML.

        Args:
            title: Name of what was translated.
        """
        worst = {key[2]: key for kept in self._worst.values() for key in kept}
        entries = [entry for *_, entry in sorted(worst.values(), key=lambda key: key[:3], reverse=True)]
        kinds = [kind for kind in _REASONS if self._counts[kind]]
        summary = _summary(self.num_segments, self.num_flagged, self._num_reused, self._qualities)
        answer, dot, more = summary.partition(".")
        return report_page(
            "translation_report.html",
            title=f"Translation report: {title}",
            rules=filter_rules(kinds),
            answer=answer + dot,
            more=more.strip(),
            filter=self._filter(kinds, len(entries)) if entries else Html(),
            note=paragraph(_ABOUT_TAGS) if any(map(_has_tags, entries)) else Html(),
            segments=_segments(entries),
            files=folded("Files", bullets(self._files)),
        )

    def _filter(self, reasons: Iterable[str], num_shown: int) -> Html:
        kinds = {
            kind: (
                _capitalised(_REASONS[kind].meaning),
                "" if kind == UNSURE else _REASONS[kind].severity,
                f"{self._counts[kind]:,}",
                f"{len(self._worst[kind]):,}",
            )
            for kind in reasons
        }
        total = (f"{self.num_segments:,}", f"{num_shown:,}")
        return kind_filter(kinds, total, heads=("Reason", "Severity", "Count", "Shown"))


def severity_and_doubt(translation: Translation) -> tuple[float, float]:
    """Return the sort key of translations to check, the largest first: severity of the problems, and the model's doubt.

    The doubt is 1 minus the quality or, without an estimate, the negative score per token.
    """
    severity = sum(SEVERITY_WEIGHTS[PROBLEMS[kind].severity] for kind in translation.problems)
    doubt = -(translation.score_per_token or 0.0) if translation.quality is None else 1 - translation.quality
    return severity, doubt


@contextmanager
def reporting(path: str | None, title: str) -> Iterator[TranslationReport | None]:
    """Write a report to a file when the block ends; the file is written completely or not at all.

    Args:
        path: Path of the file; None for no report.
        title: Title of the page: the name of what was translated.

    Raises:
        DataError: At the start of the block, if the file cannot be written.
    """
    if path is None:
        yield None
        return
    with open_output(path) as file:
        report = TranslationReport()
        yield report
        file.write(report.page(title))


def _summary(num_segments: int, flagged: int, num_reused: int, qualities: Sequence[float]) -> str:
    if not num_segments:
        return "Nothing was translated."
    # A quality is the share of translations like it with such a chrF, so their sum is the expected number.
    near = (
        f" Of use, most after edits (chrF {GOOD_CHRF:.0f} or more), as far as the model can tell: "
        f"{sum(qualities):,.0f} of {len(qualities):,}."
    )
    reused = f" Reused from a translation memory, and not shown: {num_reused:,}." if num_reused else ""
    return (
        f"{num_segments:,} translated; {flagged:,} of them look wrong.{near if qualities else ''} Those that look "
        f"wrong come first, then what the model is least sure of.{reused}"
    )


def _segments(entries: Sequence[_Entry]) -> Html:
    """Return the segments, of which the first are shown until the reader asks for all, or chooses a reason."""
    parts = [_segment(entry, is_first=number < _FIRST_SHOWN) for number, entry in enumerate(entries)]
    if len(entries) > _FIRST_SHOWN:
        parts.insert(_FIRST_SHOWN, fill(f"{_PARTS}#show_all", count=f"{len(entries):,}"))
    return joined(parts)


def _segment(entry: _Entry, *, is_first: bool) -> Html:
    reasons = joined(
        fill(
            f"{_PARTS}#reason",
            severity=_REASONS[kind].severity,
            meaning=_capitalised(_REASONS[kind].meaning),
            detail=_clipped(f": {detail}" if detail else ""),
        )
        for kind, detail in entry.details.items()
        if kind != UNSURE
    )
    return fill(
        f"{_PARTS}#segment",
        classes=" ".join(f"is-{kind}" for kind in entry.details),
        rest="" if is_first else " rest",
        place=entry.place,
        quality="" if entry.quality is None else f"quality {entry.quality:.2f}, ",
        score="none" if entry.score_per_token is None else f"{entry.score_per_token:.2f}",
        ratio=f"{entry.length_ratio:.2f}",
        reasons=fill(f"{_PARTS}#reasons", items=reasons) if reasons else Html(),
        source=long_text(entry.source, _with_tags),
        translation=long_text(entry.translation, _with_tags),
    )


def _has_tags(entry: _Entry) -> bool:
    return any(isinstance(part, Tag) for text in (entry.source, entry.translation) for part in tokens(text))


def _with_tags(text: str) -> Html:
    """Return a text with the numbered tags of documents set apart from its words."""
    return joined(
        Html(fill(f"{_PARTS}#tag", tag=part).strip()) if isinstance(part, Tag) else Html(escape(part))
        for part in tokens(text)
    )


def _clipped(text: str) -> str:
    more = len(text) - MOST_CHARACTERS
    return text if more <= 0 else f"{text[:MOST_CHARACTERS]} … and {more:,} more characters"


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]
