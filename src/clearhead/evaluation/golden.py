"""Golden sentences: what a model translated when it was made, and whether it still does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from clearhead.errors import ConfigError
from clearhead.translator import Translator

__all__ = ["check_golden", "make_golden"]

ABSOLUTE_TOLERANCE = 1e-3
RELATIVE_TOLERANCE = 1e-4
"""Scores are sums of float32 numbers; another processor adds them in another order."""


def make_golden(translator: Translator, sources: Sequence[str], count: int = 8) -> list[dict[str, Any]]:
    """Translate a few sentences, spread evenly over the given ones, with the model's own decode settings.

    Args:
        translator: The model as it is now.
        sources: Where the sentences come from; blank and repeated ones are passed over, but not a tag alone.
        count: Sentences wanted; fewer if there are not as many.

    Returns:
        Objects with `source`, `text` and `score`, ready for `save_bundle`.
    """
    distinct = list(dict.fromkeys(source for source in sources if source.strip()))
    number = min(count, len(distinct))
    chosen = [distinct[index * len(distinct) // number] for index in range(number)]
    return [
        {"source": translation.source, "text": translation.text, "score": translation.score}
        for translation in translator.translate(chosen)
    ]


def check_golden(translator: Translator, golden: Sequence[Mapping[str, Any]]) -> list[str]:
    """Translate golden sentences again; return one line for each that came out otherwise, none if all is well.

    Args:
        translator: The model to check.
        golden: Objects with `source`, `text` and `score`, as `read_golden` gives them.
    """
    problems = [
        f"golden sentence {number} is damaged: it must be an object with the texts 'source' and 'text' and the "
        f"number 'score'"
        for number, sentence in enumerate(golden, start=1)
        if not _is_golden(sentence)
    ]
    sound = {number: sentence for number, sentence in enumerate(golden, start=1) if _is_golden(sentence)}
    try:
        translations = translator.translate([sentence["source"] for sentence in sound.values()], name="golden.jsonl")
    except ConfigError as error:  # a sentence that names no language
        return [*problems, str(error)]
    for (number, sentence), now in zip(sound.items(), translations, strict=True):
        where = f"golden sentence {number} ({sentence['source']!r})"
        tolerance = ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(sentence["score"])
        if now.text != sentence["text"]:
            problems.append(f"{where} should read {sentence['text']!r}, but now reads {now.text!r}")
        # Written so that a score that is not a number fails too.
        elif not abs(now.score - sentence["score"]) <= tolerance:
            problems.append(f"{where} should score {sentence['score']:.4f}, but now scores {now.score:.4f}")
    return problems


def _is_golden(sentence: Any) -> bool:
    return (
        isinstance(sentence, Mapping)
        and isinstance(sentence.get("source"), str)
        and isinstance(sentence.get("text"), str)
        and isinstance(sentence.get("score"), int | float)
        and not abs(sentence["score"]) > sys.float_info.max  # a whole number that no float can hold
    )
