"""Corpus BLEU and chrF by sacreBLEU with their signatures, exact match, and chrF of single sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from clearhead.config.choices import MetricName, Tokenization
from clearhead.errors import DataError
from clearhead.evaluation.tokenization import choose_tokenization, require_tokenization

DEFAULT_METRICS: tuple[MetricName, ...] = ("bleu", "chrf")


@dataclass(frozen=True, slots=True)
class Metric:
    """A corpus score with its signature."""

    name: str
    score: float
    """Score from 0 to 100; higher is better."""
    signature: str
    """sacreBLEU's record of tokenization, smoothing and version; scores with different signatures are not
    comparable."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Quality of translations, and decoding speed."""

    metrics: Mapping[MetricName, Metric]
    """The requested metrics."""
    exact_match: float
    """Percentage of translations that equal their reference exactly."""
    sentences: int
    sentences_per_second: float | None = None
    """Decoding speed; None for translations made elsewhere."""
    output_tokens_per_second: float | None = None
    """Pieces of the translations, without end tokens, per second of wall-clock time; None for translations made
    elsewhere."""

    @property
    def bleu(self) -> float:
        """The score of `metrics["bleu"]`."""
        return self.metrics["bleu"].score

    @property
    def chrf(self) -> float:
        """The score of `metrics["chrf"]`."""
        return self.metrics["chrf"].score

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values: numbers rounded to two digits, and the signature of each metric."""
        values: dict[str, Any] = {}
        for name, metric in self.metrics.items():
            values |= {name: round(metric.score, 2), f"{name}_signature": metric.signature}
        values |= {"exact_match": round(self.exact_match, 2), "sentences": self.sentences}
        speeds = {
            "sentences_per_second": self.sentences_per_second,
            "output_tokens_per_second": self.output_tokens_per_second,
        }
        return values | {name: round(speed, 2) for name, speed in speeds.items() if speed is not None}


def judge(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    tokenize: Tokenization | None = None,
    lowercase: bool = False,
) -> Evaluation:
    """Evaluate translations against their references.

    Args:
        hypotheses: Translations.
        references: One reference for each translation.
        metrics: Metrics to compute.
        tokenize: BLEU's tokenization; None chooses one for the references' script, see `choose_tokenization`.
        lowercase: Whether the metrics ignore case; exact match never does.

    Raises:
        ConfigError: If a metric needs a package that is not installed.
        DataError: If there are no lines, or the numbers of references and hypotheses differ.
    """
    exact = exact_match(hypotheses, references)
    made = make_metrics(metrics, references, tokenize=tokenize, lowercase=lowercase)
    return Evaluation(
        {name: _measure(metric, hypotheses, references) for name, metric in made.items()}, exact, len(hypotheses)
    )


def make_metrics(
    names: Sequence[MetricName], references: Sequence[str], *, tokenize: Tokenization | None, lowercase: bool
) -> dict[MetricName, BLEU | CHRF]:
    """Return sacreBLEU's metrics by name; without `tokenize`, BLEU's tokenization follows the references' script.

    Raises:
        ConfigError: If a metric needs a package that is not installed.
    """
    made: dict[MetricName, BLEU | CHRF] = {}
    for name in names:
        if name == "bleu":
            if tokenize is not None:
                require_tokenization(tokenize)
            made[name] = BLEU(lowercase=lowercase, tokenize=tokenize or choose_tokenization(references))
        else:
            made[name] = CHRF(lowercase=lowercase, word_order=2 if name == "chrf++" else 0)
    return made


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    """Return corpus BLEU (Papineni et al. 2002), with the tokenization for the references' script.

    Raises:
        DataError: If there are no lines, or the numbers of references and hypotheses differ.

    >>> bleu(["the cat sat on the mat"], ["the cat sat on the mat"]).score
    100.0
    """
    return judge(hypotheses, references, metrics=["bleu"]).metrics["bleu"]


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    """Return corpus chrF2 (Popović 2015) with sacreBLEU's defaults.

    Raises:
        DataError: If there are no lines, or the numbers of references and hypotheses differ.
    """
    return judge(hypotheses, references, metrics=["chrf"]).metrics["chrf"]


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the percentage of hypotheses that equal their reference exactly.

    Raises:
        DataError: If there are no lines, or the numbers of references and hypotheses differ.

    >>> exact_match(["3. Mai", "4. Mai"], ["3. Mai", "4. Juni"])
    50.0
    """
    require_pairs("translations", len(hypotheses), len(references))
    equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return 100.0 * equal / len(hypotheses)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each sentence, from 0 to 100, to find outliers."""
    metric = CHRF()
    pairs = zip(hypotheses, references, strict=True)
    return [metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs]


def _measure(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    result = metric.corpus_score(hypotheses, [references])
    # Rounding errors can lift a perfect score above 100.
    return Metric(result.name, min(float(result.score), 100.0), str(metric.get_signature()))


def require_pairs(what: str, count: int, num_references: int) -> None:
    """Check that there are lines, and one reference for each.

    Raises:
        DataError: If there are no lines, or the numbers differ.
    """
    if count != num_references:
        raise DataError(f"{count:,} {what} but {num_references:,} reference lines; they must pair up line by line")
    if not count:
        raise DataError("there is nothing to evaluate: the test set holds no lines")
