"""Outcome of fine-tuning: the new model beside the one that it started from, and what chance explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.bundle import load_bundle
from clearhead.errors import ModelError
from clearhead.evaluation.comparison import compare
from clearhead.training.run_directory import MODEL_BEFORE
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

FEWEST_DECIDING = 100
"""Validation pairs below which they do not decide whether training made a model better."""


def outcome(
    run: Path, translator: Translator, translations: Sequence[Translation], references: Sequence[str]
) -> str | None:
    """Return in words whether fine-tuning made a model better, by paired bootstrap resampling of chrF (Koehn 2004).

    Both models translate the same validation lines, with the settings of the new one.

    Args:
        run: Run directory, which holds the model before as `model-before`.
        translator: The new model.
        translations: Its translations of validation sources.
        references: Their references.

    Returns:
        None without a copy of the model before (the run started from random weights), or without validation lines.
    """
    if not translations or not (run / MODEL_BEFORE).exists():
        return None
    try:
        before = Translator(replace(load_bundle(run / MODEL_BEFORE), decode=translator.bundle.decode))
    except ModelError as error:  # the run is at its end, and its own model is good
        return f"not compared with the model before: {error}"
    earlier = before.translate([translation.source for translation in translations], raw=True)
    texts = ([translation.text for translation in of_model] for of_model in (earlier, translations))
    chrf = compare(references, *texts, metrics=("chrf",)).metrics["chrf"]
    count, is_few = len(references), len(references) < FEWEST_DECIDING
    measured = (
        f"chrF {chrf.baseline:.1f} before, {chrf.system:.1f} now, with beam {translator.bundle.decode.beam_size}, on "
        f"{count:,} validation pairs (paired bootstrap: p = {chrf.p_value:.3f})"
    )
    kept = f"the model before is kept in {run / MODEL_BEFORE}"
    if is_few:
        return f"undecided, for {count:,} pairs are too few: {measured}; {kept}: try both, or name more validation text"
    if not chrf.significant:
        return f"no clear difference, chance may explain it: {measured}; {kept}"
    return f"{'better' if chrf.difference > 0 else 'worse'} than before: {measured}; {kept}"


def unchanged(valid: Sequence[Mapping[str, Any]]) -> str:
    """Return in words that no weights of a run were better than the initial model.

    Args:
        valid: Records of the validations; the first is that of the initial model.
    """
    best = max((record["chrf"] for record in valid[1:]), default=0.0)
    return (
        f"no better than the model it started from, which is published as it was: chrF {valid[0]['chrf']:.1f}, and at "
        f"most {best:.1f} after training; more text helps, or a lower rate (--fresh --set train.learning_rate=..)"
    )
