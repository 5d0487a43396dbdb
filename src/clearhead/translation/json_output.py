"""A translation as the JSON object that `translate --format jsonl` prints and the server answers, and as its line."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from clearhead.translation.result import Alternative, Translation

__all__ = ["digits", "json_line", "translation_object"]

_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Escapes of what ends no line of JSON, but one of those that many readers cut a text into (`str.splitlines`)."""


def translation_object(translation: Translation) -> dict[str, Any]:
    """Return what a translation is and what is said of it; it has no score only if a memory had it."""
    return {
        "source": translation.source,
        **_judged(translation),
        "tokens": translation.tokens,
        **({} if translation.alignment is None else {"alignment": translation.alignment}),
        "alternatives": [_judged(one) for one in translation.alternatives],
        "truncated": translation.truncated,
        "source_truncated": translation.source_truncated,
        "output_truncated": translation.output_truncated,
        "sentences": [{"source": one.source, **_judged(one), **_memory(one)} for one in translation.sentences],
        "warnings": [flag.kind for flag in translation.warnings],
        "warning_details": {flag.kind: flag.detail for flag in translation.warnings},
        **_asked_for(translation),
    }


def _asked_for(translation: Translation) -> dict[str, Any]:
    """Return what is said only with --terms or --memory."""
    asked: dict[str, Any] = {}
    if translation.terms is not None:
        asked["terms"] = [asdict(use) for use in translation.terms]
    return asked | _memory(translation)


def _memory(translation: Translation) -> dict[str, Any]:
    return {} if translation.memory is None else {"memory": asdict(translation.memory)}


def json_line(value: object) -> str:
    r"""Return a value as JSON that is one line, whatever a reader takes for the end of one.

    >>> json_line({"text": "é\u2028"})
    '{"text": "é\\u2028"}'
    """
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)


def digits(score: float | None) -> str:
    """Return a score in the digits that `clearhead score` prints."""
    assert score is not None
    return f"{score:.6f}"


def _judged(one: Translation | Alternative) -> dict[str, Any]:
    """Return a text and what is said of it: its utility only with --mbr."""
    judged: dict[str, Any] = {"text": one.text, "score": None if one.score is None else float(digits(one.score))}
    return judged if one.utility is None else {**judged, "utility": round(one.utility, 4)}
