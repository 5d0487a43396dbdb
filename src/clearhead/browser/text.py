"""What a page in a browser needs of a model to read and write text: patterns, facts of training, alignment head."""

from __future__ import annotations

import re
from typing import Any

from clearhead.bundle import Bundle
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.decoding.utf8 import CharacterParts
from clearhead.text import placeholders, sentence_splitting
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.lines import WHITE_SPACE
from clearhead.text.quality_flags import KINDS, USUAL_COPIES
from clearhead.translation.normalization import known_forms

_WORD = r"\p{L}\p{N}_"
_INSIDE = {"w": _WORD, "s": WHITE_SPACE, "d": r"\p{Nd}"}
"""Python's classes of characters, for a set in a pattern of JavaScript, whose own are others."""
_OUTSIDE = {"w": f"[{_WORD}]", "W": f"[^{_WORD}]", "s": f"[{WHITE_SPACE}]", "S": f"[^{WHITE_SPACE}]", "d": r"\p{Nd}"}
_KEPT_ESCAPES = frozenset("bntrfv0123456789")
_SYNTAX = frozenset(r"^$\.*+?()[]{}|/")
"""Characters that JavaScript lets a pattern escape; the flag `u` forbids other escapes."""

_ITEM = (
    r"(?P<named>\(\?P<)|(?P<set>\[\^?\]?(?:\\.|[^\\\]])*\])"
    r"|\\(?:U(?P<wide>[0-9A-Fa-f]{8})|(?P<code>u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})|(?P<escaped>.))"
    r"|(?P<possessive>[*+?}]\+)|(?P<any>\.)|(?P<other>[^\\\[])"
)
_LEFT_OUT = r"(?P<left_out>#[^\n]*|\s)|"
"""What a verbose pattern has for readers alone."""
_IN_SET = re.compile(r"\\(?:U([0-9A-Fa-f]{8})|(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})|(.))|([^\\])", re.DOTALL)


def text_settings(bundle: Bundle, head: AlignmentHead | None = None) -> dict[str, Any]:
    """Return what `pages/web/translator.js` needs of a model beside its vocabulary, as JSON values.

    A page normalizes lines as Python does (`decode.familiar`), since that needs nothing but the line statistics.

    Args:
        bundle: A model with a vocabulary of ours.
        head: The head that aligns words (`translation.alignment.alignment_head`); by default the mean over all heads.

    Returns:
        `patterns`, those of `text.placeholders` and of a list marker, for JavaScript's flag `u`; `localized`, the
        `LOCALIZED_KINDS` of codes; `signs`, how many the vocabulary has; `flags`, the kinds of flags in order;
        `head`; `forms`, the Unicode forms of both sides; `training`, facts of the training lines, or None if they are
        unknown.
    """
    patterns = {**placeholders.patterns(), "list_marker": sentence_splitting.MARKER}
    forms = known_forms(bundle.tokenizer, bundle.line_statistics)
    return {
        "patterns": {name: javascript_pattern(pattern) for name, pattern in patterns.items()},
        "localized": [
            [javascript_pattern(kind.in_source), javascript_pattern(kind.in_translation), kind.is_exact]
            for kind in placeholders.LOCALIZED_KINDS
        ],
        "signs": bundle.tokenizer.num_placeholders,
        "flags": list(KINDS),
        "head": (head or AlignmentHead())._asdict(),
        "forms": {side: form.settings() for side, form in zip(("source", "target"), forms, strict=True)},
        "utf8": _utf8(bundle),
        "training": None if bundle.line_statistics is None else _training(bundle.line_statistics),
    }


def _utf8(bundle: Bundle) -> dict[str, Any]:
    """Return the automaton of `decoding.utf8`: tokens needed in each state, and the next state after each part."""
    parts_of_tokens = bundle.tokenizer.parts_of_characters()
    parts = CharacterParts(parts_of_tokens, bundle.tokenizer.vocab_size)
    following = {token: parts.next_states[:, token].tolist() for token in sorted(parts_of_tokens)}
    return {"needed": parts.needed.tolist(), "next": following}


def _training(lines: LineStatistics) -> dict[str, Any]:
    return {
        "most_tokens": lines.source_tokens.p999,
        "sentences": list(lines.sentences),
        "least_ratio": lines.least_ratio,
        "most_ratio": lines.most_ratio,
        "copies_are_usual": lines.copies >= USUAL_COPIES * lines.lines,
        "rare_cases": list(lines.rare_cases()),
        "drops_stray_space": lines.seldom_has_stray_space(),
        "changes_without_words": lines.changes_without_words(),
        "source_characters": lines.source_characters,
        "target_characters": lines.target_characters,
        "summary": str(lines),
    }


def javascript_pattern(pattern: re.Pattern[str]) -> str:
    r"""Return the source of the same pattern for JavaScript's RegExp with the flag `u`.

    White space, letters and digits are Python's. Possessive quantifiers, which JavaScript lacks, become greedy ones; a
    set that begins with `[^\W` becomes a condition and a letter.

    >>> javascript_pattern(re.compile(r"(?<!\w)\#[^\W\d]++ | \ .", re.VERBOSE))
    '(?<![\\p{L}\\p{N}_])#(?:(?![\\p{Nd}])[\\p{L}\\p{N}_])+| [^\\n]'
    """
    items = (_LEFT_OUT if pattern.flags & re.VERBOSE else "") + _ITEM
    pieces = []
    for item in re.finditer(items, pattern.pattern, re.DOTALL):
        text = item[0]
        match item.lastgroup:
            case "named":
                pieces.append("(?<")
            case "set":
                pieces.append(_set(text))
            case "wide":
                pieces.append(f"\\u{{{int(item['wide'], 16):x}}}")
            case "escaped":
                pieces.append(_escaped(item["escaped"]))
            case "possessive":
                pieces.append(text[0])
            case "left_out":
                pass
            case "any":
                pieces.append(r"[\s\S]" if pattern.flags & re.DOTALL else r"[^\n]")
            case _:
                pieces.append(text)
    return "".join(pieces)


def _set(text: str) -> str:
    """Return a set of characters for JavaScript."""
    if text.startswith(r"[^\W"):
        return f"(?:(?![{_members(text[4:-1])}])[{_WORD}])"
    start = 2 if text.startswith("[^") else 1
    return text[:start] + _members(text[start:-1]) + "]"


def _members(text: str) -> str:
    parts = []
    for wide, code, escaped, plain in _IN_SET.findall(text):
        if wide:
            parts.append(f"\\u{{{int(wide, 16):x}}}")
        elif code:
            parts.append(f"\\{code}")
        elif escaped:
            parts.append(_INSIDE.get(escaped) or (f"\\{escaped}" if escaped in _SYNTAX | {"-", *"nrtfv"} else escaped))
        else:
            parts.append(f"\\{plain}" if plain in "[]" else plain)
    return "".join(parts)


def _escaped(character: str) -> str:
    """Return an escape outside a set for JavaScript."""
    if character in _OUTSIDE:
        return _OUTSIDE[character]
    if character == "Z":
        return "$"
    return f"\\{character}" if character in _KEPT_ESCAPES | _SYNTAX else character
