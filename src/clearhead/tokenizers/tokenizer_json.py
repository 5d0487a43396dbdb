"""Content of a `tokenizer.json`: bounds on what it makes of a text, and control tokens that no text can name."""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any
from unicodedata import normalize

_MOST_PIECES = 1_000_000
"""Maximum number of pieces; those of translation models have 256,000 at most. Loading takes about 20 us for each."""
_MOST_SEPARATORS = 3_000_000
"""Maximum number of commas and colons: those of as many pieces and merges; Gemma 3 with 262,000 pieces has 1.7 million.

They are counted before the file is parsed: parsing two million of them takes about a second and 200 MB."""
_MOST_GROWTH = 64
"""Largest factor by which a file may lengthen a text, counted as in `_growth`."""
_MOST_PREPENDED = 100
"""Maximum number of characters put before a text; real files have one."""
_MOST_NORMALIZED = 256
"""Maximum number of bytes that a character is replaced with by sentencepiece's normalization; NFKC needs 33."""
_MOST_WORD = 1_000
"""Maximum length of a word that WordPiece splits, which takes quadratic time; BERT's limit is 100."""
_MOST_OPTIONAL = 2
"""Maximum number of optional characters in one alternative of a pattern: each multiplies the ways to match."""

_ITEM = re.compile(
    r"\\[pP]\{\^?\w+\}|\\[^\dgkKRX]|\[(?:\\.|[^\]\[\\])+\]|\{\d{1,2}(?:,\d{0,2})?\}|[^\\\[\]{}()]", re.DOTALL
)
"""One character, class or quantifier of a pattern; groups and references are left out."""
_HARMLESS = (r"\s+(?!\S)", r"\s*[\r\n]+", r"^▁+$", "(?i:'s|'t|'re|'ve|'m|'ll|'d)")
"""Parts of published patterns that are linear for other reasons than those checked here."""


def parts(values: Mapping[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    """Yield all components with a type inside some parts of a file, such as `normalizer`."""
    waiting = [values.get(name) for name in names]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            if "type" in part:
                yield part
            waiting += part.values()


def require_few_values(text: str) -> None:
    """Check that a file has about as many values as `require_bounded` allows, before it is parsed.

    Raises:
        ValueError: If it has more.
    """
    if (separators := text.count(",") + text.count(":")) > _MOST_SEPARATORS:
        raise ValueError(f"it has {separators:,} commas and colons, but must have at most {_MOST_SEPARATORS:,}")


def require_bounded(values: Mapping[str, Any]) -> None:
    """Check that a file takes time and memory about linear in the length of a text, and moderate time to load.

    Raises:
        ValueError: Naming the first component that does not.
    """
    model = values.get("model")
    model = model if isinstance(model, dict) else {}
    for name, section in (("vocab", model), ("merges", model), ("added_tokens", values)):
        if isinstance(listed := section.get(name), list | dict) and len(listed) > _MOST_PIECES:
            raise ValueError(f"its {name} has {len(listed):,} entries, but must have at most {_MOST_PIECES:,}")
    if isinstance(longest := model.get("max_input_chars_per_word"), int) and longest > _MOST_WORD:
        raise ValueError(f"its max_input_chars_per_word is {longest:,}, but must be at most {_MOST_WORD:,}")
    for names in (("normalizer", "pre_tokenizer"), ("decoder",)):
        growth = math.prod(max(1.0, _growth(part)) for part in parts(values, *names))
        if growth > _MOST_GROWTH:
            raise ValueError(
                f"its {' and '.join(names)} may make a text {growth:,.0f} times as long; at most {_MOST_GROWTH} times "
                f"are allowed"
            )
        for part in parts(values, *names):
            pattern = part.get("pattern")
            if isinstance(pattern, dict) and isinstance(text := pattern.get("Regex"), str) and not _is_linear(text):
                raise ValueError(
                    f"its {part['type']} has the pattern {text!r:.100}, which may take more than linear time: allowed "
                    f"are characters and classes, of which only the last of an alternative may be repeated without end"
                )
            if len(str(part.get("prepend", ""))) > _MOST_PREPENDED:
                raise ValueError(f"its Prepend has more than {_MOST_PREPENDED} characters")


def without_names(
    values: Mapping[str, Any], control: Collection[int], read: Collection[int] = ()
) -> tuple[str, dict[str, str]]:
    """Return a file in which no text is tokenized as a control token, and the original names by the new ones.

    A model such as Unigram or WordPiece also finds its control tokens in a text, if they are among its pieces. Here
    these pieces have random names, which no text contains. The unknown token keeps its name.

    Args:
        values: The fields of the file.
        control: Ids of control tokens, in addition to the special ones that the file lists.
        read: Ids of special tokens that keep their names, so that a text may contain them.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        model, added = dict(values["model"]), [dict(token) for token in values.get("added_tokens", ())]
        ids = {token["id"] for token in added if token.get("special")} - {*read} | {*control}
        vocabulary = model["vocab"]
        if isinstance(vocabulary, list):  # of Unigram: a piece and its score
            named = {number: vocabulary[number][0] for number in ids if 0 <= number < len(vocabulary)}
            unknown = None if model.get("unk_id") is None else vocabulary[model["unk_id"]][0]
        else:
            named = {number: name for name, number in vocabulary.items() if number in ids}
            unknown = model.get("unk_token")
        hidden = {*named.values(), *(token["content"] for token in added if token["id"] in ids)} - {unknown}
        prefix = secrets.token_hex(16)
        new = {name: f"{prefix}{number}" for number, name in enumerate(sorted(hidden))}
        if isinstance(vocabulary, list):
            model["vocab"] = [*vocabulary]
            for number, name in named.items():
                model["vocab"][number] = [new.get(name, name), vocabulary[number][1]]
        else:
            model["vocab"] = {new.get(name, name): number for name, number in vocabulary.items()}
        if model.get("merges"):
            model["merges"] = [pair for pair in model["merges"] if not _pair_and_join(pair) & hidden]
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(f"its pieces cannot be read ({type(error).__name__}: {error})") from None
    for token in added:
        token["special"] = token["id"] in ids
        token["content"] = new.get(token["content"], token["content"])
    text = json.dumps({**values, "model": model, "added_tokens": added}, ensure_ascii=False)
    return text, {name: original for original, name in new.items()}


def _pair_and_join(pair: str | list[str]) -> set[str]:
    left, right = pair.split(" ", 1) if isinstance(pair, str) else pair
    return {left, right, left + right}


def _growth(part: Mapping[str, Any]) -> float:
    """Return the factor by which a component may lengthen a text.

    Unicode's normalization forms count 1, because they lengthen a text only once; so what they make of a replacement
    is counted with that.
    """
    match part["type"]:
        case "Replace":
            pattern = part.get("pattern")
            replaced = pattern.get("String") if isinstance(pattern, dict) else None
            content = normalize("NFKD", str(part.get("content", "")))
            return len(content) / len(replaced) if isinstance(replaced, str) and replaced else 1 + len(content)
        case "ByteLevel":
            return 2
        case "Precompiled":
            return 16 if _longest_normalized(part) <= _MOST_NORMALIZED else math.inf
        case _:
            return 1


def _longest_normalized(part: Mapping[str, Any]) -> int:
    """Return the length in bytes of the longest replacement in sentencepiece's table: a trie, then strings."""
    table = base64.b64decode(str(part.get("precompiled_charsmap") or ""))
    return max(map(len, table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")))


def _is_linear(pattern: str) -> bool:
    """Return whether a search for a pattern takes linear time: no alternative fails after a repetition without end."""
    for harmless in _HARMLESS:
        pattern = pattern.replace(harmless, "x")
    items = _ITEM.findall(pattern)
    if "".join(items) != pattern:
        return False
    is_repeated, optional, before = False, 0, "|"
    for item, behind in pairwise([*items, "|"]):
        is_quantifier = item in ("*", "+", "?") or (item[0] == "{" and len(item) > 1)
        if item == "|":
            is_repeated, optional = False, 0
        elif is_quantifier:
            if before in ("|", "quantifier"):
                return False
            endless = item in ("*", "+") or item.endswith(",}")
            is_repeated, optional = is_repeated or endless, optional + (not endless)
            if optional > _MOST_OPTIONAL:
                return False
        elif is_repeated and behind not in ("*", "?"):
            return False
        before = "quantifier" if is_quantifier else item
    return True
