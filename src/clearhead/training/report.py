"""The training report, `report.html`: one self-contained page with curves, sample translations and attention maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int

from clearhead.config import Config
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.files import write_text
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.tokens import visible
from clearhead.pages import Html, fill, joined
from clearhead.pages.charts import Curve, attention_grid, attention_map, bar_chart, line_chart, spread
from clearhead.pages.parts import (
    figure,
    figures_in_a_row,
    folded,
    lines,
    long_text,
    paragraph,
    report_page,
    scores,
    table,
    with_code,
)
from clearhead.text.quality_flags import KINDS
from clearhead.training.evaluations import evaluations
from clearhead.training.log import read_metrics
from clearhead.translation.result import Translation

_NUM_SAMPLES = 20
_FIRST_SAMPLES = 3
_FIRST_RANKED = 2
_FIRST_WARNINGS = 3
"""Rows that are shown at first, of samples, of the worst and the best, and of what looks wrong; the rest is folded."""
_FIRST_SENTENCES = 2
_NUM_RANKED = 10
_NUM_DETAILS = 5
_MOST_BARS = 8
_MOST_STEPS = 6
_SCORES = (("BLEU", "bleu"), ("chrF", "chrf"), ("perplexity", "ppl"))
_NONE = "No translation is short enough for a small picture."
_ATTENTION = (
    "Rows are written, columns read; a stronger colour is more. Shown is {}, which tells best which words belong "
    "together; clearhead explain shows every head."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the report says first."""

    direction: str
    """Languages in words, such as `German → English`."""
    doubt: str
    """How the languages were guessed; empty if the settings name them."""
    scores: Mapping[str, str]
    """Scores of the published model on validation text, by name."""
    verdict: Sequence[str]
    """Sentences, the most important first."""
    model_sha256: str
    """Checksum of the published weights."""
    chosen: Sequence[int]
    """Steps of the published weights, several if they are an average."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A translation of a validation sentence with its reference."""

    translation: Translation
    reference: str
    chrf: float
    """chrF of the sentence, in percent."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedPair:
    """A validation pair with its cross-attention at several steps of training."""

    source_tokens: list[str]
    target_tokens: list[str]
    """Tokens of the reference."""
    cross: Sequence[tuple[int, Float32[np.ndarray, "L H T S"]]]
    """Steps, ascending, with the cross-attention at each; at least one."""


def write_report(
    path: Path,
    *,
    config: Config,
    answer: Answer,
    made: Mapping[str, str],
    metrics: Sequence[Mapping[str, Any]],
    judged: Sequence[Judged],
    lengths: Mapping[str, Int[np.ndarray, " pairs"]],
    head: AlignmentHead,
    explanations: Iterable[Explanation],
    learned: Sequence[LearnedPair],
    data_lines: Sequence[str],
) -> None:
    """Write the report, completely or not at all.

    Args:
        path: Path of the run's `report.html`.
        config: Complete settings.
        answer: What the report says first.
        made: How the model was made, by name.
        metrics: Records of `metrics.jsonl`.
        judged: Translations of validation sentences.
        lengths: Tokens of every training source and of every training target, under the names of the two sides.
        head: Attention head that aligns words best.
        explanations: Explanations of a few sentences, for attention maps.
        learned: Validation pairs whose attention was logged during training.
        data_lines: Lines of counts: how many pairs were read, kept and dropped.
    """
    charts, more_charts = _line_charts(metrics, answer.chosen)
    about_lengths = [
        bar_chart("chrF of validation sentences by length", "characters of the source", _by_length(judged)),
        bar_chart("Training pairs, in percent", "tokens", _histogram(lengths)),
    ]
    ranked = sorted(judged, key=lambda sample: sample.chrf)
    page = report_page(
        "training_report.html",
        title=f"clearhead: {path.parent.name}",
        name=path.parent.name,
        direction=_direction(answer),
        scores=scores(answer.scores),
        evaluations=evaluations(path.parent, answer.model_sha256),
        verdict=_verdict(answer.verdict),
        curves=joined(charts),
        more_curves=folded("More curves", _charts(more_charts)),
        count=f"{len(judged):,}",
        samples=_table(_across_lengths(judged), _FIRST_SAMPLES),
        worst=_table(ranked[:_NUM_RANKED], _FIRST_RANKED),
        best=_table(ranked[::-1][:_NUM_RANKED], _FIRST_RANKED),
        warnings=_warnings(judged),
        lengths=folded("Lengths", _charts(about_lengths)),
        attention=folded(
            "Where attention went",
            joined([paragraph(_ATTENTION.format(head)), _charts(map(_attention, explanations)) or paragraph(_NONE)]),
        ),
        learned=folded("How attention became an alignment", _learning(head, learned)),
        made=folded("How the model was made", table(("row", "text"), made.items(), classes="stacked")),
        data=folded("Data", _preformatted("\n".join(data_lines))),
        settings=folded("Settings", _preformatted(config.to_toml())),
    )
    write_text(path, page)


def progress_page(run: Path) -> Html:
    """Return the content of a page of a run in progress: the latest scores, and the curves until now.

    Args:
        run: Run directory; files that do not exist yet are left out.

    Raises:
        ClearheadError: If its settings or its log cannot be read.
    """
    config = Config.load(run / "config.toml") if (run / "config.toml").exists() else None
    metrics = read_metrics(run / "metrics.jsonl")
    charts, more_charts = _line_charts(metrics, ())
    last = metrics[-1] if metrics else None
    steps = config.train.max_steps if config else None
    state = "Preparing the text, or making the first steps." if last is None else f"Step {last['step']:,}"
    if last is not None:
        of = f" of {steps:,}" if steps else ""
        state += f"{of}, {last['elapsed'] / 60:.1f} minutes of training."
    validations = [record for record in metrics if record["split"] == "valid"]
    latest = {f"{name}, validation": f"{one[key]:.1f}" for one in validations[-1:] for name, key in _SCORES}
    return fill(
        "watch.html",
        name=run.name,
        state=state,
        scores=scores(latest) if latest else Html(),
        curves=joined(charts),
        more_curves=folded("More curves", _charts(more_charts)),
        settings=folded("Settings", _preformatted(config.to_toml())) if config else Html(),
    )


def _line_charts(metrics: Sequence[Mapping[str, Any]], chosen: Sequence[int]) -> tuple[list[Html], list[Html]]:
    """Return the curves that matter most, and more of them; `chosen` are the steps of the published weights."""
    train = [record for record in metrics if record.get("split") == "train"]
    valid = [record for record in metrics if record.get("split") == "valid"]
    curves = [
        line_chart(
            "Validation, greedy translations",
            {"BLEU": _curve(valid, "bleu"), "chrF": _curve(valid, "chrf")},
            chosen=chosen,
            missing="No scores: the run has no record of a validation that translated.",
        ),
        line_chart(
            "Loss per target token (nats)",
            {"training": _curve(train, "nll"), "validation": _curve(valid, "nll")},
            chosen=chosen,
            missing="No loss: the run ended before its first record.",
        ),
    ]
    more_curves = [
        line_chart("Guided alignment, nats per linked target token", {"training": _curve(train, "alignment")}),
        line_chart("Learning rate", {"learning rate": _curve(train, "lr")}),
        line_chart("Target tokens per second", {"speed": _curve(train, "tokens_per_second")}),
    ]
    return curves, more_curves


def _direction(answer: Answer) -> Html:
    doubt = fill("training_report_parts.html#doubt", text=answer.doubt) if answer.doubt else ""
    return fill("training_report_parts.html#direction", direction=answer.direction, doubt=doubt)


def _verdict(sentences: Sequence[str]) -> Html:
    """Return the first sentences, and the rest folded."""
    first, rest = (
        joined(fill("training_report_parts.html#sentence", text=with_code(sentence)) for sentence in part)
        for part in (sentences[:_FIRST_SENTENCES], sentences[_FIRST_SENTENCES:])
    )
    return joined([first, folded("More on this", rest)])


def _charts(charts: Iterable[Html]) -> Html:
    content = joined(charts)
    return fill("training_report_parts.html#charts", charts=content) if content else content


def _preformatted(text: str) -> Html:
    return fill("training_report_parts.html#preformatted", text=text)


def _across_lengths(judged: Sequence[Judged]) -> list[Judged]:
    """Return translations of sources from the shortest to the longest, at even distances; the first rows, too."""
    by_length = sorted(judged, key=lambda sample: len(sample.translation.source))
    drawn = spread(len(judged), _NUM_SAMPLES)
    first = [drawn[place] for place in spread(len(drawn), _FIRST_SAMPLES)]
    return [by_length[place] for place in [*first, *(place for place in drawn if place not in first)]]


def _table(judged: Sequence[Judged], shown: int) -> Html:
    if not judged:
        return paragraph("No validation sentence was translated.")
    rows = [
        (
            *map(long_text, (sample.translation.source, sample.translation.text, sample.reference)),
            f"{sample.translation.score:.2f}",
            f"{sample.chrf:.1f}",
        )
        for sample in judged
    ]
    heads = ("source", "translation", "reference", "log-probability", "chrF")
    kinds = ("text", "text", "text", "number", "number")
    return table(kinds, rows, heads=heads, classes="stacked texts", shown=shown)


def _warnings(judged: Sequence[Judged]) -> Html:
    """Return a table of the quality flags of translations, with counts and the first examples."""
    details: dict[str, list[str]] = {}
    for sample in judged:
        for flag in sample.translation.warnings:
            details.setdefault(flag.kind, []).append(flag.detail)
    if not details:
        return paragraph("Nothing.")
    rows = [
        (f"{len(details[kind]):,}", KINDS[kind].meaning, lines(list(dict.fromkeys(details[kind]))[:_NUM_DETAILS]))
        for kind in KINDS
        if kind in details
    ]
    heads = ("lines", "what", "for example")
    return table(("number", "text", "text"), rows, heads=heads, classes="stacked texts", shown=_FIRST_WARNINGS)


def _attention(explanation: Explanation) -> Html:
    return figure(
        explanation.translation, _grid(explanation.target_tokens, explanation.source_tokens, explanation.alignment)
    )


def _grid(target: Sequence[str], source: Sequence[str], weights: Float32[np.ndarray, "T S"]) -> Html:
    return attention_grid(list(map(visible, target)), list(map(visible, source)), weights)


def _learning(head: AlignmentHead, learned: Sequence[LearnedPair]) -> Html:
    """Return attention maps of a few pairs at several steps of training."""
    if not learned:
        return paragraph("No validation pair is short enough for a small picture, or nothing was kept of it.")
    rows = []
    for pair in learned:
        shown = [pair.cross[place] for place in spread(len(pair.cross), _MOST_STEPS)]
        maps = [(step, head.of(weights)) for step, weights in shown]
        pictures = [figure(f"step {step:,}", attention_map(weights)) for step, weights in maps[:-1]]
        step, last = maps[-1]
        pictures.append(figure(f"step {step:,}", _grid(pair.target_tokens, pair.source_tokens, last)))
        rows.append(figures_in_a_row(pictures))
    about = (
        f"The same for the first short validation pairs and their references, at {len(maps)} of "
        f"{len(learned[0].cross)} validations."
    )
    return joined([paragraph(about), *rows])


def _curve(records: Sequence[Mapping[str, Any]], name: str) -> Curve:
    return [(record["step"], record[name]) for record in records if name in record]


def _by_length(judged: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """Return the mean chrF of sentences in length groups of about equal size, shortest first."""
    sizes = np.array([len(sample.translation.source) for sample in judged])
    if not judged:
        return {}
    ends = np.unique(np.quantile(sizes, np.arange(1, 6) / 5, method="higher"))
    bars, longer_than = {}, 0
    for end in ends:
        group = [sample.chrf for sample, size in zip(judged, sizes, strict=True) if longer_than < size <= end]
        if group:
            bars[f"{longer_than + 1}-{end}"] = {"mean chrF": float(np.mean(group))}
        longer_than = end
    return bars


def _histogram(lengths: Mapping[str, Int[np.ndarray, " pairs"]]) -> dict[str, dict[str, float]]:
    """Return the percentage of pairs in each length group, for both sides. The longest 1% share the last group."""
    longest = max(int(np.quantile(sizes, 0.99)) for sizes in lengths.values())
    step = max(1, -(-longest // (_MOST_BARS - 1)))
    bars = {}
    for start in range(1, step * _MOST_BARS + 1, step):
        is_last = start + step > step * (_MOST_BARS - 1) + 1
        label = f"{start}+" if is_last else f"{start}-{start + step - 1}" if step > 1 else str(start)
        end = np.inf if is_last else start + step
        bars[label] = {side: 100 * float(np.mean((sizes >= start) & (sizes < end))) for side, sizes in lengths.items()}
    return bars
