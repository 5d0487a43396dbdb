"""Record of a published model: its weights, its validation scores, and how new scores compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clearhead.bundle import load_bundle
from clearhead.config import Config, DecodeConfig
from clearhead.data.prepare import Prepared
from clearhead.errors import ConfigError, ModelError
from clearhead.files import readable_version
from clearhead.training.validation import Validation, is_better, measured_on


@dataclass(frozen=True, slots=True)
class PublishedScores:
    """Scores that rank weights, rounded as in `publish`, so that equal weights compare equal."""

    nll: float
    """Negative log-likelihood per target token, in nats."""
    chrf: float | None
    """chrF of greedy translations, in percent; None if an earlier clearhead, which did not measure it, validated."""


@dataclass(frozen=True, slots=True)
class Published:
    """Record of a published model."""

    words: str
    """Description of the weights and their scores, or why these are unknown."""
    scores: PublishedScores | None = None
    measured_on: tuple[str | None, ...] = ()
    """What must agree before scores can be compared: see `validation.measured_on`; and the metric."""

    def verdict(self, validation: Validation, data: Prepared, config: Config) -> str:
        """Return in words whether new weights rank better by `is_better`, without validating the published ones again.

        The recorded scores count only if they were measured on the same text, with the same settings and metric.
        Another type of processor may have added numbers in another order, but that effect is far below the rounding.
        """
        if self.scores is None:
            return "not to be compared with"
        metric = None if self.scores.chrf is None else validation.chrf_signature
        if self.measured_on != (measured_on(data.report, config.train.validate_sentences, config.decode), metric):
            return "measured on other validation text than"
        now = PublishedScores(round(validation.nll, 4), round(validation.chrf, 2))
        if is_better(now, self.scores):
            return "better than"
        return "worse than" if is_better(self.scores, now) else "as good as"


def read_published(directory: Path) -> Published | None:
    """Return the record of the model in a directory; None if the directory has no model."""
    if not (readable_version(directory) / "config.json").is_file():
        return None
    try:
        info = load_bundle(directory).info
        metrics = info["metrics"]
        nll, chrf = float(metrics["valid_nll"]), metrics.get("valid_chrf")  # older models have no chrF
        scores = {"BLEU": metrics["valid_bleu"], "chrF": chrf, "perplexity": metrics["valid_ppl"]}
        words = ", ".join(f"{name} {score:.2f}" for name, score in scores.items() if score is not None)
        settings = info["settings"]
        on = measured_on(info["data"], settings["train"]["validate_sentences"], DecodeConfig(**settings["decode"]))
        measured = on, metrics.get("chrf_signature")
        return Published(f"{info['weights']}, validation {words}", PublishedScores(nll, chrf), measured)
    except ModelError as error:
        return Published(f"it cannot be read: {error}")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, ConfigError):
        return Published("its quality is not known")
