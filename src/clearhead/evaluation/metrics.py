"""BLEU and chrF by sacreBLEU with their signatures, exact match, and the evaluation of a translator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from clearhead.errors import DataError
from clearhead.translator import Translation, Translator

__all__ = ["Evaluation", "Metric", "bleu", "chrf", "evaluate", "exact_match"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A corpus score and how it was computed."""

    name: str
    score: float
    """From 0 to 100, higher is better."""
    signature: str
    """sacreBLEU's record of tokenization, smoothing and version; scores with different signatures do not compare."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well and how fast a translator did on a test set; scores are rounded to two digits."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact_match: float
    """Percent of sentences translated letter for letter as the reference has it."""
    sentences: int
    sentences_per_second: float
    output_tokens_per_second: float
    """Pieces of the translations, end tokens left out, per second of wall-clock time."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return asdict(self)


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    name: str = "",
    on_progress: Callable[[int], None] | None = None,
    **decode_settings: Any,
) -> tuple[Evaluation, list[Translation]]:
    """Translate a test set and compare with its references; the clock runs while translating, and nothing is scored.

    Args:
        translator: What is evaluated.
        sources: Source lines.
        references: One reference for each source line.
        name: File the sources come from, for messages.
        on_progress: Called with the number of lines finished, batch by batch.
        **decode_settings: Fields of `DecodeConfig` other than the model's own, such as `beam_size=1`.

    Raises:
        ConfigError: If a setting is unknown or impossible, or the model has language tags and a line is given none.
        DataError: If there are no lines, or not as many references as sources.
    """
    _require_pairs("source lines", len(sources), len(references))
    start = perf_counter()
    translations = translator.translate(sources, scores=False, name=name, on_progress=on_progress, **decode_settings)
    seconds = perf_counter() - start

    hypotheses = [translation.text for translation in translations]
    by_words, by_characters = bleu(hypotheses, references), chrf(hypotheses, references)
    evaluation = Evaluation(
        bleu=round(by_words.score, 2),
        bleu_signature=by_words.signature,
        chrf=round(by_characters.score, 2),
        chrf_signature=by_characters.signature,
        exact_match=round(exact_match(hypotheses, references), 2),
        sentences=len(hypotheses),
        sentences_per_second=round(len(hypotheses) / seconds, 2),
        output_tokens_per_second=round(sum(len(translation.tokens) for translation in translations) / seconds, 2),
    )
    return evaluation, translations


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    """Return corpus BLEU (Papineni et al. 2002) with sacreBLEU's defaults.

    Raises:
        DataError: If there are no lines, or not as many references as hypotheses.

    >>> bleu(["the cat sat on the mat"], ["the cat sat on the mat"]).score
    100.0
    """
    return _measure(BLEU(), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    """Return corpus chrF2 (Popović 2015) with sacreBLEU's defaults.

    Raises:
        DataError: If there are no lines, or not as many references as hypotheses.
    """
    return _measure(CHRF(), hypotheses, references)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the percentage of hypotheses that equal their reference letter for letter.

    Raises:
        DataError: If there are no lines, or not as many references as hypotheses.

    >>> exact_match(["3. Mai", "4. Mai"], ["3. Mai", "4. Juni"])
    50.0
    """
    _require_pairs("translations", len(hypotheses), len(references))
    equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return 100.0 * equal / len(hypotheses)


def _measure(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    _require_pairs("translations", len(hypotheses), len(references))
    result = metric.corpus_score(hypotheses, [references])
    # Rounding noise lifts a perfect score above 100.
    return Metric(result.name, min(float(result.score), 100.0), str(metric.get_signature()))


def _require_pairs(what: str, count: int, num_references: int) -> None:
    if count != num_references:
        raise DataError(f"{count:,} {what} but {num_references:,} reference lines; they must pair up line by line")
    if not count:
        raise DataError("there is nothing to evaluate: the test set holds no lines")
