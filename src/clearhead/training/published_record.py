"""What a model directory says of its own weights: which they are, how good, and whether others are better."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.bundle import load_bundle
from clearhead.config import Config
from clearhead.data.prepare import Prepared
from clearhead.errors import ModelError
from clearhead.files import standing
from clearhead.training.validation import Validation, is_better

__all__ = ["Published", "read_published"]


@dataclass(frozen=True, slots=True)
class Scores:
    """What ranks weights, rounded as `publish` does, so that equal ones are equal."""

    nll: float
    """Negative log-likelihood per target token, in nats."""
    chrf: float | None
    """Of greedy translations, in percent; None where an earlier clearhead measured."""


@dataclass(frozen=True, slots=True)
class Published:
    """The record of a model that stands somewhere."""

    words: str
    """Its weights and their quality, or why that is not known."""
    scores: Scores | None = None
    measured_on: tuple[Any, ...] = ()
    """What has to agree if scores are to be compared."""

    def verdict(self, validation: Validation, data: Prepared, config: Config) -> str:
        """Say whether weights measured now are better, as `is_better` ranks them, without measuring these again.

        Their record counts if the validation text, the tokenizer, the number of sentences and the metric are the same.
        A processor of another kind may have added in another order, which is far below what is told here.
        """
        if self.scores is None:
            return "not to be compared with"
        metric = None if self.scores.chrf is None else validation.chrf_signature
        if self.measured_on != _measured_on(data.report, config.train.validate_sentences, metric):
            return "measured on other validation text than"
        now = Scores(round(validation.nll, 4), round(validation.chrf, 2))
        if is_better(now, self.scores):
            return "better than"
        return "worse than" if is_better(self.scores, now) else "as good as"


def read_published(directory: Path) -> Published | None:
    """Return the record of the model in a directory; None if there is none."""
    if not (standing(directory) / "config.json").is_file():
        return None
    try:
        info = load_bundle(directory).info
        metrics = info["metrics"]
        nll, chrf = float(metrics["valid_nll"]), metrics.get("valid_chrf")  # earlier models have no chrF
        scores = {"BLEU": metrics["valid_bleu"], "chrF": chrf, "perplexity": metrics["valid_ppl"]}
        words = ", ".join(f"{name} {score:.2f}" for name, score in scores.items() if score is not None)
        sentences = info["settings"]["train"]["validate_sentences"]
        measured_on = _measured_on(info["data"], sentences, metrics.get("chrf_signature"))
        return Published(f"{info['weights']}, validation {words}", Scores(nll, chrf), measured_on)
    except ModelError as error:
        return Published(f"it cannot be read: {error}")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return Published("its quality is not known")


def _measured_on(report: Any, sentences: int, metric: str | None) -> tuple[Any, ...]:
    checksums = report.get("checksums") or {}  # earlier data has none
    return checksums.get("valid.arrow"), report["tokenizer"]["sha256"], report["valid"]["kept"], sentences, metric
