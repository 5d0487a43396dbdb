"""Figures of all heads and of a search tree: their plain values, and their drawing with matplotlib.

Shapes: L layers, H heads, T rows, S columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.inspection.canvas import (
    SHARE_TICKS,
    PictureFormat,
    canvas,
    hatch,
    ink_on,
    legend_of,
    share_colours,
    token_label,
)

if TYPE_CHECKING:
    from jaxtyping import Float

_CHOSEN, _KEPT, _PRUNED, _FINISHED = "#0072B2", "#444444", "#999999", "#009E73"
_NODE_WIDTH, _NODE_HEIGHT = 1.25, 0.42
"""Width of a step and height of a hypothesis, in inches."""
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#8C6D00", "#332288")
"""Colours of target tokens, distinguishable with the common colour blindnesses, readable as text on white."""
_LETTER_WIDTH = 0.135
"""Width of a letter of linked tokens, in inches."""
_LEAST_DRAWN = 0.08
"""Least weight of a link that is drawn."""
_BAND = 12
"""Steps per row of the tree; further steps are drawn below."""


@dataclass(frozen=True, eq=False)
class HeadGrid:
    """Attention maps of every head of every layer, darkest at 0; attentions one below the other."""

    title: str
    parts: Sequence[tuple[str, Float[np.ndarray, "L H T S"]]]
    """Title and weights of each attention; NaN for a masked cell, which is hatched."""
    caption: str = ""
    row_names: Sequence[str] | None = None
    """Names of the rows of maps; None numbers them as layers."""
    column_names: Sequence[str] | None = None
    """Names of the columns of maps; None numbers them as heads."""


@dataclass(frozen=True, eq=False)
class HeadValues:
    """One value per head of every layer; attentions side by side."""

    title: str
    parts: Sequence[tuple[str, Float[np.ndarray, "L H"]]]
    value_label: str
    diverging: bool = False
    """Colours from blue over white to red around zero, for values of either sign."""
    caption: str = ""


@dataclass(frozen=True, eq=False)
class Links:
    """Source tokens above target tokens, and lines between them, as thick as their weights."""

    title: str
    source: Sequence[str]
    target: Sequence[str]
    weights: Float[np.ndarray, "T S"]
    """Shares: each row sums to 1."""
    caption: str = ""


@dataclass(frozen=True)
class TreeNode:
    """A hypothesis of a search."""

    parent: int | None
    """Index among the nodes of the hypothesis it extends."""
    step: int
    """Step number, counted from 1."""
    label: str
    detail: str
    """A short line below the label."""
    fate: str
    """`chosen`, `kept`, `finished`, or any other value for a pruned hypothesis."""


@dataclass(frozen=True)
class Tree:
    """A search: one column per step, the best candidate at its top."""

    title: str
    nodes: Sequence[TreeNode]
    caption: str = ""


def draw_head_grid(grid: HeadGrid, form: PictureFormat = "png") -> bytes:
    """Draw the attention maps of all heads."""
    num_columns = max(weights.shape[1] for _, weights in grid.parts)
    side = 1.05 if num_columns <= 8 else 0.8
    heights = []
    for _, weights in grid.parts:
        num_layers, _, num_rows, num_keys = weights.shape
        heights.append(num_layers * min(max(num_rows / num_keys, 0.5), 2.0))
    size = (1.6 + side * num_columns, 1.3 + sum(side * height + 0.55 for height in heights))
    with canvas((max(5.0, size[0]), size[1]), grid.title, grid.caption, form) as (figure, written):
        from matplotlib import colormaps

        colours = colormaps["viridis"].with_extremes(under="white")
        places = figure.add_gridspec(len(grid.parts), 1, height_ratios=heights)
        for place, (name, weights) in zip(places, grid.parts, strict=True):
            axes = figure.add_subplot(place)
            axes.grid(visible=False)
            if is_masked := bool(np.isnan(weights).any()):
                hatch(axes)
            image = axes.imshow(
                _tiled(weights), aspect="auto", interpolation="nearest", cmap=colours, norm=share_colours()
            )
            _mark_tiles(axes, weights, grid)
            axes.set_title(f"{name} (hatched: masked)" if is_masked else name)
        legend = legend_of(size[1])
        bar = figure.colorbar(image, ax=figure.axes, label="weight", ticks=SHARE_TICKS, **legend)
        bar.outline.set_visible(False)
    return written.getvalue()


def draw_head_values(values: HeadValues, form: PictureFormat = "png") -> bytes:
    """Draw one value per head."""
    num_layers = max(part.shape[0] for _, part in values.parts)
    num_heads = sum(part.shape[1] for _, part in values.parts)
    size = (2.0 + 0.62 * num_heads + 0.5 * len(values.parts), 1.9 + 0.5 * num_layers)
    with canvas((max(5.4, size[0]), max(3.0, size[1])), values.title, values.caption, form) as (figure, written):
        every = np.concatenate([part.ravel() for _, part in values.parts])
        limit = max(float(np.abs(every).max()), 1e-9)
        digits = max(0, 1 - math.floor(math.log10(limit)))  # two digits of the largest value
        lowest = -limit if values.diverging else 0.0
        places = figure.add_gridspec(1, len(values.parts), width_ratios=[part.shape[1] for _, part in values.parts])
        for place, (name, part) in zip(places, values.parts, strict=True):
            axes = figure.add_subplot(place)
            axes.grid(visible=False)
            cmap = "RdBu_r" if values.diverging else "viridis"
            image = axes.imshow(part, aspect="auto", cmap=cmap, vmin=lowest, vmax=limit)
            for (layer, head), value in np.ndenumerate(part):
                ink = ink_on(image, value)
                axes.text(head, layer, f"{value:.{digits}f}", ha="center", va="center", color=ink, fontsize=8)
            axes.set_title(name)
            axes.set_xlabel("head")
            axes.set_xticks(range(part.shape[1]), range(1, part.shape[1] + 1))
            axes.set_yticks(range(part.shape[0]), range(1, part.shape[0] + 1))
        figure.axes[0].set_ylabel("layer")
        figure.colorbar(image, ax=figure.axes, label=values.value_label, pad=0.02).outline.set_visible(False)
    return written.getvalue()


def draw_tree(tree: Tree, form: PictureFormat = "png") -> bytes:
    """Draw the tree of a search."""
    rows: dict[int, int] = {}  # number of nodes drawn in each step
    places = []
    for node in tree.nodes:
        places.append((node.step, -rows.get(node.step, 0)))
        rows[node.step] = rows.get(node.step, 0) + 1
    num_steps, num_rows = max(rows), max(rows.values())
    bands = [range(first, min(first + _BAND, num_steps + 1)) for first in range(1, num_steps + 1, _BAND)]
    width, height = min(num_steps, _BAND), _NODE_HEIGHT * num_rows + 0.6
    size = (1.0 + _NODE_WIDTH * width, 1.0 + height * len(bands))
    with canvas((max(5.4, size[0]), size[1]), tree.title, tree.caption, form) as (figure, written):
        places_of_bands = figure.add_gridspec(len(bands), 1)
        for place_of_band, band in zip(places_of_bands, bands, strict=True):
            axes = figure.add_subplot(place_of_band)
            for node, place in zip(tree.nodes, places, strict=True):
                if node.step not in band:
                    continue
                _draw_node(axes, node, place)
                if node.parent is not None:  # an edge from the band before enters from the margin
                    _draw_edge(axes, places[node.parent], place, node.fate)
            axes.set_xlim(band[0] - 0.6, band[0] + width - 0.4)
            axes.set_ylim(-num_rows + 0.4, 0.6)
            axes.set_xticks(list(band))
            axes.set_yticks([])
            axes.grid(visible=False)
            axes.spines["left"].set_visible(False)
        axes.set_xlabel("step")
    return written.getvalue()


def draw_links(links: Links, form: PictureFormat = "png") -> bytes:
    """Draw two rows of tokens and the lines between them."""
    places = [_centres(tokens) for tokens in (links.source, links.target)]
    width = max(right for _, right in places)
    starts = [[(width - right) / 2 + centre for centre in centres] for centres, right in places]
    with canvas((1.0 + width * _LETTER_WIDTH, 2.4), links.title, links.caption, form) as (figure, written):
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_xlim(0, width)
        axes.set_ylim(-0.15, 1.15)
        for height, tokens, centres in ((1.0, links.source, starts[0]), (0.0, links.target, starts[1])):
            for number, (token, centre) in enumerate(zip(tokens, centres, strict=True)):
                colour = "#222222" if height else _PALETTE[number % len(_PALETTE)]
                axes.text(centre, height, token_label(token), ha="center", va="center", fontsize=13, color=colour)
        for target, row in enumerate(links.weights):
            for source, weight in enumerate(row):
                if weight >= _LEAST_DRAWN:
                    axes.plot(
                        [starts[0][source], starts[1][target]],
                        [0.86, 0.14],
                        color=_PALETTE[target % len(_PALETTE)],
                        linewidth=0.5 + 4.0 * weight,
                        alpha=0.25 + 0.75 * weight,
                        solid_capstyle="round",
                    )
    return written.getvalue()


def _centres(tokens: Sequence[str]) -> tuple[list[float], float]:
    """Return the centres of tokens in a row, in widths of letters, and the end of the row."""
    at, centres = 0.0, []
    for token in tokens:
        size = max(2, len(token_label(token)))
        centres.append(at + size / 2)
        at += size + 1.5
    return centres, at


def _draw_edge(axes: Any, start: tuple[int, int], end: tuple[int, int], fate: str) -> None:
    colour, width, order = {
        "chosen": (_CHOSEN, 2.2, 3),
        "kept": (_KEPT, 0.9, 2),
        "finished": (_FINISHED, 1.2, 2),
    }.get(fate, ("#cccccc", 0.6, 1))
    axes.plot([start[0] + 0.36, end[0] - 0.36], [start[1], end[1]], color=colour, linewidth=width, zorder=order)


def _draw_node(axes: Any, node: TreeNode, place: tuple[int, int]) -> None:
    colour = {"chosen": _CHOSEN, "kept": _KEPT, "finished": _FINISHED}.get(node.fate, _PRUNED)
    is_chosen = node.fate == "chosen"
    axes.text(
        place[0],
        place[1] + 0.14,
        token_label(node.label),
        ha="center",
        va="center",
        fontsize=8.5 if len(node.label) < 12 else 6.5,
        color=colour,
        fontweight="bold" if is_chosen else "normal",
        zorder=4,
    )
    axes.text(place[0], place[1] - 0.24, node.detail, ha="center", va="center", fontsize=6, color=colour, zorder=4)


def _tiled(weights: Float[np.ndarray, "L H T S"]) -> Float[np.ndarray, "rows columns"]:
    """Return all maps in one array, layers below each other and heads side by side, with gaps below 0 between them."""
    num_layers, num_heads, height, width = weights.shape
    gaps = _gap(height), _gap(width)
    tiled = np.full((num_layers * (height + gaps[0]), num_heads * (width + gaps[1])), -1.0)
    for layer, head in np.ndindex(num_layers, num_heads):
        top, left = layer * (height + gaps[0]), head * (width + gaps[1])
        tiled[top : top + height, left : left + width] = weights[layer, head]
    return tiled[: -gaps[0], : -gaps[1]]


def _gap(length: int) -> int:
    return max(1, round(length * 0.06))


def _mark_tiles(axes: Any, weights: Float[np.ndarray, "L H T S"], grid: HeadGrid) -> None:
    """Label rows and columns of maps, and hide the frame."""
    num_layers, num_heads, height, width = weights.shape
    rows = [layer * (height + _gap(height)) + (height - 1) / 2 for layer in range(num_layers)]
    columns = [head * (width + _gap(width)) + (width - 1) / 2 for head in range(num_heads)]
    axes.set_yticks(rows, grid.row_names or [f"layer {layer + 1}" for layer in range(num_layers)])
    axes.set_xticks(columns, grid.column_names or [f"head {head + 1}" for head in range(num_heads)])
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
