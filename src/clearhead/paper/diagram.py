"""Diagrams of boxes and arrows as plain values, and their drawing as SVG without matplotlib.

Coordinates are in pixels of a picture 390 wide, from its upper left corner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

Kind = Literal["embedding", "attention", "norm", "feed_forward", "linear", "softmax", "other"]
WIDTH = 390
COPY = 4
"""Distance of the edges behind a box."""
_CORNER = 6.0
_LINE_HEIGHT = 14.0

_COLOURS: dict[Kind, tuple[str, str]] = {
    "embedding": ("#fde0e0", "#5c3338"),
    "attention": ("#ffe2bf", "#5e4424"),
    "norm": ("#f3f4c0", "#4c4f26"),
    "feed_forward": ("#c6e8f7", "#214b5d"),
    "linear": ("#dddff2", "#3b3e61"),
    "softmax": ("#cdead3", "#2a5036"),
    "other": ("#eceff2", "#353b44"),
}
"""Colour of each kind of box on a light and on a dark page; those of the paper's figures."""
_PAGES = (
    {"page": "#ffffff", "frame": "#f6f8fa", "ink": "#1f2328", "soft": "#59636e"},
    {"page": "#0d1117", "frame": "#171c23", "ink": "#f0f6fc", "soft": "#a9b4c0"},
)
"""Colours of a light and of a dark page."""

# All rules are for this picture alone, though it may be part of a page. There are no custom properties: many programs
# that draw SVG, such as librsvg, do not know them.
_SHAPES = """
.paper text { font: 11.5px "Helvetica Neue", Arial, "Liberation Sans", sans-serif; }
.paper .name { font-size: 12px; }
.paper .head { font-size: 13px; font-weight: bold; }
.paper .box .small { font-size: 11px; }
.paper .line { fill: none; stroke-width: 1.2; }
.paper .dashed { stroke-dasharray: 4 3; }
.paper .box :is(rect, circle) { stroke-width: 1.1; }
.paper .box:is(:hover, :focus) :is(rect, circle) { stroke-width: 2.4; }
"""
_INKS = """
.paper .page { fill: %(page)s; }
.paper .frame { fill: %(frame)s; stroke: %(soft)s; }
.paper text, .paper .box .small, .paper .tip { fill: %(ink)s; }
.paper .shape, .paper .small { fill: %(soft)s; }
.paper .line, .paper .box { stroke: %(ink)s; }
.paper .box text { stroke: none; }
"""


def _style() -> str:
    """Return the rules for a light page, and those for a dark one where its reader prefers that."""
    light, dark = (
        _INKS % page + "".join(f".paper .{kind} {{ fill: {colours[place]}; }}\n" for kind, colours in _COLOURS.items())
        for place, page in enumerate(_PAGES)
    )
    return f"{_SHAPES}{light}@media (prefers-color-scheme: dark) {{{dark}}}\n"


@dataclass(frozen=True)
class Node:
    """A box with its name and a smaller line below it, a link to its code, and what is shown on pointing at it."""

    x: float
    """Centre."""
    y: float
    """Centre."""
    width: float
    height: float
    name: Sequence[str]
    """Lines of the name; a single `+` is drawn in a circle."""
    detail: str
    kind: Kind
    file: str
    """File of its code, within the package."""
    line: int
    """Line of that file."""
    title: str
    """Shown on pointing at it, and read aloud."""
    copies: int = 0
    """Edges of further boxes that are seen behind it."""


@dataclass(frozen=True)
class Polyline:
    """An arrow of horizontal and vertical parts, with rounded corners."""

    points: Sequence[tuple[float, float]]
    is_dashed: bool = False


@dataclass(frozen=True)
class Label:
    """A line of text."""

    x: float
    y: float
    """The base line."""
    text: str
    look: Literal["name", "shape", "small", "head"] = "shape"
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True)
class Frame:
    """A rounded rectangle around other parts."""

    left: float
    top: float
    width: float
    height: float


Part = Node | Polyline | Label | Frame


@dataclass(frozen=True)
class Diagram:
    """A drawing of boxes and arrows."""

    title: str
    description: str
    """For readers who cannot see it."""
    height: float
    parts: Sequence[Part]

    def svg(self, package: str) -> str:
        """Return the picture, in the colours of a light or a dark page as its reader prefers.

        Args:
            package: Address of the folder of the package, relative to the picture; boxes link to its files.
        """
        order = (Frame, Polyline, Label, Node)  # what is behind comes first
        parts = sorted(self.parts, key=lambda part: order.index(type(part)))
        height = _number(self.height)
        # A group, since screen readers offer no links within an image.
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                f'viewBox="0 0 {WIDTH} {height}" class="paper" role="group">',
                f"<title>{escape(self.title)}</title>",
                f"<desc>{escape(self.description)}</desc>",
                f"<style>{_style()}</style>",
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
                'markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0.6 L8 4 L0 7.4 Z"/></marker>'
                "</defs>",
                f'<rect class="page" width="{WIDTH}" height="{height}"/>',
                *(_drawn(part, package) for part in parts),
                "</svg>\n",
            ]
        )


def _number(value: float) -> str:
    """Return a coordinate without needless digits."""
    return f"{value:.1f}".removesuffix(".0")


def _drawn(part: Part, package: str) -> str:
    match part:
        case Node():
            return _drawn_node(part, package)
        case Polyline(points, is_dashed):
            look = "line dashed" if is_dashed else "line"
            return f'<path class="{look}" d="{_path(points)}" marker-end="url(#tip)"/>'
        case Label(x, y, text, look, anchor):
            return _text(x, y, text, look, anchor)
        case Frame():
            left, top, width, height = map(_number, (part.left, part.top, part.width, part.height))
            return f'<rect class="frame" x="{left}" y="{top}" width="{width}" height="{height}" rx="10"/>'


def _drawn_node(node: Node, package: str) -> str:
    left, top = node.x - node.width / 2, node.y - node.height / 2
    if list(node.name) == ["+"]:
        shapes = [f'<circle cx="{_number(node.x)}" cy="{_number(node.y)}" r="{_number(node.height / 2)}"/>']
    else:
        shapes = [
            f'<rect x="{_number(left + shift)}" y="{_number(top - shift)}" width="{_number(node.width)}" '
            f'height="{_number(node.height)}" rx="4"/>'
            for shift in range(COPY * node.copies, -1, -COPY)
        ]
    lines = [(text, "name") for text in node.name] + ([(node.detail, "small")] if node.detail else [])
    first = node.y - _LINE_HEIGHT * (len(lines) - 1) / 2 + 4.2
    texts = [
        _text(node.x, first + _LINE_HEIGHT * place, text, look, "middle") for place, (text, look) in enumerate(lines)
    ]
    address = escape(f"{package}/{node.file}#L{node.line}")
    title = f"<title>{escape(node.title)}</title>"
    return f'<a class="box {node.kind}" href="{address}">{title}{"".join(shapes)}{"".join(texts)}</a>'


def _text(x: float, y: float, text: str, look: str, anchor: str) -> str:
    align = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{look}" x="{_number(x)}" y="{_number(y)}"{align}>{escape(text)}</text>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return the path through points, with rounded corners."""
    drawn = [f"M{_number(points[0][0])} {_number(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before), _towards(corner, after)
        drawn.append(" ".join(["L", *map(_number, start), "Q", *map(_number, corner), *map(_number, end)]))
    return " ".join([*drawn, "L", *map(_number, points[-1])])


def _towards(corner: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return the point on the way from a corner to another point where its rounding begins."""
    length = abs(other[0] - corner[0]) + abs(other[1] - corner[1])
    share = min(_CORNER, length / 2) / length if length else 0.0
    return corner[0] + share * (other[0] - corner[0]), corner[1] + share * (other[1] - corner[1])
