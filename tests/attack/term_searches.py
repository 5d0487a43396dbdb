"""Attack: searches with a prefix, placeholders and terms together; every translation has all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from string import punctuation
from typing import Any
from unicodedata import name

from harness import Attack, Campaign, Case, Outcome, judged
from materials import ENGLISH, GERMAN, make_bundle

CODES = ("%s", "%1$d", "{name}", "{0}", "$HOME", "https://a.example/b")
LINES = 10
"""Lines of one case, each with a prefix, codes and terms of its own."""
ROOM = 40
"""Tokens beyond the source's: none of the lines is cut off before its terms."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Translate ten lines in every case."""
    for_each = min(LINES, campaign.count)
    for number in campaign.numbers(for_each):
        choose = campaign.choose(number)
        how: dict[str, Any] = choose.choice(
            ({"beam_size": 1}, {"beam_size": 3}, {"beam_size": 4, "num_best": 3}, {"beam_size": 3, "plain": True})
        )
        arguments = {"lines": for_each, "how": how, "seed": choose.random()}
        yield Case(number, f"{how}", "term_searches:attack", arguments, seconds=120.0)


def attack(lines: int, how: dict[str, Any], seed: float) -> list[dict[str, str]]:
    """Translate lines with prefixes, codes and terms; runs in a child."""
    from clearhead.translation.terminology import Terms, term_of
    from clearhead.translation.translator import Translator

    choose = Random(seed)
    bundle = make_bundle("plain", choose.randrange(99), placeholders=True, output_bias=True)
    _write_words(bundle, ending=choose.choice((0.0, 5.0, 50.0)))
    translator = Translator(bundle)
    results = []
    for _ in range(lines):  # by itself: terms are those of all lines of a call
        source, prefix, terms = _line(choose, has_terms="plain" not in how)  # which have no plain form
        given = Terms([term_of(*one) for one in terms.items()]) if terms else None
        [found] = translator.translate([source], prefix=prefix, terms=given, extra_length=ROOM, end_loops=False, **how)
        texts = [found.text, *(one.text for one in found.alternatives)]
        trouble = next(filter(None, (_missing(text, source, prefix, terms) for text in texts)), "")
        detail = f"{source!r}, prefix {prefix!r}, terms {terms}: {trouble}"
        results.append({"outcome": Outcome.wrong if trouble else Outcome.works, "detail": detail})
    return results


def _write_words(bundle: Any, ending: float) -> None:
    """Let a model write no signs, which would make other codes, such as paths, of its words; and end early or late."""
    import torch

    signs = [number for number, name in enumerate(bundle.tokenizer.tokens()) if set(name) & set(punctuation)]
    with torch.no_grad():
        bundle.model.output_proj.bias[signs] = -100.0
        bundle.model.output_proj.bias[bundle.model.config.eos_id] = ending


def _line(choose: Random, *, has_terms: bool) -> tuple[str, str, dict[str, Sequence[str]]]:
    """Return a source, a prefix and terms."""
    words = choose.sample(GERMAN[:10], choose.randint(1, 4))
    terms = {
        word: [" ".join(choose.choices(ENGLISH, k=choose.choice((1, 1, 2)))) for _ in range(choose.choice((1, 1, 2)))]
        for word in words[: choose.randrange(3) * has_terms]
    }
    parts = [*words, *choose.sample(CODES, choose.randrange(3))]
    choose.shuffle(parts)
    prefix = " ".join(choose.choices(ENGLISH, k=choose.randrange(4)))
    return " ".join(parts), prefix[: choose.randint(0, len(prefix))], terms


def _missing(text: str, source: str, prefix: str, terms: dict[str, Sequence[str]]) -> str:
    """Return what a translation lacks."""
    if not text.startswith(prefix.rstrip()):
        return f"no prefix in {text!r}"
    codes = [Counter({code: one.count(code) for code in CODES if code in one}) for one in (source, text)]
    if codes[0] != codes[1]:
        return f"other codes in {text!r}"
    words = " ".join(re.split("|".join(map(re.escape, CODES)), text)).lower()
    for forms in terms.values():
        if not any(_has_word(form, words) for form in forms):
            return f"none of {forms} in {text!r}"
    return ""


def _has_word(form: str, text: str) -> bool:
    """Return whether a text has a form with no Latin letter or digit beside it; other scripts write no spaces there."""
    for found in re.finditer(re.escape(form), text):
        beside = text[: found.start()][-1:] + text[found.end() :][:1]
        if not any(name(one, "").startswith(("LATIN", "DIGIT")) for one in beside):
            return True
    return False


ATTACK = Attack("searches", "searches", full=500, few=5, run=judged(cases))
