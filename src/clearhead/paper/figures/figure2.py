"""The part "figure2": one attention and its heads (paper figure 2), drawn from a forward pass of a configuration.

Its halves are one attention, step by step, and the heads around it. Every box is above its inputs, so that arrows are
vertical.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from clearhead.config import ModelConfig
from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.other_positions import rotary_positions
from clearhead.paper.diagram import COPY, WIDTH, Diagram, Label, Node, Part, Polyline
from clearhead.paper.figures.boxes import HINT, Arrow, Box, BoxCode, Groups, Look, described, grouped
from clearhead.paper.figures.operations import ForwardPass, Operation, forward_pass, shape_text
from clearhead.paper.parts import Check, ModelPart, paragraph, part_text

_STEPS: Mapping[str, Look] = {
    "div": ("Scale", "norm", "attention"),
    "matmul": ("MatMul", "linear", "attention"),
    "add": ("Add Bias", "other", ""),
    "masked_fill": ("Mask", "embedding", "masked_attention"),
    "softmax": ("SoftMax", "softmax", "attention"),
}
"""PyTorch function within `scaled_dot_product_attention` -> its box."""
_PARTS: Mapping[str, Look] = {
    "Linear.forward": ("Linear", "linear", "multi_head"),
    "MultiHeadAttention._split_heads": ("Split Heads", "norm", "multi_head"),
    "rotary_positions": ("Rotate", "other", ""),
    "MultiHeadAttention.queries": ("Multiply", "other", ""),
    "scaled_dot_product_attention": ("Scaled Dot-Product Attention", "attention", "attention"),
    "MultiHeadAttention.attend": ("Concat", "norm", "multi_head"),
}
"""Function that ran within `MultiHeadAttention` -> its box."""
_INPUTS = {"q_proj": "Q", "k_proj": "K", "v_proj": "V"}
_MATRICES = {"q_proj": "W^Q", "k_proj": "W^K", "v_proj": "W^V", "out_proj": "W^O"}
_GAP = 32.0
"""Height of an arrow."""
_LABEL = 78.0
"""Width of a shape beside its arrow."""
_MARGIN = 12.0
_TITLE, _OUTPUT, _INPUT_NAMES = 44.0, 50.0, 24.0
"""Heights of the title, of the output with its arrow, and of the names of the inputs."""


def figure2(config: ModelConfig | None = None) -> ModelPart:
    """Return figure 2 of a configuration: its boxes with the shapes of a forward pass, as text and as a diagram.

    It shows the attention of the model with the most steps: cross-attention, unless positions are added to or rotate
    self-attention.

    Args:
        config: Any model, such as `Translator.config`; None for the paper's base model.

    Raises:
        ConfigError: If the model has fewer than three positions.

    >>> part = figure2(ModelConfig(num_heads=4))
    >>> [box["name"] for box in part.data["scaled_dot_product_attention"]]
    ['Scale', 'MatMul', 'Mask', 'SoftMax', 'MatMul']
    """
    config = config or ModelConfig()
    trace = forward_pass(config)
    halves = panels(trace)
    left, right = halves
    upper = AttentionLayout(trace, left, 6.0)
    lower = AttentionLayout(trace, right, upper.end + 14.0)
    checks = (_weights(trace, left), _heads(config, right))
    title = f"Figure 2: {config.num_heads} heads, {left.subtitle.partition(':')[0]}"
    words = described(left.groups, right.groups)
    lines = [
        *paragraph(
            "The boxes of figure 2 with the shapes of a forward pass of the code, in the order in which they run. The "
            "queries are scaled before they are multiplied with the keys: the scores are the same as in the figure."
        )[1:],
    ]
    for half in halves:
        lines += ["", half.title, half.subtitle, "", *half.groups.table()]
    lines += paragraph(HINT)
    return ModelPart(
        title=title,
        text=part_text(lines, checks),
        diagrams={"figure2": Diagram(title, words, lower.end + 6.0, [*upper.parts(), *lower.parts()])},
        data={
            "config": config.model_dump(mode="json"),
            "scaled_dot_product_attention": left.groups.data(),
            "multi_head_attention": right.groups.data(),
        },
        checks=checks,
    )


def _weights(trace: ForwardPass, panel: FigureHalf) -> Check:
    """Compare the weights with the queries and keys that they are of: one row a query, one column a key."""
    shapes = {name: trace.shapes[arrow.tensor] for name, arrow in panel.inputs}
    [weights] = [out for box, _, out in panel.groups.rows if box.name == "SoftMax"]
    expected = (*shapes["Q"][:-1], shapes["K"][-2])
    return Check("equation 1: a weight for each query and key", weights == expected, shape_text(weights))


def _heads(config: ModelConfig, panel: FigureHalf) -> Check:
    """Compare the width of the concatenated heads with the configuration."""
    [width] = [out[-1] for box, _, out in panel.groups.rows if box.name == "Concat"]
    expected = config.num_heads * config.value_dim
    evidence = f"{width}; h = {config.num_heads}, d_v = {config.value_dim}"
    return Check("section 3.2.2: Concat is h d_v wide", width == expected, evidence)


@dataclass(frozen=True)
class FigureHalf:
    """One half of figure 2."""

    title: str
    subtitle: str
    """Which attention of the model it is, and what the letters of the shapes mean."""
    groups: Groups
    inputs: Sequence[tuple[str, Arrow]]
    """Names of the arrows from outside, from left to right."""


def panels(trace: ForwardPass) -> tuple[FigureHalf, FigureHalf]:
    """Return both halves of figure 2: scaled dot-product attention, and multi-head attention.

    They show the attention of the model with the most steps: cross-attention, unless self-attention also has positions.
    """
    names = [name for name, module in trace.model.named_modules() if isinstance(module, MultiHeadAttention)]
    both = [_panels(trace, name) for name in sorted(names, key=lambda name: ("cross" not in name, name))]
    return max(both, key=lambda pair: sum(len(panel.groups.boxes) for panel in pair))


def _panels(trace: ForwardPass, name: str) -> tuple[FigureHalf, FigureHalf]:
    whole = [op for op in trace.operations if f"{op.module}.".startswith(f"{name}.")]
    inside = [op for op in whole if op.function == "scaled_dot_product_attention"]
    attention = _groups(trace, inside, lambda op: _STEPS.get(op.name), _step_box)
    heads = _groups(trace, whole, lambda op: (op.module, op.function), _part_box)
    kind = "cross-attention" if "cross" in name else f"{name.partition('.')[0]} self-attention"
    steps = [arrow for arrow in attention.arrows if not attention.operations[arrow.source]]
    outer = [(_INPUTS.get(arrow.port, "Bias"), arrow) for arrow in heads.arrows if not heads.operations[arrow.source]]
    letters = {size for _, arrow in outer for size in trace.shapes[arrow.tensor]}
    words = ("B sentences", "S source tokens", "T target tokens")
    subtitle = f"{kind}: {', '.join(word for word in words if word[0] in letters)}"
    return (
        FigureHalf(
            "Figure 2, left: scaled dot-product attention",
            subtitle,
            attention,
            # In the order of equation 1: the queries are scaled before they meet the keys; the values come last.
            list(zip(["Q", "K", *["Bias"] * (len(steps) - 3), "V"], steps, strict=True)),
        ),
        FigureHalf(
            "Figure 2, right: multi-head attention",
            subtitle,
            heads,
            sorted(outer, key=lambda named: ("Q", "K", "Bias", "V").index(named[0])),
        ),
    )


def _groups(
    trace: ForwardPass,
    operations: Sequence[Operation],
    key: Callable[[Operation], Hashable | None],
    box: Callable[[ForwardPass, list[Operation]], Box],
) -> Groups:
    """Group operations; what they read from outside are the inputs. Masks and the angles of rotations are left out."""
    drawn = [op for op in operations if op.function in _PARTS and not trace.masks.issuperset(op.outputs)]
    made = {tensor for op in operations for tensor in op.outputs} | trace.masks
    inputs = dict.fromkeys(tensor for op in drawn for tensor in op.inputs if tensor not in made)
    return grouped(trace, drawn, inputs, key, partial(box, trace))


def _step_box(trace: ForwardPass, operations: list[Operation]) -> Box:
    last, detail = operations[-1], ""
    name, kind, paper = _STEPS[last.name]
    match name:
        case "Scale":
            detail = f"÷ √{trace.shapes[last.outputs[0]][-1]}"
        case "Mask":
            [mask] = trace.masks.intersection(last.inputs)
            detail = shape_text(trace.shapes[mask])
    return Box(name, kind, BoxCode.of_last(operations), operations, paper, detail)


def _part_box(trace: ForwardPass, operations: list[Operation]) -> Box:
    last, code, detail = operations[-1], BoxCode.of_last(operations), ""
    (name, kind, paper), shape = _PARTS[last.function], trace.shapes[last.outputs[0]]
    match name:
        case "Linear":
            port = last.module.rpartition(".")[2]
            code, detail = BoxCode.at(f"model.attention:MultiHeadAttention.{port}", MultiHeadAttention), _MATRICES[port]
        case "Scaled Dot-Product Attention":
            code, detail = BoxCode.of(scaled_dot_product_attention), f"{shape[1]} heads"
        case "Rotate":
            code = BoxCode.of(rotary_positions)
        case "Multiply":
            detail = f"× √{shape[-1]}"
    return Box(name, kind, code, operations, paper, detail)


class AttentionLayout:
    """Places of the parts of a panel.

    Args:
        found: The pass that the panel is of.
        panel: Boxes and arrows.
        top: The upper edge of the panel.
    """

    def __init__(self, trace: ForwardPass, panel: FigureHalf, top: float) -> None:
        self.trace = trace
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
        self.end = edge + _INPUT_NAMES
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
        yield Label(x + 6.0, start - 10.0, shape_text(self.trace.shapes[tensor]))

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
        heads = self.trace.shapes[box.operations[-1].outputs[0]][1]
        return min(2, int(heads) - 1) if box.kind == "attention" else 0

    def _rise(self, group: int) -> float:
        """Return how far the copies of a box are seen above it."""
        return COPY * self._copies(group)
