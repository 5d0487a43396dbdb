"""Checks of translations that a person writes: what looks wrong by the texts alone, without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clearhead.formats.document import FLAG_NOTE, LengthLimit
from clearhead.formats.inline_tags import repaired_tags
from clearhead.text.format_strings import checked_format
from clearhead.text.icu_messages import message_runs
from clearhead.text.lines import first_few
from clearhead.text.quality_flags import MOST_SHOWN, Flag, flags_of_text, merge_flags
from clearhead.translation.documents import (
    TranslatedSegment,
    format_of_segment,
    length_flag,
    length_of,
    on_one_line,
)
from clearhead.translation.result import MISSED_TERMS, PROBLEMS
from clearhead.translation.terminology import Terms, forms_in


class EditChecks:
    """Checks texts in place of the segments of a document.

    Args:
        translated: The segments.
        terms: Terms that translations must use; None if there are none.
    """

    def __init__(self, translated: Sequence[TranslatedSegment], terms: Terms | None) -> None:
        self._segments = [one.segment for one in translated]
        self._terms = terms
        self._has_messages = any(message_runs(segment.text) for segment in self._segments)
        self._in_unit: dict[LengthLimit, list[int]] = {}
        """The segments that have a limit together."""
        for number, segment in enumerate(self._segments):
            if segment.limit is not None:
                self._in_unit.setdefault(segment.limit, []).append(number)

    def flags(self, number: int, text: str, text_of: Callable[[int], str]) -> list[dict[str, str]]:
        """Return what looks wrong with a text in place of a segment, the most damage first.

        Args:
            number: Place of the segment in the document.
            text: The text.
            text_of: Returns the present text of another segment, with which it may share a limit of its length.
        """
        segment = self._segments[number]
        found = [flags_of_text(segment.text, text)] if text.strip() else []
        repairs = repaired_tags(text, segment.text, segment.links)[1]
        details = [first_few(repairs, MOST_SHOWN, "; ")] if repairs else []
        if format := format_of_segment(segment, self._has_messages):
            fixed, problem = checked_format(segment.text, text, format)
            details += [problem] if problem else [f"{format}: write {fixed}"] if fixed != text else []
        found.append([Flag("placeholders", detail) for detail in details])
        if (limit := segment.limit) is not None:
            others = (text_of(other) for other in self._in_unit[limit] if other != number)
            flag = length_flag(limit, length_of(text) + sum(map(length_of, others)))
            found.append([flag] if flag else [])
        problems = {flag.kind: flag.detail for flag in merge_flags(found)}
        missing = [term for term in self.terms(number, text) if not term["found"]]
        if missing:
            problems[MISSED_TERMS] = ", ".join(f"{term['source']} -> {term['target'][0]}" for term in missing)
        return flag_objects(problems)

    def terms(self, number: int, text: str) -> list[dict[str, Any]]:
        """Return the terms of a segment as JSON objects, each with whether a text has one of its forms."""
        if self._terms is None:
            return []
        found = self._terms.found_in(self._segments[number].text)
        return [
            {"source": one.text, "target": [*one.term.forms], "found": bool(form)}
            for one, form in zip(found, forms_in(found, text), strict=True)
        ]


def flag_objects(problems: Mapping[str, str]) -> list[dict[str, str]]:
    """Return problems, as `Translation.problems` has them, as JSON objects."""
    return [
        {"kind": kind, "meaning": PROBLEMS[kind].meaning, "severity": PROBLEMS[kind].severity, "detail": problems[kind]}
        for kind in PROBLEMS
        if kind in problems
    ]


def note_of(flags: Sequence[Mapping[str, str]]) -> str:
    """Return the flags of a translation as notes for readers of the document, one a line."""
    shown = (f"{FLAG_NOTE}, {flag['meaning']}" + (f": {flag['detail']}" if flag["detail"] else "") for flag in flags)
    return "\n".join(map(on_one_line, shown))
