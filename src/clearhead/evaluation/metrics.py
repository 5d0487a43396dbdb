"""Corpus BLEU and chrF by sacreBLEU with their signatures, exact match, and chrF of single sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unicodedata import normalize

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from clearhead.config.choices import MetricName, Tokenization
from clearhead.errors import DataError
from clearhead.evaluation.tokenization import choose_tokenization, require_tokenization

DEFAULT_METRICS: tuple[MetricName, ...] = ("bleu", "chrf")

NUM_SAMPLES = 1_000
"""Bootstrap resamples of a test set."""
_MOST_DRAWN = 4_000_000
"""Most sentences that all resamples draw together: sacreBLEU holds the counts of all of them, 75 bytes each."""
_FEWEST_SAMPLES = 100


@dataclass(frozen=True, slots=True)
class Metric:
    """A corpus score with its signature."""

    name: str
    score: float
    """Score from 0 to 100; higher is better."""
    signature: str
    """sacreBLEU's record of tokenization, smoothing and version; scores with different signatures are not
    comparable."""
    interval: tuple[float, float] | None = None
    """95 percent confidence interval by bootstrap resampling (Koehn 2004): mean of the resampled scores, minus and plus
    half the width of their middle 95 percent. None if it was not asked for, or there are too many sentences."""


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
            if metric.interval is not None:
                values[f"{name}_interval"] = list(metric.interval)
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
    intervals: bool = False,
) -> Evaluation:
    """Evaluate translations against their references.

    Args:
        hypotheses: Translations.
        references: One reference for each translation.
        metrics: Metrics to compute.
        tokenize: BLEU's tokenization; None chooses one for the references' script, see `choose_tokenization`.
        lowercase: Whether the metrics ignore case; exact match never does.
        intervals: Whether to compute confidence intervals, of at most 40,000 sentences; every call draws the same
            resamples.

    Raises:
        ConfigError: If a metric needs a package that is not installed.
        DataError: If there are no lines, or the numbers of references and hypotheses differ.
    """
    exact = exact_match(hypotheses, references)
    made = make_metrics(metrics, references, tokenize=tokenize, lowercase=lowercase)
    measured = {name: _measure(metric, hypotheses, references) for name, metric in made.items()}
    if intervals and (samples := min(NUM_SAMPLES, _MOST_DRAWN // len(references))) >= _FEWEST_SAMPLES:
        made = make_metrics(metrics, references, tokenize=tokenize, lowercase=lowercase)
        resampled = resample([hypotheses], references, made, samples)
        measured = {
            name: replace(metric, interval=interval_of(resampled[name].results[0])) for name, metric in measured.items()
        }
    return Evaluation(measured, exact, len(hypotheses))


class Resampled(NamedTuple):
    """sacreBLEU's bootstrap of one metric."""

    title: str
    """sacreBLEU's name of the metric."""
    signature: str
    """It says how often the test set was resampled, too."""
    results: list[Result]
    """The result of each system; from the second on with a comparison to the first."""


def resample(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    metrics: Mapping[MetricName, BLEU | CHRF],
    samples: int = NUM_SAMPLES,
) -> dict[MetricName, Resampled]:
    """Resample a test set (Koehn 2004), drawing the same sentences for all systems, and return each metric's results.

    Args:
        systems: Translations of each system.
        references: One reference for each sentence.
        metrics: sacreBLEU's metrics, which are changed by it.
        samples: Number of resamples.
    """
    signatures, results = PairedTest(
        [(str(number), _composed(hypotheses)) for number, hypotheses in enumerate(systems)],
        metrics={str(name): metric for name, metric in metrics.items()},
        references=[_composed(references)],
        test_type="bs",
        n_samples=samples,
    )()
    of_titles: Any = results  # annotated for the names of the systems too
    return {  # both are in the order of the metrics
        name: Resampled(title, str(signature), of_titles[title])
        for name, (title, signature) in zip(metrics, signatures.items(), strict=True)
    }


def interval_of(result: Result) -> tuple[float, float]:
    """Return the 95 percent confidence interval of a resampled score, rounded to two digits."""
    assert result.mean is not None  # the bootstrap always returns both
    assert result.ci is not None
    return round(float(result.mean - result.ci), 2), round(float(result.mean + result.ci), 2)


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
    """Return the percentage of hypotheses that equal their reference exactly, or canonically.

    Raises:
        DataError: If there are no lines, or the numbers of references and hypotheses differ.

    >>> exact_match(["3. Mai", "4. Mai"], ["3. Mai", "4. Juni"])
    50.0
    """
    require_pairs("translations", len(hypotheses), len(references))
    pairs = zip(_composed(hypotheses), _composed(references), strict=True)
    equal = sum(hypothesis == reference for hypothesis, reference in pairs)
    return 100.0 * equal / len(hypotheses)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each sentence, from 0 to 100, to find outliers."""
    metric = CHRF()
    pairs = zip(_composed(hypotheses), _composed(references), strict=True)
    return [metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs]


def _composed(texts: Sequence[str]) -> list[str]:
    """Return texts in NFC, in which they are compared: sacreBLEU counts an `ü` of two characters as another letter."""
    return [normalize("NFC", text) for text in texts]


def _measure(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    result = metric.corpus_score(_composed(hypotheses), [_composed(references)])
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
