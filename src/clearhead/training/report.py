"""The training report, `report.html`: one self-contained page with curves, sample translations and attention maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int

from clearhead.config import Config
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.files import write_text
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.tokens import visible
from clearhead.pages import style
from clearhead.text.quality_flags import KINDS
from clearhead.training.charts import Curve, attention_grid, attention_map, bar_chart, line_chart
from clearhead.translation.result import Translation

_NUM_SAMPLES = 20
_NUM_RANKED = 10
_NUM_DETAILS = 5
_MOST_BARS = 8
_MOST_STEPS = 6
_NONE = "<p>No translation is short enough for a small picture.</p>"


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
    summary: Mapping[str, str],
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
        summary: Names and values of the table at the top.
        metrics: Records of `metrics.jsonl`.
        judged: Translations of validation sentences.
        lengths: Tokens of every training source and of every training target, under the names of the two sides.
        head: Attention head that aligns words best.
        explanations: Explanations of a few sentences, for attention maps.
        learned: Validation pairs whose attention was logged during training.
        data_lines: Lines of counts: how many pairs were read, kept and dropped.
    """
    train = [record for record in metrics if record.get("split") == "train"]
    valid = [record for record in metrics if record.get("split") == "valid"]
    charts = [
        line_chart(
            "Loss per target token (nats)", {"training": _curve(train, "nll"), "validation": _curve(valid, "nll")}
        ),
        line_chart("Validation, greedy translations", {"BLEU": _curve(valid, "bleu"), "chrF": _curve(valid, "chrf")}),
        line_chart("Guided alignment, nats per linked target token", {"training": _curve(train, "alignment")}),
        line_chart("Learning rate", {"learning rate": _curve(train, "lr")}),
        line_chart("Target tokens per second", {"speed": _curve(train, "tokens_per_second")}),
    ]
    about_lengths = [
        bar_chart("chrF of validation sentences by length", "characters of the source", _by_length(judged)),
        bar_chart("Training pairs, in percent", "tokens", _histogram(lengths)),
    ]
    summary_rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in summary.items()
    )
    ranked = sorted(judged, key=lambda one: one.chrf)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>clearhead: {escape(path.parent.name)}</title><style>{style("report.css")}</style></head><body>
<h1>{escape(path.parent.name)}</h1>
<table>{summary_rows}</table>
<h2>Learning curves</h2><div class="charts">{"".join(charts)}</div>
<h2>Lengths</h2><div class="charts">{"".join(about_lengths)}</div>
<h2>Sample translations of validation sentences</h2>{_table(judged[:_NUM_SAMPLES])}
<h2>The worst of {len(judged):,} by chrF</h2>{_table(ranked[:_NUM_RANKED])}
<h2>The best of {len(judged):,} by chrF</h2>{_table(ranked[::-1][:_NUM_RANKED])}
<h2>What looks wrong with the {len(judged):,}</h2>{_warnings(judged)}
<h2>Where attention went</h2>{_about(head)}<div class="charts">{"".join(map(_attention, explanations)) or _NONE}</div>
{_learning(head, learned)}
<h2>Data</h2><pre tabindex="0">{escape(chr(10).join(data_lines))}</pre>
<details><summary>Settings</summary><pre tabindex="0">{escape(config.to_toml())}</pre></details>
</body></html>
"""
    write_text(path, page)


def _table(judged: Iterable[Judged]) -> str:
    titles = ("source", "translation", "reference", "log-probability", "chrF")
    rows = ""
    for one in judged:
        texts = (one.translation.source, one.translation.text, one.reference)
        cells = [f'<td title="{title}">{escape(text)}</td>' for title, text in zip(titles, texts, strict=False)]
        numbers = (f"{one.translation.score:.2f}", f"{one.chrf:.1f}")
        cells += [
            f'<td class="number" title="{title}">{value}</td>' for title, value in zip(titles[3:], numbers, strict=True)
        ]
        rows += f"<tr>{''.join(cells)}</tr>"
    heads = "".join(f"<th>{title}</th>" for title in titles)
    return f'<table class="texts"><tr>{heads}</tr>{rows}</table>'


def _warnings(judged: Sequence[Judged]) -> str:
    """Return a table of the quality flags of translations, with counts and the first examples."""
    details: dict[str, list[str]] = {}
    for one in judged:
        for flag in one.translation.warnings:
            details.setdefault(flag.kind, []).append(flag.detail)
    if not details:
        return "<p>Nothing.</p>"
    rows = ""
    for kind in (kind for kind in KINDS if kind in details):
        examples = "<br>".join(map(escape, list(dict.fromkeys(details[kind]))[:_NUM_DETAILS]))
        rows += (
            f'<tr><td class="number" title="lines">{len(details[kind]):,}</td>'
            f'<td title="what">{escape(KINDS[kind])}</td><td title="for example">{examples}</td></tr>'
        )
    return f'<table class="texts"><tr><th>lines</th><th>what</th><th>for example</th></tr>{rows}</table>'


def _about(head: AlignmentHead) -> str:
    return (
        f"<p>Rows are written, columns read; a stronger colour is more. Shown is {head}, which tells best which words "
        f"belong together; clearhead explain shows every head.</p>"
    )


def _attention(explanation: Explanation) -> str:
    grid = _grid(explanation.target_tokens, explanation.source_tokens, explanation.alignment)
    return f"<figure><figcaption>{escape(explanation.translation)}</figcaption>{grid}</figure>"


def _grid(target: Sequence[str], source: Sequence[str], weights: Float32[np.ndarray, "T S"]) -> str:
    return attention_grid(list(map(visible, target)), list(map(visible, source)), weights)


def _learning(head: AlignmentHead, learned: Sequence[LearnedPair]) -> str:
    """Return attention maps of a few pairs at several steps of training."""
    title = "<h2>How attention became an alignment</h2>"
    if not learned:
        return f"{title}<p>No validation pair is short enough for a small picture, or nothing was kept of it.</p>"
    rows = ""
    for pair in learned:
        shown = [pair.cross[place] for place in _spread(len(pair.cross), _MOST_STEPS)]
        grids = [(step, head.of_pair(weights)) for step, weights in shown]
        maps = "".join(
            f"<figure><figcaption>step {step:,}</figcaption>{attention_map(weights)}</figure>"
            for step, weights in grids[:-1]
        )
        step, last = grids[-1]
        labelled = _grid(pair.target_tokens, pair.source_tokens, last)
        rows += f'<div class="steps">{maps}<figure><figcaption>step {step:,}</figcaption>{labelled}</figure></div>'
    return (
        f"{title}<p>The same for the first short validation pairs and their "
        f"references, at {len(grids)} of {len(learned[0].cross)} validations.</p>{rows}"
    )


def _spread(count: int, most: int) -> list[int]:
    """Return at most `most` indices spread evenly over `count` items, including the first and the last."""
    return sorted({round(place * (count - 1) / max(1, most - 1)) for place in range(most)})


def _curve(records: Sequence[Mapping[str, Any]], name: str) -> Curve:
    return [(record["step"], record[name]) for record in records if name in record]


def _by_length(judged: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """Return the mean chrF of sentences in length groups of about equal size, shortest first."""
    sizes = np.array([len(one.translation.source) for one in judged])
    if not judged:
        return {}
    ends = np.unique(np.quantile(sizes, np.arange(1, 6) / 5, method="higher"))
    bars, longer_than = {}, 0
    for end in ends:
        group = [one.chrf for one, size in zip(judged, sizes, strict=True) if longer_than < size <= end]
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
