"""Translate a test set, compare it with its references by metrics such as BLEU, and measure the speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Unpack

from clearhead.config import DecodeChanges
from clearhead.config.choices import MetricName, Tokenization
from clearhead.evaluation.metrics import DEFAULT_METRICS, Evaluation, judge, make_metrics, require_pairs
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

NEAR = 0.5
"""Least similarity of a test sentence to a training sentence, in words as in a translation memory, to count as near."""
MOST_COMPARED = 500_000
"""Most training pairs with which a test set is compared."""


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    tokenize: Tokenization | None = None,
    lowercase: bool = False,
    intervals: bool = False,
    name: str = "",
    on_progress: Callable[[int], None] | None = None,
    **decode_settings: Unpack[DecodeChanges],
) -> tuple[Evaluation, list[Translation]]:
    """Translate a test set and compare it with references; only the translation is timed, and it is not scored.

    What the model wrote is compared, even where that is empty (`raw` of `Translator.translate`).

    Args:
        translator: The translator to evaluate.
        sources: Source lines.
        references: One reference for each source line.
        metrics: Metrics to compute; this argument and the next three are as for `judge`.
        tokenize: Tokenization for BLEU.
        lowercase: Ignore case.
        intervals: Compute confidence intervals.
        name: Name of the file of the sources, for messages.
        on_progress: Called with the number of lines finished, batch by batch.
        **decode_settings: Fields of `DecodeConfig` to change, such as `beam_size=1`.

    Raises:
        ConfigError: If a setting is unknown or impossible, a metric needs a package that is not installed, or the model
            has language tags and a line has no target language.
        DataError: If there are no lines, or not as many references as sources.
    """
    require_pairs("source lines", len(sources), len(references))
    make_metrics(metrics, references, tokenize=tokenize, lowercase=lowercase)  # fail before an hour of translation
    start = perf_counter()
    told: dict[str, Any] = {"name": name, "on_progress": on_progress, **decode_settings}
    translations = translator.translate(sources, scores=False, raw=True, **told)
    seconds = perf_counter() - start
    hypotheses = [translation.text for translation in translations]
    evaluation = replace(
        judge(hypotheses, references, metrics=metrics, tokenize=tokenize, lowercase=lowercase, intervals=intervals),
        sentences_per_second=len(hypotheses) / seconds,
        output_tokens_per_second=sum(len(translation.tokens) for translation in translations) / seconds,
    )
    return evaluation, translations


def near_training(run: Path, sources: Sequence[str]) -> list[bool] | None:
    """Return whether each source is near a training source of a run: has half of its words or more, in their order.

    A score on such lines says how well the model knows its training text, one on the others what to expect of new text.

    Args:
        run: Run directory, with the prepared data of its training.
        sources: Source lines.

    Returns:
        None without prepared data, with more than `MOST_COMPARED` pairs, or if PyArrow, which reads them, is missing.

    Raises:
        DataError: If the prepared data are damaged.
    """
    try:
        from clearhead.data.store import PairStore
    except ImportError:
        return None
    path = run / "data" / "train.arrow"
    if not path.exists() or len(store := PairStore.open(path)) > MOST_COMPARED:
        return None
    memory = TranslationMemory((text, text) for text in map(store.source, range(len(store))))
    return [memory.match(source, NEAR) is not None for source in sources]
