"""JSON form of a translation, as printed by `translate --format jsonl` and returned by the server."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

from clearhead.translation.result import Alternative, Translation

_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Escapes of characters that do not end a line of JSON, but at which many readers split lines (`str.splitlines`)."""


def translation_object(translation: Translation) -> dict[str, object]:
    """Return a translation as a JSON object; its score is null if it is not the model's text."""
    return {
        "source": translation.source,
        **_judged(translation),
        **_quality(translation),
        "tokens": translation.tokens,
        **({} if translation.alignment is None else {"alignment": translation.alignment}),
        "alternatives": [_judged(one) for one in translation.alternatives],
        "truncated": translation.truncated,
        "source_truncated": translation.source_truncated,
        "output_truncated": translation.output_truncated,
        "sentences": [
            {"source": one.source, **_judged(one), **_quality(one), **_memory(one)} for one in translation.sentences
        ],
        "warnings": [flag.kind for flag in translation.warnings],
        "warning_details": {flag.kind: flag.detail for flag in translation.warnings},
        # Only with --terms or --memory:
        **({} if translation.terms is None else {"terms": [asdict(use) for use in translation.terms]}),
        **_memory(translation),
    }


def _quality(translation: Translation) -> dict[str, object]:
    return {} if translation.quality is None else {"quality": round(translation.quality, 4)}


def _memory(translation: Translation) -> dict[str, object]:
    return {} if translation.memory is None else {"memory": asdict(translation.memory)}


def json_line(value: object) -> str:
    r"""Return a value as JSON on one line, whichever characters a reader treats as line ends.

    >>> json_line({"text": "é\u2028"})
    '{"text": "é\\u2028"}'
    """
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)


def digits(score: float | None) -> str:
    """Return a score with the number of digits that `clearhead score` prints; `nan` for a text without one."""
    return f"{math.nan if score is None else score:.6f}"


def _judged(one: Translation | Alternative) -> dict[str, object]:
    """Return a text and its score, with its utility only with --mbr."""
    judged: dict[str, object] = {"text": one.text, "score": None if one.score is None else float(digits(one.score))}
    return judged if one.utility is None else {**judged, "utility": round(one.utility, 4)}
