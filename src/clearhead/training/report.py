"""`report.html`: learning curves and sample translations of a run, in one file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from clearhead.config import Config
from clearhead.files import write_text
from clearhead.translator import Translation

__all__ = ["write_report"]

_WIDTH, _HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 14, 38

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #667; --line: #d8dbe0; --paper: #fff;
  --a: #2563eb; --b: #d97706; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #9aa0aa; --line: #3a3f47; --paper: #16181c; --a: #7aa7ff; --b: #f5b04c; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; flex: 1 1 22rem; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--soft); }
.legend span { margin-right: 1rem; font-size: .85rem; } .legend i { display: inline-block; width: 1.2em; height: .2em;
  vertical-align: middle; margin-right: .4em; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; padding: .35rem .6rem;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; } th { color: var(--soft); font-weight: 600; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.scroll, pre { overflow-x: auto; }
"""

Curve = Sequence[tuple[float, float]]


def write_report(
    path: Path,
    *,
    config: Config,
    summary: Mapping[str, str],
    metrics: Sequence[Mapping[str, Any]],
    samples: Sequence[tuple[Translation, str]],
    data_lines: Sequence[str],
) -> None:
    """Write the report, whole or not at all.

    Args:
        path: `report.html` of the run.
        config: Complete settings.
        summary: What to say first: names and values.
        metrics: Records of `metrics.jsonl`.
        samples: Translations of validation sentences, each with its reference.
        data_lines: What became of the corpus, line by line.
    """
    train = [record for record in metrics if record.get("split") == "train"]
    valid = [record for record in metrics if record.get("split") == "valid"]
    charts = [
        _chart("Loss per target token (nats)", {"training": _curve(train, "nll"), "validation": _curve(valid, "nll")}),
        _chart("Validation, greedy translations", {"BLEU": _curve(valid, "bleu"), "chrF": _curve(valid, "chrf")}),
        _chart("Learning rate", {"learning rate": _curve(train, "lr")}),
        _chart("Target tokens per second", {"speed": _curve(train, "tokens_per_second")}),
    ]
    sample_rows = "".join(
        f"<tr><td>{escape(t.source)}</td><td>{escape(t.text)}</td><td>{escape(reference)}</td>"
        f'<td class="number">{t.score:.2f}</td></tr>'
        for t, reference in samples
    )
    summary_rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in summary.items()
    )
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>clearhead: {escape(path.parent.name)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(path.parent.name)}</h1>
<table>{summary_rows}</table>
<h2>Learning curves</h2><div class="charts">{"".join(charts)}</div>
<h2>Sample translations of validation sentences</h2>
<div class="scroll"><table><tr><th>source</th><th>translation</th><th>reference</th><th>log-probability</th></tr>
{sample_rows}</table></div>
<h2>Data</h2><pre>{escape(chr(10).join(data_lines))}</pre>
<details><summary>Settings</summary><pre>{escape(config.to_toml())}</pre></details>
</body></html>
"""
    write_text(path, page)


def _curve(records: Sequence[Mapping[str, Any]], name: str) -> Curve:
    return [(record["step"], record[name]) for record in records if name in record]


def _chart(title: str, curves: Mapping[str, Curve]) -> str:
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return ""
    steps = _ticks(0.0, max(x for x, _ in points) or 1.0, 4)
    low, high = min(y for _, y in points), max(y for _, y in points)
    heights = _ticks(0.0 if 0 < low < high / 2 else low, high, 5)
    low, spread = heights[0], heights[-1] - heights[0]

    def across(x: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * x / steps[-1]

    def down(y: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1.0 - (y - low) / spread)

    grid = ""
    for value in heights:
        y = down(value)
        grid += f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
        grid += f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
    for step in steps:
        grid += f'<text x="{across(step):.1f}" y="{_HEIGHT - 18}" text-anchor="middle">{_number(step)}</text>'
    grid += f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">step</text>'
    lines, legend = "", ""
    for colour, (name, curve) in zip(("var(--a)", "var(--b)"), curves.items(), strict=False):
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in curve)
        lines += f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
        if len(curve) == 1:
            [(x, y)] = curve
            lines += f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3" fill="{colour}"/>'
        legend += f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{grid}{lines}</svg>'
        f'<div class="legend">{legend}</div></figure>'
    )


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Return round numbers, evenly spaced, from at most `low` to at least `high`."""
    rough = (high - low) / about or abs(high) / about or 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
