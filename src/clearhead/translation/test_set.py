"""Translate a test set, compare it with its references by metrics such as BLEU, and measure the speed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from pathlib import Path
from time import perf_counter
from typing import Any, Self, Unpack

from clearhead.config import DecodeChanges
from clearhead.config.choices import MetricName, Tokenization
from clearhead.errors import ClearheadError
from clearhead.evaluation import (
    DEFAULT_METRICS,
    AlignmentScores,
    Comparison,
    Evaluation,
    alignment_scores,
    compare,
    judge,
    read_gold_links,
)
from clearhead.evaluation.metrics import make_metrics, require_pairs
from clearhead.text.word_links import spaced_words
from clearhead.translation.memory import Lookup, Retrieve, TranslationMemory
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

NEAR = 0.5
"""Least similarity of a test sentence to a training sentence, in words as in a translation memory, to count as near."""
MOST_COMPARED = 500_000
"""Most training pairs with which a test set is compared."""

_POOR_SCORE = 40.0
"""Score in percent of every metric below which the sides of a test set may be exchanged."""
_PAIRS_SCORED = 20

TITLES: Mapping[MetricName, str] = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++"}
PARTS = {
    "near_training": "like one of the training text (half of their words or more)",
    "far_from_training": "unlike any of the training text",
}
"""The two parts of a test set, by their name in JSON."""

Stage = Callable[..., AbstractContextManager[Callable[[int], None]]]
"""Shows what is being done; called with its name and `total`, yields a function that is called with what is done."""


@dataclass(frozen=True)
class ModelEvaluation:
    """Scores of translations of a test set; on request of its parts, and in comparison with a baseline."""

    scores: Evaluation
    texts: Sequence[str]
    references: Sequence[str]
    judging: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `judge`, by which parts and differences are measured as well."""
    translations: Sequence[Translation] = ()
    """What the model made; empty for translations made elsewhere."""
    model_sha256: str = ""
    alignment: AlignmentScores | None = None
    parts: Mapping[str, Evaluation] = field(default_factory=dict)
    """Scores of the lines near the model's training text, and of the others."""
    compared: tuple[str, str, ModelEvaluation, Comparison] | None = None
    """Names of baseline and system, the evaluation of the baseline, and the differences to it."""

    @classmethod
    def of_texts(
        cls, texts: Sequence[str], references: Sequence[str], *, intervals: bool = False, **judging: Any
    ) -> Self:
        """Judge translations.

        Args:
            texts: Translations.
            references: One reference for each.
            intervals: Compute confidence intervals.
            **judging: Further arguments of `judge`.

        Raises:
            ConfigError: As in `judge`.
            DataError: As in `judge`.
        """
        return cls(judge(texts, references, intervals=intervals, **judging), texts, references, judging)

    @classmethod
    def of_translations(
        cls, translations: Sequence[Translation], references: Sequence[str], *, model_sha256: str | None, **judging: Any
    ) -> Self:
        """Judge what a model wrote, with confidence intervals as `judging` asks; see `of_texts`."""
        evaluation = cls.of_texts([translation.text for translation in translations], references, **judging)
        return replace(evaluation, translations=translations, model_sha256=model_sha256 or "")

    def with_parts(self, is_near: Sequence[bool] | None) -> Self:
        """Return this with scores of the lines near the training text and of the others (`near_training`)."""
        (near, far), is_near = PARTS, is_near or ()
        parts = {near: is_near, far: [not is_line_near for is_line_near in is_near]}
        return replace(self, parts={name: self._judged(part) for name, part in parts.items() if any(part)})

    def _judged(self, part: Sequence[bool]) -> Evaluation:
        return judge(list(compress(self.texts, part)), list(compress(self.references, part)), **self.judging)

    def compared_with(self, baseline: ModelEvaluation, names: tuple[str, str]) -> Self:
        """Return this with the differences to a baseline, and whether they are significant.

        Args:
            baseline: Evaluation of the baseline on the same test set.
            names: Names of baseline and system.
        """
        differences = compare(self.references, baseline.texts, self.texts, **self.judging)
        return replace(self, compared=(*names, baseline, differences))

    def lines(self) -> list[str]:
        """Return everything as lines for a reader."""
        shown = [*_table(self.scores), *(_part_line(name, part) for name, part in self.parts.items())]
        if (alignment := self.alignment) is not None:
            shown.append(
                f"alignment: precision {100 * alignment.precision:.1f}%, recall {100 * alignment.recall:.1f}%, "
                f"AER {100 * alignment.error_rate:.1f}% ({alignment.links:,} links; by hand {alignment.sure:,} sure, "
                f"{alignment.possible:,} possible)"
            )
        if self.compared is not None:
            named, system, baseline, differences = self.compared
            shown += ["", f"{named}:", *baseline.lines(), "", f"from {named} to {system}:", *differences.lines()]
        return shown

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain values."""
        values = {**self.scores.to_dict(), **{name: part.to_dict() for name, part in self.parts.items()}}
        if self.alignment is not None:
            values["alignment"] = asdict(self.alignment)
        if self.compared is not None:
            named, system, _, differences = self.compared
            values["comparison"] = {"baseline": named, "system": system, **differences.to_dict()}
        return values

    def titled_metrics(self) -> dict[str, object]:
        """Return score, interval and signature of each metric, by its title."""
        return {TITLES[name]: asdict(metric) for name, metric in self.scores.metrics.items()}


def evaluate_model(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName] = DEFAULT_METRICS,
    tokenize: Tokenization | None = None,
    lowercase: bool = False,
    intervals: bool = False,
    gold_alignments: str | None = None,
    gold_base: int | None = None,
    name: str = "",
    memory: Lookup | None = None,
    neighbours: Retrieve | None = None,
    stage: Stage = lambda _, total: nullcontext(lambda steps: None),
    **decode_settings: Unpack[DecodeChanges],
) -> ModelEvaluation:
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
        gold_alignments: File of manual alignments, with which the model's of source and reference are compared.
        gold_base: Number of a sentence's first word in it; None for that of its format.
        name: Name of the file of the sources, for messages.
        memory: A translation memory that is used, as for `Translator.translate`.
        neighbours: Returns its pairs that are most similar to a text, likewise.
        stage: Called with what is being done and the number of lines.
        **decode_settings: Fields of `DecodeConfig` to change, such as `beam_size=1`.

    Raises:
        ConfigError: If a setting is unknown or impossible, a metric needs a package that is not installed, or the model
            has language tags and a line has no target language.
        DataError: If there are no lines, or not as many references as sources; or as in `read_gold_links`.
    """
    require_pairs("source lines", len(sources), len(references))
    make_metrics(metrics, references, tokenize=tokenize, lowercase=lowercase)  # fail before an hour of translation
    alignment = None
    if gold_alignments is not None:
        translator.translate([], **decode_settings)  # an impossible setting is refused before pairs are aligned
        target_language = translator.decode_config(decode_settings).target_lang
        sides = [text for _, text in translator.pair_encoder.split_sources(sources, target_language, name=name)]
        gold = read_gold_links(gold_alignments, sides, references, base=gold_base)
        of_alignment = ("source_lang", "target_lang", "batch_tokens", "align_by")
        how: Any = {key: value for key, value in decode_settings.items() if key in of_alignment}
        with stage("aligning", total=len(sources)) as advance:
            how |= {"words": spaced_words, "name": name, "on_progress": advance}
            alignment = alignment_scores(translator.align(sources, references, **how), gold)
    with stage(f"translating with {translator.path}", total=sum(bool(line.strip()) for line in sources)) as advance:
        start = perf_counter()
        recalled: dict[str, Any] = {"memory": memory, "neighbours": neighbours}
        translations = translator.translate(
            sources, scores=False, raw=True, name=name, on_progress=advance, **recalled, **decode_settings
        )
        seconds = perf_counter() - start
    judging: Any = {"intervals": intervals, "metrics": metrics, "tokenize": tokenize, "lowercase": lowercase}
    sha256 = translator.bundle.model_sha256
    evaluation = ModelEvaluation.of_translations(translations, references, model_sha256=sha256, **judging)
    scores = replace(
        evaluation.scores,
        sentences_per_second=len(translations) / seconds,
        output_tokens_per_second=sum(len(translation.tokens) for translation in translations) / seconds,
    )
    return replace(evaluation, scores=scores, alignment=alignment)


def seems_swapped(
    translator: Translator, evaluation: ModelEvaluation, sources: Sequence[str], **settings: Unpack[DecodeChanges]
) -> bool:
    """Return whether a model with poor scores finds the sources much likelier as translations of their references.

    That is, whether a token of the first ones costs it less than half as many nats. False if that cannot be scored.
    """
    if any(metric.score >= _POOR_SCORE for metric in evaluation.scores.metrics.values()):
        return False
    sides = sources[:_PAIRS_SCORED], evaluation.references[:_PAIRS_SCORED]
    try:
        given, exchanged = (
            -sum(translator.score(read, written, **settings))
            / sum(map(len, translator.bundle.tokenizer.encode_targets(written)))
            for read, written in (sides, sides[::-1])
        )
    except ClearheadError:  # such as a reference without the language tag of its source
        return False
    return 2 * exchanged < given


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


def _table(evaluation: Evaluation) -> list[str]:
    values = evaluation.to_dict()
    rows = [("metric", "value", "95 %", "signature")]
    for name, metric in evaluation.metrics.items():
        interval = "{:.2f} to {:.2f}".format(*metric.interval) if metric.interval else ""
        rows.append((TITLES[name], f"{values[name]:.2f}", interval, metric.signature))
    rows += [("exact match, %", f"{values['exact_match']:.2f}", "", "")]
    rows += [("sentences", f"{values['sentences']:,}", "", "")]
    speeds = {"sentences/s": "sentences_per_second", "output tokens/s": "output_tokens_per_second"}
    rows += [(title, f"{values[name]:,.2f}", "", "") for title, name in speeds.items() if name in values]
    return aligned(rows, numbers=(1,))


def aligned(rows: Sequence[Sequence[str]], *, numbers: Collection[int]) -> list[str]:
    """Return rows of cells as lines, each column as wide as its widest cell, those of numbers aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _part_line(name: str, evaluation: Evaluation) -> str:
    scores = ", ".join(f"{TITLES[metric]} {result.score:.2f}" for metric, result in evaluation.metrics.items())
    return f"{evaluation.sentences:,} lines {PARTS[name]}: {scores}"
