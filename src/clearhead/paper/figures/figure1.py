"""The part "figure1": encoder and decoder stacks (paper figure 1), drawn from a forward pass of a configuration.

Boxes are named by the modules that ran. The layout has a column for each stack, from the inputs below to the outputs
above; heights are measured upwards from the lower edge of the picture, until all of them are known.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from torch import nn

from clearhead.config import ModelConfig
from clearhead.decoding.step import next_log_probs
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embeddings import Embedding, OutputProjection, OutputTransform
from clearhead.model.feed_forward import FeedForward
from clearhead.model.other_positions import LearnedPositions, RelativePositions
from clearhead.model.positions import SinusoidalPositions
from clearhead.model.residual import Residual
from clearhead.paper.counts import parameter_count
from clearhead.paper.diagram import WIDTH, Diagram, Frame, Label, Node, Part, Polyline
from clearhead.paper.figures.boxes import HINT, Box, BoxCode, Look, described, grouped
from clearhead.paper.figures.operations import ForwardPass, Operation, forward_pass, shape_text
from clearhead.paper.parts import Check, ModelPart, paragraph, part_text

_WHOLE: Mapping[type[nn.Module], Look] = {
    SinusoidalPositions: ("Positional Encoding", "other", "positions"),
    LearnedPositions: ("Learned Positions", "other", "Table 3, row E"),
    RelativePositions: ("Relative Positions", "other", ""),
    MultiHeadAttention: ("Multi-Head Attention", "attention", "multi_head"),
    FeedForward: ("Feed Forward", "feed_forward", "feed_forward"),
    OutputTransform: ("Output Transform", "linear", ""),
    OutputProjection: ("Linear", "linear", "tied_output"),
}
"""Modules that are one box each; every line of an embedding or a residual connection is a box."""

SUM = "Add Positions"
"""Name of the box that is drawn as a plus sign."""
_CENTRE = 117.0
"""Centre of the left column; the right one is its mirror image. Distances below are from the centre of a column."""
_BOX, _INNER, _LOOP, _OUTER, _TIMES = 55.0, 71.0, 72.0, 85.0, 101.0
"""The edge of a box, the inner edge of the frame of a layer, residual connections, its outer edge, the number of
layers."""
_SIDE, _SIDE_BOX, _BIAS = 84.0, 61.0, 63.0
"""The centre of the box of positions, its width, and the arrow of relative positions."""
_PORTS = {"v_proj": -34.0, "k_proj": 0.0, "q_proj": 34.0}
"""Inputs of attention, from left to right."""
_GAP, _EDGE, _FORK = 28.0, 14.0, 20.0
"""Height of an arrow, and what is added to it by the edge of a frame, and by a fork before attention."""
_FIRST = 40.0
"""Height of the words for the inputs."""


def figure1(config: ModelConfig | None = None) -> ModelPart:
    """Return figure 1 of a configuration: its boxes with the shapes of a forward pass, as text and as a diagram.

    Args:
        config: Any model, such as `Translator.config`; None for the paper's base model.

    Raises:
        ConfigError: If the model has fewer than three positions.

    >>> part = figure1(ModelConfig(norm="pre", num_decoder_layers=0))
    >>> [box["name"] for box in part.data["boxes"]][3:6]
    ['Norm', 'Multi-Head Attention', 'Add']
    """
    config = config or ModelConfig()
    stacks = StackBoxes(config, forward_pass(config))
    title = f"Figure 1: {config.norm}-norm, {stacks.layers_text}"
    checks = (_weights(stacks), _widths(stacks))
    lines = [
        *paragraph(
            "The boxes of figure 1 with the shapes of a forward pass of the code, from the inputs up: B sentences, "
            "S source tokens, T target tokens. The layers of a stack are alike; one is listed."
        )[1:],
        "",
        *stacks.groups.table(),
        *paragraph(HINT),
    ]
    return ModelPart(
        title=title,
        text=part_text(lines, checks),
        diagrams={"figure1": Diagram(title, described(stacks.groups), *layout(stacks))},
        data={"config": config.model_dump(mode="json"), "boxes": stacks.groups.data()},
        checks=checks,
    )


def _weights(stacks: StackBoxes) -> Check:
    """Compare the weights that the boxes read with the closed form: no part of the model is without a box."""
    times = {
        name: stacks.layers_of(name) if ".layers." in name else 1
        for box in stacks.groups.boxes.values()
        for operation in box.operations
        for name in operation.weights
    }
    drawn = sum(number * stacks.trace.model.get_parameter(name).numel() for name, number in times.items())
    count = parameter_count(stacks.config)
    return Check("the boxes hold every weight of the model", drawn == count, f"{drawn:,}; in closed form {count:,}")


def _widths(stacks: StackBoxes) -> Check:
    d_model = stacks.config.d_model
    widths = [tensor[-1] for box, reads, _ in stacks.groups.rows if box.name.startswith("Add") for tensor in reads]
    return Check(
        "section 3.1: all that is added has width d_model",
        set(widths) == {d_model},
        f"{widths.count(d_model)} of {len(widths)} arrows into sums are {d_model} wide",
    )


class StackBoxes:
    """The boxes of figure 1 and the arrows between them."""

    def __init__(self, config: ModelConfig, trace: ForwardPass) -> None:
        self.config = config
        self.trace = trace
        inputs = [tensor for tensor in (trace.source, trace.target) if tensor is not None]
        matrices = [op.weights[0] for op in trace.operations if op.name in ("embedding", "linear") and op.weights]
        self.shared = {name for name in matrices if matrices.count(name) > 1}
        """Names of the matrices that several boxes use."""
        self.groups = grouped(trace, trace.operations, inputs, self._key, self._box)

    @property
    def layers_text(self) -> str:
        """The number of layers, in words."""
        layers = {"encoder": self.config.num_encoder_layers, "decoder": self.config.num_decoder_layers}
        return " and ".join(f"{number} {name} layers" for name, number in layers.items() if number)

    def layers_of(self, module: str) -> int:
        """Return the number of layers of the stack that a module belongs to."""
        return self.config.num_encoder_layers if is_of_source(module) else self.config.num_decoder_layers

    def _key(self, operation: Operation) -> tuple[str, int] | None:
        """Return the module that an operation is drawn as, and the line if it is drawn line by line; None if it is not.

        The innermost of the modules that are drawn counts.
        """
        name = operation.module
        while name:
            module = self.trace.model.get_submodule(name)
            if type(module) in _WHOLE:
                return name, 0
            if isinstance(module, Embedding | Residual):
                return name, operation.line
            name = name.rpartition(".")[0]
        is_drawn = _is_norm(operation) or operation.name in ("div", "softmax")
        return (operation.module, operation.line) if is_drawn else None

    def _box(self, operations: list[Operation]) -> Box:
        key = self._key(operations[-1])
        assert key is not None, "operations without a key belong to no group"
        module, code = self.trace.model.get_submodule(key[0]), BoxCode.of_last(operations)
        names = [op.name for op in operations]
        is_norm = any(map(_is_norm, operations))
        if look := _WHOLE.get(type(module)):
            name, kind, paper = look
            is_masked = any(op.function == "causal_mask" for op in operations)
            detail = self._detail(module, operations)
            return Box("Masked " * is_masked + name, kind, BoxCode.of(type(module)), operations, paper, detail)
        if isinstance(module, Residual):
            return Box(
                " & ".join(["Add"] * ("add" in names) + ["Norm"] * is_norm), "norm", code, operations, "residual"
            )
        if operations[-1].function == "Embedding.vectors":
            name = "Input Embedding" if is_of_source(operations[-1].module) else "Output Embedding"
            return Box(name, "embedding", code, operations, "scaled_embedding", self._detail(module, operations))
        if is_norm:
            return Box("Norm", "norm", code, operations)
        if isinstance(module, Embedding):
            if "embedding" in names:
                return Box("Add Segment", "embedding", code, operations)
            return Box(SUM, "other", code, operations, "section 3.5")
        if "softmax" in names:
            return Box("Softmax", "softmax", BoxCode.at("output.log_probs", next_log_probs), operations, "section 3.4")
        return Box(f"Divide by √{self.config.d_model}", "other", code, operations)

    def _detail(self, module: nn.Module, operations: list[Operation]) -> str:
        """Return sizes and options of a box."""
        names, functions = [op.name for op in operations], [op.function for op in operations]
        details = ["matrix E"] if self.shared.intersection(operations[0].weights) else []
        match module:
            case Embedding() if module.scale != 1.0:
                details.append(f"× √{self.config.d_model}")
            case MultiHeadAttention():
                split = operations[names.index("transpose")]
                details.append(f"{self.trace.shapes[split.outputs[0]][1]} heads")
                details += ["rotary"] if "rotary_positions" in functions else []
            case FeedForward():
                activation = " ".join(name for name in names if name not in ("linear", "mul"))
                details.append("gated " * ("mul" in names) + activation)
                details.append(str(self.trace.shapes[operations[0].outputs[0]][-1]))
        return ", ".join(details)


def is_of_source(module: str) -> bool:
    """Return whether a module reads the source: the source embedding and the encoder."""
    return module.startswith(("source_embedding", "encoder"))


def _is_norm(operation: Operation) -> bool:
    return operation.name in ("layer_norm", "rms_norm")


def layout(stacks: StackBoxes) -> tuple[float, list[Part]]:
    """Return the height and the parts of the diagram."""
    columns = [
        _Column(stacks, group, is_source=number == stacks.trace.source)
        for group, number in enumerate(side for side in (stacks.trace.source, stacks.trace.target) if side is not None)
    ]
    height = max(column.end for column in columns)
    drawn = [part for column in columns for part in column.parts()]
    if len(columns) == 2:
        drawn += _memory(*columns)
    return height, [*(_turned(part, height) for part in drawn), *_legend(stacks)]


class _Column:
    """One stack, with its inputs and outputs.

    Args:
        stacks: All boxes and arrows.
        group: Index of the group of its input.
        is_source: Whether it is the stack of the source, which is on the left.
    """

    def __init__(self, stacks: StackBoxes, group: int, *, is_source: bool) -> None:
        self.stacks, self.groups, self.boxes = stacks, stacks.groups, stacks.groups.boxes
        self.is_source = is_source
        self.centre, self.outwards = (_CENTRE, -1) if is_source else (WIDTH - _CENTRE, 1)
        own = [index for index, box in self.boxes.items() if is_of_source(box.operations[0].module) == is_source]
        self.sides = [index for index in own if not self.groups.into(index)]
        """Boxes without inputs: positions."""
        self.trunk = [group, *(index for index in own if index not in self.sides)]
        self.bottom, self.top = {group: 0.0}, {group: _FIRST}
        for before, index in pairwise(self.trunk):
            self.bottom[index] = self.top[before] + self._gap(before, index)
            self.top[index] = self.bottom[index] + self._height(index)
        self.end = self.out_of(self.trunk[-1]) + _GAP + 26.0

    def parts(self) -> Iterator[Part]:
        """Yield everything but the arrows from the encoder to the decoder."""
        yield from self._inputs_and_outputs()
        yield from self._frame()
        for index in self.trunk[1:]:
            yield self._node(index, self.centre, (self.bottom[index] + self.top[index]) / 2)
        for before, index in pairwise(self.trunk):
            yield from self._arrows(before, index)
        for index in self.sides:
            yield from self._side(index)

    def out_of(self, index: int) -> float:
        """Return the height at which an arrow has left a box, and the frame if the box is the last of a layer."""
        following = self.trunk[self.trunk.index(index) + 1 :]
        leaves = self._is_in_layer(index) != (bool(following) and self._is_in_layer(following[0]))
        return self.top[index] + (_EDGE if leaves else 0.0)

    def shape_of(self, index: int) -> Label:
        """Return the shape of what a box puts out, beside its arrow."""
        tensor = self.groups.out_of(index)
        number = tensor[0].tensor if tensor else self.boxes[index].operations[-1].outputs[0]
        text = shape_text(self.stacks.trace.shapes[number])
        x, y = self.centre - self.outwards * 6.0, self.out_of(index) + 9.0
        return Label(x, y, text, "shape", "start" if self.outwards < 0 else "end")

    def _is_in_layer(self, index: int) -> bool:
        box = self.boxes.get(index)
        return box is not None and ".layers." in box.operations[0].module

    def _reads_memory(self, index: int) -> bool:
        return any(arrow.source not in (*self.trunk, *self.sides) for arrow in self.groups.into(index))

    def _gap(self, before: int, index: int) -> float:
        """Return the distance between two boxes."""
        edge = _EDGE if self._is_in_layer(before) != self._is_in_layer(index) else 0.0
        forks = (self.boxes[index].kind == "attention") + self._reads_memory(index)
        return _GAP + edge + _FORK * forks

    def _height(self, index: int) -> float:
        box = self.boxes[index]
        return 22.0 if box.name == SUM else 12.0 + 14.0 * (len(self._lines(index)) + bool(box.detail))

    def _node(self, index: int, x: float, y: float) -> Node:
        """Return a box of the column, or one beside it."""
        box, height = self.boxes[index], self._height(index)
        width = height if box.name == SUM else _SIDE_BOX if index in self.sides else 2 * _BOX
        names = ["+"] if box.name == SUM else self._lines(index)
        return Node(x, y, width, height, names, box.detail, box.kind, box.code.file, box.code.line, box.title)

    def _lines(self, index: int) -> list[str]:
        """Return the name of a box in lines that fit into it."""
        characters = 10 if index in self.sides else 16
        return textwrap.wrap(self.boxes[index].name, characters, break_on_hyphens=False)

    def _inputs_and_outputs(self) -> Iterator[Part]:
        words = ["Inputs"] if self.is_source else ["Outputs", "(shifted right)"]
        for place, word in enumerate(words):
            yield Label(self.centre, _FIRST - 12.0 - 14.0 * place, word, "name", "middle")
        last = self.trunk[-1]
        if not self.groups.out_of(last):
            word = "Output probabilities" if self.boxes[last].kind == "softmax" else "Memory"
            yield Label(self.centre, self.end - 20.0, word, "name", "middle")
            yield self.shape_of(last)
            yield Polyline([(self.centre, self.top[last]), (self.centre, self.end - 26.0)])

    def _frame(self) -> Iterator[Part]:
        layer = [index for index in self.trunk if self._is_in_layer(index)]
        first, last = self.trunk[self.trunk.index(layer[0]) - 1], layer[-1]
        low, high = self.top[first] + _EDGE, self.top[last] + _EDGE
        edges = self.centre + self.outwards * _OUTER, self.centre - self.outwards * _INNER
        yield Frame(min(edges), low, abs(edges[0] - edges[1]), high - low)
        times = f"{self.stacks.layers_of(self.boxes[layer[0]].operations[0].module)}×"
        yield Label(self.centre + self.outwards * _TIMES, (low + high) / 2 - 4.0, times, "head", "middle")

    def _arrows(self, before: int, index: int) -> Iterator[Part]:
        """Yield the arrow from the box below, its forks, and the residual connection that ends at a box."""
        x, start, end = self.centre, self.top[before], self.bottom[index]
        yield self.shape_of(before)
        arrows = self.groups.into(index)
        ports = [port for port in _PORTS if any((arrow.source, arrow.port) == (before, port) for arrow in arrows)]
        if self._reads_memory(index):
            for to in (x + _PORTS[port] for port in ports):
                turn = end - 2 * _FORK + 4.0
                yield Polyline([(x, start), (x, turn), (to, turn), (to, end)])
        else:
            yield Polyline([(x, start), (x, end)])
            for to in (x + _PORTS[port] for port in ports if _PORTS[port]):
                yield Polyline([(x, end - _FORK + 4.0), (to, end - _FORK + 4.0), (to, end)])
        for port in _PORTS if self.boxes[index].kind == "attention" else ():
            yield Label(x + _PORTS[port] + 5.0, end - 13.0, port[0].upper(), "small")
        for arrow in arrows:
            if arrow.source in self.trunk and arrow.source != before:
                yield self._residual(arrow.source, index)

    def _residual(self, source: int, index: int) -> Polyline:
        away = self.centre + self.outwards * _LOOP
        start, end = self.out_of(source) + 8.0, (self.bottom[index] + self.top[index]) / 2
        return Polyline([(self.centre, start), (away, start), (away, end), (self.centre + self.outwards * _BOX, end)])

    def _side(self, index: int) -> Iterator[Part]:
        """Yield the box of positions and its arrow: to the sum with the embedding, or up to self-attention."""
        out = self.groups.out_of(index)
        to = out[0].target
        middle = (self.bottom[to] + self.top[to]) / 2
        is_bias = self.boxes[to].kind == "attention"
        x, y = self.centre + self.outwards * _SIDE, 40.0 if is_bias else middle
        yield self._node(index, x, y)
        yield Label(
            x,
            y - self._height(index) / 2 - 13.0,
            shape_text(self.stacks.trace.shapes[out[0].tensor]),
            "shape",
            "middle",
        )
        if is_bias:
            away = self.centre + self.outwards * _BIAS
            yield Polyline(
                [(away, y + self._height(index) / 2), (away, middle), (self.centre + self.outwards * _BOX, middle)],
                is_dashed=True,
            )
        else:
            start = x - self.outwards * _SIDE_BOX / 2
            yield Polyline([(start, middle), (self.centre + self.outwards * (self._height(to) / 2), middle)])


def _memory(source: _Column, target: _Column) -> Iterator[Part]:
    """Yield the arrows from the encoder's output to the keys and values of cross-attention."""
    last = source.trunk[-1]
    arrows = source.stacks.groups.out_of(last)
    to = arrows[0].target
    x, high, low, end = source.centre, source.out_of(last) + 24.0, target.bottom[to] - _FORK + 4.0, target.bottom[to]
    yield source.shape_of(last)
    far, *others = sorted((target.centre + _PORTS[arrow.port] for arrow in arrows), reverse=True)
    middle = WIDTH / 2
    yield Polyline([(x, source.top[last]), (x, high), (middle, high), (middle, low), (far, low), (far, end)])
    for other in others:
        yield Polyline([(other, low), (other, end)])


def _legend(stacks: StackBoxes) -> Iterator[Label]:
    """Yield what the letters mean, in the free upper corner."""
    config, trace = stacks.config, stacks.trace
    words = [f"{parameter_count(config):,} weights", "B sentences"]
    words += ["S source tokens"] if trace.source is not None else []
    words += ["T target tokens"] if trace.target is not None else []
    words += ["E: one matrix, shared"] if stacks.shared else []
    left = 14.0 if trace.target is not None else WIDTH / 2 + 14.0
    yield Label(left, 24.0, f"Figure 1, {config.norm}-norm", "head")
    for place, word in enumerate(words):
        yield Label(left, 46.0 + 16.0 * place, word, "small")


def _turned(part: Part, height: float) -> Part:
    """Return a part with its heights measured downwards from the upper edge."""
    match part:
        case Polyline(points):
            return replace(part, points=[(x, height - y) for x, y in points])
        case Frame():
            return replace(part, top=height - part.top - part.height)
    return replace(part, y=height - part.y)
