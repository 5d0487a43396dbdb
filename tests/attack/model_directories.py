"""Attack: damaged and crafted model directories are refused with one clear message, or translate as before."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import damage
import signing
from child import LONGEST_MESSAGE, command, refused_or, trouble_of
from harness import SPARE_MEMORY, Attack, Campaign, Case, Outcome, judged
from materials import KINDS, differing, translations, tree_digest

WAYS = [way for pair in zip(damage.DAMAGED * 3, damage.CRAFTED, strict=False) for way in pair]
"""Damage and craft in turn; a case takes the next."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Damage a copy of a model for every case, and use it."""
    models, references = campaign.stock.models, campaign.stock.references
    for number in campaign.numbers():
        choose = campaign.choose(number)
        kind = choose.choice(KINDS)
        way = WAYS[number % len(WAYS)]
        size = sum(path.stat().st_size for path in (models / kind).iterdir())
        yield Case(
            number,
            f"{kind}, {way.__name__}",
            "model_directories:attack",
            {
                "model": str(models / kind),
                "other": str(models / KINDS[kind == KINDS[0]]),
                "work": str(campaign.directory / f"case-{number}"),
                "way": way.__name__,
                "seed": choose.random(),
                "reference": references[kind],
            },
            memory=2 * size + SPARE_MEMORY,
        )


def attack(model: str, other: str, work: str, way: str, seed: float, reference: Mapping[str, Any]) -> dict[str, str]:
    """Damage one directory and use it in every way; runs in a child."""
    directory = Path(work) / "model"
    shutil.copytree(model, directory)
    shutil.copytree(other, Path(work) / "other")
    try:
        change = getattr(damage, way)
        detail = change(directory, Random(seed))
        print(detail, file=sys.stderr, flush=True)  # what a crash or a hang is told by
        is_signed = change in damage.CRAFTED
        if is_signed:
            signing.sign(directory)
        before = tree_digest(Path(work))
        outcome, words = _used(directory, None if is_signed and way != "unchanged" else reference)
        if way == "unchanged" and outcome is Outcome.refused:  # then nothing crafted is looked into either
            outcome = Outcome.wrong
        if changed := differing(before, tree_digest(Path(work))):
            outcome, words = Outcome.wrong, f"reading changed {', '.join(changed)}"
        return {"outcome": outcome, "detail": f"{detail}: {words}"}
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _used(directory: Path, reference: Mapping[str, Any] | None) -> tuple[Outcome, str]:
    """Show, verify and translate with a directory; None as the reference allows any translation."""
    for name in ("info", "verify"):
        code, _, errors = command(name, directory)
        if trouble := trouble_of(code, errors, allowed=(0, 1)):
            return Outcome.untyped, f"{name}: {trouble}"
    refusal, found = refused_or(lambda: translations(directory))
    if refusal is not None:
        clear = 0 < len(refusal) <= LONGEST_MESSAGE
        return (Outcome.refused, refusal[:200]) if clear else (Outcome.wrong, f"a message of {len(refusal)} characters")
    for text, score in (pair for lines in found.values() for pair in lines):
        text.encode()
        if score is not None and not math.isfinite(score):  # none: the source, in place of an empty translation
            return Outcome.wrong, f"a translation with the score {score}"
    if reference is not None and any(found[form] != reference[form] for form in found):
        return Outcome.wrong, "another translation, and not a word"
    return Outcome.works, "translated"


ATTACK = Attack("model directories", "directories", full=5_000, few=4, run=judged(cases))
