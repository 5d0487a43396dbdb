"""Layout of figure 2: every box is above its inputs, so that arrows are vertical."""

from __future__ import annotations

from collections.abc import Iterator

from clearhead.paper.diagram import COPY, WIDTH, Label, Node, Part, Polyline
from clearhead.paper.figures.attention_boxes import FigureHalf
from clearhead.paper.figures.boxes import Arrow
from clearhead.paper.figures.operations import ForwardPass, shape_text

_GAP = 32.0
"""Height of an arrow."""
_LABEL = 78.0
"""Width of a shape beside its arrow."""
_MARGIN = 12.0
_TITLE, _OUTPUT, _INPUTS = 44.0, 50.0, 24.0
"""Heights of the title, of the output with its arrow, and of the names of the inputs."""


class AttentionLayout:
    """Places of the parts of a panel.

    Args:
        found: The pass that the panel is of.
        panel: Boxes and arrows.
        top: The upper edge of the panel.
    """

    def __init__(self, found: ForwardPass, panel: FigureHalf, top: float) -> None:
        self.found = found
        self.panel = panel
        self.start = top
        half = 42.0 if len(panel.inputs) <= 3 else 39.0
        pitch = (WIDTH - half - _MARGIN - _LABEL) / (len(panel.inputs) - 1)
        self.columns = {arrow: half + _MARGIN + pitch * place for place, (_, arrow) in enumerate(panel.inputs)}
        """Where the arrows from outside are, from the left."""
        self.span: dict[int, tuple[float, float]] = {}
        """The left and the right edge of each box."""
        rows: dict[int, int] = {}  # counted from below
        for group in panel.groups.boxes:
            arrows = panel.groups.into(group)
            places = [self._place(arrow) for arrow in arrows]
            self.span[group] = min(places) - half, max(places) + half
            rows[group] = 1 + max(rows.get(arrow.source, 0) for arrow in arrows)
        self.middle: dict[int, float] = {}
        """The height of the centre of each box."""
        edge = top + _TITLE + _OUTPUT
        for row in range(max(rows.values()), 0, -1):
            groups = [group for group in panel.groups.boxes if rows[group] == row]
            height = max(self._height(group) + self._rise(group) for group in groups)
            self.middle.update({group: edge + (height + self._rise(group)) / 2 for group in groups})
            edge += height + _GAP
        self.inputs = edge
        """The height at which arrows from outside begin."""
        self.end = edge + _INPUTS
        """The lower edge of the panel."""

    def parts(self) -> Iterator[Part]:
        """Yield boxes, arrows with their shapes, and names."""
        yield Label(_MARGIN, self.start + 18.0, self.panel.title, "head")
        yield Label(_MARGIN, self.start + 35.0, self.panel.subtitle, "small")
        for group, box in self.panel.groups.boxes.items():
            left, right = self.span[group]
            x, y, width, height = (left + right) / 2, self.middle[group], right - left, self._height(group)
            place = x, y, width, height
            copies = self._copies(group)
            yield Node(*place, [box.name], box.detail, box.kind, box.code.file, box.code.line, box.title, copies)
            for arrow in self.panel.groups.into(group):
                yield from self._arrow(self._place(arrow), self._start(arrow), y + height / 2, arrow.tensor)
        x, tensor = (left + right) / 2, box.operations[-1].outputs[0]
        top = self.start + _TITLE + _OUTPUT
        yield from self._arrow(x, top, top - _GAP, tensor)
        yield Label(x, top - _GAP - 6.0, "Output", "name", "middle")
        for name, arrow in self.panel.inputs:
            yield Label(self.columns[arrow], self.inputs + 15.0, name, "name", "middle")

    def _arrow(self, x: float, start: float, end: float, tensor: int) -> Iterator[Part]:
        yield Polyline([(x, start), (x, end)])
        yield Label(x + 6.0, start - 10.0, shape_text(self.found.shapes[tensor]))

    def _place(self, arrow: Arrow) -> float:
        """Return how far from the left an arrow is."""
        return self.columns[arrow] if arrow in self.columns else sum(self.span[arrow.source]) / 2

    def _start(self, arrow: Arrow) -> float:
        """Return the height at which an arrow begins."""
        if arrow in self.columns:
            return self.inputs
        return self.middle[arrow.source] - self._height(arrow.source) / 2 - self._rise(arrow.source)

    def _height(self, group: int) -> float:
        return 40.0 if self.panel.groups.boxes[group].detail else 26.0

    def _copies(self, group: int) -> int:
        """Return how many edges are drawn behind a box: attention is there for each head."""
        box = self.panel.groups.boxes[group]
        heads = self.found.shapes[box.operations[-1].outputs[0]][1]
        return min(2, int(heads) - 1) if box.kind == "attention" else 0

    def _rise(self, group: int) -> float:
        """Return how far the copies of a box are seen above it."""
        return COPY * self._copies(group)
