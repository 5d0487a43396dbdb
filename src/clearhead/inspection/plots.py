"""Line plots and heat maps as plain values; matplotlib drawings of every kind of figure as PNG or SVG.

Lines are on linear or logarithmic axes; `pictures` has figures of all heads and of a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from clearhead.inspection.canvas import SHARE_TICKS, PictureFormat, canvas, hatch, ink_on, legend_of, share_colours
from clearhead.inspection.pictures import (
    HeadGrid,
    HeadValues,
    Links,
    Tree,
    draw_head_grid,
    draw_head_values,
    draw_links,
    draw_tree,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Okabe and Ito's palette, distinguishable with any of the common colour blindnesses; its yellow is left out, since it
# is faint on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: dict[str, Any] = {"solid": "-", "dashed": (0, (5, 2.5)), "dotted": (0, (1, 1.5))}
_MOST_VALUES_SHOWN = 100
Style = Literal["solid", "dashed", "dotted", "points"]


@dataclass(frozen=True)
class Series:
    """One line, or the points of one measurement."""

    name: str
    """Name in the legend; empty for a line without one."""
    x: Sequence[float]
    y: Sequence[float]
    style: Style = "solid"
    """`points` draws markers without a line."""
    colour: int | None = None
    """Index in the palette; None uses the index of the series in its panel. Two series may share a colour."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its lines."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    x_ticks: Sequence[float] | None = None
    """Tick positions of the horizontal axis; None leaves them to matplotlib."""
    x_names: Sequence[str] | None = None
    """Names at the ticks; None shows their numbers."""
    room_for_legend: bool = False
    """Whether a logarithmic axis has room for the legend above lines that fill the panel."""


@dataclass(frozen=True)
class LinePlot:
    """Panels side by side, at most three in a row."""

    title: str
    panels: Sequence[Panel]
    caption: str = ""


@dataclass(frozen=True)
class HeatMap:
    """A matrix as colours, its first row at the top; a small one shows its values as well."""

    title: str
    values: Sequence[Sequence[float]]
    """NaN for a masked cell, which is hatched."""
    x_label: str
    y_label: str
    value_label: str
    diverging: bool = False
    """Colours from blue over white to red around zero, for values of either sign."""
    x_names: Sequence[str] | None = None
    """Names of the columns, such as tokens; None shows their numbers."""
    y_names: Sequence[str] | None = None
    caption: str = ""
    are_shares: bool = False
    """Values from 0 to 1 on a square-root colour scale, so that small values can be distinguished."""


@dataclass(frozen=True)
class HeatMaps:
    """Matrices side by side, at most two in a row, each with its own colour scale."""

    title: str
    maps: Sequence[HeatMap]
    caption: str = ""


Figure = LinePlot | HeatMap | HeatMaps | HeadGrid | HeadValues | Links | Tree


def draw(figure: Figure, form: PictureFormat = "png") -> bytes:
    """Return a figure as PNG or SVG.

    Raises:
        ClearheadError: If matplotlib is not installed.
    """
    match figure:
        case LinePlot():
            return draw_lines(figure, form)
        case HeatMap():
            return draw_heatmap(figure, form)
        case HeatMaps():
            return draw_heatmaps(figure, form)
        case HeadGrid():
            return draw_head_grid(figure, form)
        case HeadValues():
            return draw_head_values(figure, form)
        case Links():
            return draw_links(figure, form)
        case Tree():
            return draw_tree(figure, form)


def draw_lines(plot: LinePlot, form: PictureFormat = "png") -> bytes:
    """Draw panels of lines; see `draw`."""
    columns = min(3, len(plot.panels))
    rows = math.ceil(len(plot.panels) / columns)
    size = (7.2, 4.4) if len(plot.panels) == 1 else (4.5 * columns, 3.9 * rows + 0.4)
    with canvas(size, plot.title, plot.caption, form) as (figure, written):
        for number, panel in enumerate(plot.panels, start=1):
            _fill(figure.add_subplot(rows, columns, number), panel)
    return written.getvalue()


def draw_heatmap(heat: HeatMap, form: PictureFormat = "png") -> bytes:
    """Draw a matrix of colours; see `draw`."""
    width, height = _size_of(heat)
    with canvas((max(5.4, width), max(3.2, height)), heat.title, heat.caption, form) as (figure, written):
        _fill_map(figure.add_subplot(), heat, height)
    return written.getvalue()


def draw_heatmaps(grid: HeatMaps, form: PictureFormat = "png") -> bytes:
    """Draw several matrices of colours; see `draw`."""
    columns = min(2, len(grid.maps))
    rows = math.ceil(len(grid.maps) / columns)
    width, height = (max(sizes) for sizes in zip(*map(_size_of, grid.maps), strict=True))
    size = (columns * min(max(4.8, width), 6.4), rows * (min(height, 5.0) + 0.3) + 0.4)
    with canvas(size, grid.title, grid.caption, form) as (figure, written):
        for number, heat in enumerate(grid.maps, start=1):
            axes = figure.add_subplot(rows, columns, number)
            axes.set_title(heat.title)
            _fill_map(axes, heat, height)
    return written.getvalue()


def _size_of(heat: HeatMap) -> tuple[float, float]:
    """Return the width and height of a matrix in inches."""
    rows, columns = len(heat.values), len(heat.values[0])
    if _is_small(heat):
        return 2.6 + 0.9 * columns, 1.6 + 0.6 * rows
    return (2.9 + 0.22 * columns, 2.2 + 0.22 * rows) if _has_names(heat) else (7.6, 5.2)


def _is_small(heat: HeatMap) -> bool:
    return len(heat.values) * len(heat.values[0]) <= _MOST_VALUES_SHOWN


def _has_names(heat: HeatMap) -> bool:
    return heat.x_names is not None and heat.y_names is not None


def _fill_map(axes: Axes, heat: HeatMap, height: float) -> None:
    """Draw a matrix and its colour bar into axes of a height in inches."""
    rows, columns = len(heat.values), len(heat.values[0])
    axes.grid(visible=False)
    shown = [value for row in heat.values for value in row if not math.isnan(value)]
    is_masked = len(shown) < rows * columns
    if is_masked:
        hatch(axes)
    limit = max(map(abs, shown))
    image = axes.imshow(
        [list(row) for row in heat.values],
        aspect="auto",
        interpolation="nearest",
        cmap="RdBu_r" if heat.diverging else "viridis",
        **_scale_of(heat, limit),
    )
    if _is_small(heat):
        places = 0 if all(value == int(value) for value in shown) else 2
        for row, column in product(range(rows), range(columns)):
            value = heat.values[row][column]
            if math.isnan(value):
                continue
            ink = ink_on(image, value)
            axes.text(column, row, f"{value:.{places}f}", ha="center", va="center", color=ink, fontsize=9)
    ticks = SHARE_TICKS if heat.are_shares else None
    legend = legend_of(height) if _has_names(heat) else {"pad": 0.02}
    bar = axes.figure.colorbar(image, ax=axes, label=heat.value_label, ticks=ticks, **legend)
    bar.outline.set_visible(False)
    axes.set_xlabel(f"{heat.x_label}\nhatched: masked" if is_masked else heat.x_label)
    axes.set_ylabel(heat.y_label)
    if heat.x_names is not None:
        axes.set_xticks(range(columns), heat.x_names, rotation=_rotation(heat.x_names))
    if heat.y_names is not None:
        axes.set_yticks(range(rows), heat.y_names)


def _scale_of(heat: HeatMap, limit: float) -> dict[str, Any]:
    """Return the colour scale of a heat map."""
    if heat.are_shares:
        return {"norm": share_colours()}
    return {"vmin": -limit, "vmax": limit} if heat.diverging else {}


def _rotation(names: Sequence[str]) -> int:
    """Return the rotation in degrees at which neighbouring names do not overlap."""
    longest = max(map(len, names))
    return 90 if len(names) > 12 or longest > 9 or len(names) * longest > 70 else 0


def _fill(axes: Axes, panel: Panel) -> None:
    for place, series in enumerate(panel.series):
        colour = (place if series.colour is None else series.colour) % len(_COLOURS)
        is_points = series.style == "points"
        axes.plot(
            series.x,
            series.y,
            label=series.name or "_nolegend_",
            color=_COLOURS[colour],
            linestyle="none" if is_points else _DASHES[series.style],
            linewidth=1.6,
            marker=_MARKERS[colour] if is_points else None,
            markersize=5.5,
        )
    axes.set_xscale(panel.x_scale)
    axes.set_yscale(panel.y_scale)
    if panel.x_ticks is not None:
        names = panel.x_names or [f"{tick:g}" for tick in panel.x_ticks]
        axes.set_xticks(panel.x_ticks, names, rotation=_rotation(names))
        axes.minorticks_off()
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if any(series.name for series in panel.series):
        if panel.room_for_legend:
            bottom, top = axes.get_ylim()
            axes.set_ylim(top=top * (top / bottom) ** (0.07 * sum(bool(series.name) for series in panel.series)))
        axes.legend()
