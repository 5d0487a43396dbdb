"""Golden sentences: a regression test of a model, as translations stored with it.

A model directory is made to be copied. So unless sentences are given, they are made of words of the vocabulary, which
the directory contains anyway, and hold no private text.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TypedDict, TypeGuard

from clearhead.bundle import Bundle
from clearhead.decoding import SearchOptions, cut_sources, decode, given_prefix
from clearhead.errors import ConfigError, ModelError
from clearhead.text.languages import language_tag
from clearhead.tokenizers import Vocabulary
from clearhead.translation.result import Translation
from clearhead.translation.search import Engines
from clearhead.translation.translator import Translator

ABSOLUTE_TOLERANCE = 1e-3
RELATIVE_TOLERANCE = 1e-4
"""Scores are sums of float32 numbers; another processor may add them in another order."""

NUM_GOLDEN = 8
"""Golden sentences made for a model if none are given."""
_CANDIDATES = 48
_WORDS = 4


class GoldenSentence(TypedDict):
    """A sentence and its translation, stored with the model."""

    source: str
    text: str
    score: float
    """`Translation.score`."""


def make_golden(translator: Translator, sources: Sequence[str] | None = None) -> list[GoldenSentence]:
    """Translate a few sentences raw, with the model's own decode settings but in float32.

    In other precisions, PyTorch and each form of the compiled core may add in another order and choose another text.

    Args:
        translator: The model as it is now.
        sources: The sentences; blank and repeated ones are left out, but not a tag alone. If None, many candidates
            are made by `vocabulary_sources`, and the `NUM_GOLDEN` with the most confident translations are taken.
            Of two that are equally good, another processor may choose the other.

    Returns:
        The sentences, ready for `save_bundle`.
    """
    if sources is not None:
        given = list(dict.fromkeys(source for source in sources if source.strip()))
        chosen = translator.translate(given, raw=True, precision="fp32")
    else:
        bundle = translator.bundle
        sources = vocabulary_sources(bundle.tokenizer, _CANDIDATES, is_tagged=bundle.decode.target_lang is None)
        chosen = sorted(translator.translate(sources, raw=True, precision="fp32"), key=_doubt)[:NUM_GOLDEN]
    return [{"source": golden.source, "text": golden.text, "score": _score(golden)} for golden in chosen]


def vocabulary_sources(tokenizer: Vocabulary, count: int, *, is_tagged: bool) -> list[str]:
    """Return sources of a few vocabulary words each, spread evenly over the vocabulary.

    Args:
        tokenizer: The vocabulary.
        count: Number of sources wanted.
        is_tagged: Begin each with a language tag, if the vocabulary has any; the languages take turns.
    """
    pieces = tokenizer.source_pieces(range(tokenizer.source_vocab_size or tokenizer.vocab_size))
    words = [piece for piece in pieces if piece.startswith(" ") and piece.strip().isalpha()]
    if len(words) < count:  # a language without spaces, or few words
        words = [piece for piece in pieces if piece.strip().isalnum()]
    words = words[:: max(1, len(words) // (count * _WORDS))]
    tags = [language_tag(language) + " " for language in tokenizer.language_tags] if is_tagged else []
    texts = ["".join(words[number::count][:_WORDS]).strip() for number in range(min(count, len(words)))]
    return [(tags[number % len(tags)] if tags else "") + text for number, text in enumerate(texts)]


def _score(translation: Translation) -> float:
    assert translation.score is not None  # raw, and scored
    return translation.score


def _doubt(translation: Translation) -> float:
    """Return the negative log-probability per token; infinite if the model did not end the translation itself."""
    return math.inf if translation.output_truncated else -_score(translation) / (len(translation.tokens) + 1)


def check_golden(translator: Translator, golden: Sequence[object]) -> list[str]:
    """Translate golden sentences again; return one line for each whose text or score differs.

    Args:
        translator: The model to check.
        golden: Objects with `source`, `text` and `score`, as returned by `read_golden`.
    """
    sound = {number: sentence for number, sentence in enumerate(golden, start=1) if _is_golden(sentence)}
    problems = [
        f"golden sentence {number} is damaged: it must be an object with the texts 'source' and 'text' and the "
        f"number 'score'"
        for number in range(1, len(golden) + 1)
        if number not in sound
    ]
    try:
        sources = [sentence["source"] for sentence in sound.values()]
        translations = translator.translate(sources, raw=True, precision="fp32", name="golden.jsonl")
    except ConfigError as error:  # a sentence without a language tag
        return [*problems, str(error)]
    for (number, sentence), now in zip(sound.items(), translations, strict=True):
        where = f"golden sentence {number} ({sentence['source']!r})"
        tolerance = ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(sentence["score"])
        if now.text != sentence["text"]:
            problems.append(f"{where} should read {sentence['text']!r}, but now reads {now.text!r}")
        # `not <=`, so that NaN fails too.
        elif not abs(_score(now) - sentence["score"]) <= tolerance:
            problems.append(f"{where} should score {sentence['score']:.4f}, but now scores {_score(now):.4f}")
    return problems


def require_computed_alike(bundle: Bundle, golden: Sequence[GoldenSentence]) -> None:
    """Require that the engine computes what the module itself does, on the translations of golden sentences.

    Args:
        bundle: The model.
        golden: Objects with `source`; of a model without a decoder, none.

    Raises:
        ModelError: Naming the first sentence whose translation has another score by the module.
    """
    if not golden:
        return
    from clearhead.decoding.pytorch.module_engine import ModuleEngine

    tokenizer, config = bundle.tokenizer, bundle.decode.with_changes({"precision": "fp32"})
    texts = [str(sentence["source"]) for sentence in golden]
    parts = tokenizer.split_sources(texts, config.target_lang)
    prefixes = [given_prefix(tokenizer.given(language)) for language, _ in parts]
    begun = max(len(prefix.tokens) for prefix in prefixes)
    ids = cut_sources(bundle.config, config, tokenizer.encode_parts(parts, config.source_lang), begun=begun)
    engine, module = Engines(lambda: bundle.weights, tokenizer).of("fp32"), ModuleEngine(bundle.own_module)
    groups = decode(engine, ids, SearchOptions(config), prefixes=prefixes)
    for text, source, [best, *_], prefix in zip(texts, ids, groups, prefixes, strict=True):
        with module.computing():
            [own] = module.token_log_probs([source], [best.tokens])
        score = float(own[prefix.given :].sum())
        if not abs(score - best.log_prob) <= ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(score):
            raise ModelError(
                f"{type(engine).__name__} computes another model than the module: it finds a translation of {text!r} "
                f"with the score {best.log_prob:.4f}, and the module gives it {score:.4f}; this is a fault of "
                f"clearhead, or of a setting that was added to it (CONTRIBUTING.md)"
            )


def _is_golden(sentence: object) -> TypeGuard[GoldenSentence]:
    return (
        isinstance(sentence, Mapping)
        and isinstance(sentence.get("source"), str)
        and isinstance(sentence.get("text"), str)
        and isinstance(sentence.get("score"), int | float)
        and not abs(sentence["score"]) > sys.float_info.max  # an integer too large for a float
    )
