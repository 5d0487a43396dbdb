"""Charts as SVG: line charts, bar charts and attention heat maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

import numpy as np

from clearhead.pages import Html, fill, joined
from clearhead.pages.parts import figure, paragraph

if TYPE_CHECKING:
    from jaxtyping import Float

Curve = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 14, 38
_COLOURS = ("var(--a)", "var(--b)", "var(--c)", "var(--d)", "var(--e)", "var(--f)")
MOST_CURVES = len(_COLOURS)
"""Maximum curves of a chart: as many as there are colours to tell them apart."""
_MOST_HOVERS = 100
"""Maximum number of points of a curve whose values are shown on pointing; a long run has thousands."""


def line_chart(
    title: str,
    curves: Mapping[str, Curve],
    *,
    chosen: Sequence[int] = (),
    missing: str = "",
    below: str = "step",
    is_doubling: bool = False,
) -> Html:
    """Return a line chart of curves over training steps, at most `MOST_CURVES`. Pointing at a curve shows its values.

    The vertical axis starts at zero, so that a nearly constant curve looks constant.

    Args:
        title: Title of the chart.
        curves: The curves, by name.
        chosen: Steps of the published weights, which are marked.
        missing: What is shown if the curves have no points; empty for no chart at all then.
        below: Label of the horizontal axis, if the curves are over something else.
        is_doubling: Whether both axes are logarithmic; they begin at 1, or at the least value.
    """
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return figure(title, paragraph(missing)) if missing else Html()
    last, highest = (max(side) or 1.0 for side in zip(*points, strict=True))
    lowest = min(1.0, *(y for _, y in points)) if is_doubling else 0.0

    def share(value: float, low: float, high: float) -> float:
        return math.log2(value / low) / (math.log2(high / low) or 1.0) if is_doubling else value / high

    def across(x: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share(x, 1.0, last)

    def down(y: float) -> float:
        return _down(share(y, lowest, highest), 1.0)

    ticks = _powers(last) if is_doubling else _ticks(last, 4)
    far = _WIDTH - _RIGHT - 0.12 * (_WIDTH - _LEFT - _RIGHT)  # a label near the last would overlap it
    steps = [*(step for step in ticks if across(step) < far), last]
    drawn = "".join(_label(across(step), _number(step)) for step in steps)
    for step in chosen:
        at = f"{across(min(step, last)):.1f}"
        drawn += f'<line x1="{at}" x2="{at}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="var(--soft)" '
        drawn += f'stroke-dasharray="4 3"><title>published: step {step:,}</title></line>'
    hovers = ""
    for colour, (name, curve) in zip(_COLOURS, curves.items(), strict=False):
        places = [(across(x), down(y)) for x, y in curve]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn += f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
        if len(places) == 1:
            drawn += f'<circle cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3" fill="{colour}"/>'
        for place in spread(len(curve), _MOST_HOVERS):
            (x, y), (of_step, value) = places[place], curve[place]
            hovers += f'<circle class="hover" cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}">'
            hovers += f"<title>{escape(name)}, {escape(below)} {of_step:,}: {_number(value)}</title></circle>"
    marks = [f"published: step {', '.join(f'{step:,}' for step in chosen)}"] if chosen else []
    grid = {value: down(value) for value in (_powers(highest) if is_doubling else _ticks(highest, 5))}
    return _figure(title, below, grid, drawn + hovers, list(curves), marks)


def bar_chart(title: str, below: str, bars: Mapping[str, Mapping[str, float]]) -> Html:
    """Return a grouped bar chart, empty if there are no bars.

    Args:
        title: Title of the chart: the quantity that the bars measure.
        below: Label of the horizontal axis: what the groups are.
        bars: For each group's label, the name and height of its bars. All groups have the same one or two names.
    """
    if not bars:
        return Html()
    names = list(next(iter(bars.values())))
    highest = max(height for group in bars.values() for height in group.values()) or 1.0
    room = (_WIDTH - _LEFT - _RIGHT) / len(bars)
    width = 0.8 * room / len(names)
    drawn = ""
    for number, (label, group) in enumerate(bars.items()):
        left = _LEFT + room * (number + 0.1)
        for place, (colour, (name, height)) in enumerate(zip(_COLOURS, group.items(), strict=False)):
            y = _down(height, highest)
            drawn += (
                f'<rect x="{left + place * width:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{_HEIGHT - _BOTTOM - y:.1f}" fill="{colour}">'
                f"<title>{escape(name)}, {escape(label)}: {_number(height)}</title></rect>"
            )
        drawn += _label(left + 0.4 * room, label)
    return _figure(title, below, {value: _down(value, highest) for value in _ticks(highest, 5)}, drawn, names)


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` indices spread evenly over `count` items, including the first and the last."""
    return sorted({round(place * (count - 1) / max(1, most - 1)) for place in range(most)}) if count else []


def attention_map(weights: Float[np.ndarray, "T S"]) -> Html:
    """Return a small attention heat map without labels."""
    num_rows, num_columns = weights.shape
    size = f'viewBox="0 0 {num_columns} {num_rows}" style="max-width: {9 * num_columns}px"'
    return Html(f'<svg class="map" {size} role="img" aria-label="attention">{_squares(weights)}</svg>')


def attention_grid(rows: Sequence[str], columns: Sequence[str], weights: Float[np.ndarray, "T S"]) -> Html:
    """Return a labelled attention heat map, darker for more: a row per target token, a column per source token."""
    size, left = 18, 10 + 7 * max(map(_width, rows))
    top = 10 + 7 * max(map(_width, columns))
    width, height = left + size * len(columns) + 4, top + size * len(rows) + 4
    drawn = ""
    for column, token in enumerate(columns):
        x = left + size * (column + 0.7)
        drawn += f'<text x="{x:.0f}" y="{top - 4}" transform="rotate(-90 {x:.0f} {top - 4})">{escape(token)}</text>'
    for row, token in enumerate(rows):
        drawn += f'<text x="{left - 4}" y="{top + size * (row + 0.7):.0f}" text-anchor="end">{escape(token)}</text>'
    drawn += f'<g transform="translate({left} {top}) scale({size})">{_squares(weights)}</g>'
    box = f'viewBox="0 0 {width} {height}" style="max-width: {width}px"'
    return Html(f'<svg {box} role="img" aria-label="attention">{drawn}</svg>')


def _squares(weights: Float[np.ndarray, "T S"]) -> str:
    """Return a square of side 1 for each weight that is large enough to be visible."""
    squares = (
        f'<rect x="{column}" y="{row}" width=".94" height=".94" opacity="{weight:.2f}"/>'
        for (row, column), weight in np.ndenumerate(weights)
        if weight >= 0.005
    )
    return f'<g fill="var(--a)">{"".join(squares)}</g>'


def _width(text: str) -> int:
    """Return the display width of a text in columns; wide East Asian characters count as two."""
    return sum(1 + (east_asian_width(character) in "WF") for character in text)


def _figure(
    title: str, below: str, heights: Mapping[float, float], drawn: str, names: Sequence[str], marks: Sequence[str] = ()
) -> Html:
    """Return a chart with its grid, whose lines of values are at these heights, as far as they are within."""
    grid = ""
    for value, y in heights.items():
        if y < _TOP:
            break
        grid += f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
        grid += f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    grid += f'<text x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(below)}</text>'
    legend = joined(
        fill("report_parts.html#legend", colour=colour, name=name)
        for colour, name in [*zip(_COLOURS, names, strict=False), *(("var(--soft)", mark) for mark in marks)]
    )
    drawing = Html(grid + drawn)
    values = {"width": _WIDTH, "height": _HEIGHT, "title": title, "content": drawing, "legend": legend}
    return figure(title, fill("report_parts.html#chart", **values))


def _down(y: float, highest: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1.0 - y / highest)


def _label(x: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{_HEIGHT - 20}" text-anchor="middle">{escape(text)}</text>'


def _ticks(high: float, about: int) -> list[float]:
    """Return round numbers, evenly spaced, from zero to at least `high`."""
    rough = high / about or 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    return [step * number for number in range(max(math.ceil(high / step - 1e-9), 1) + 1)]


def _powers(high: float) -> list[float]:
    """Return the powers of 4 from 1 to `high`."""
    return [4.0**power for power in range(int(math.log2(high) / 2) + 1)] if high >= 1.0 else []


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
