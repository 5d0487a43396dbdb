"""Boxes of figures 1 and 2: operations of a forward pass in groups, with the tensors that flow between them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clearhead.paper.diagram import Kind
from clearhead.paper.figures.operations import ForwardPass, Operation, Shape, shape_text
from clearhead.paper.parts import aligned
from clearhead.paper.places import EQUATIONS, PACKAGE, line_of
from clearhead.paper.recording import line_text

HINT = "With -o DIR it is drawn as SVG, with a link from every box to its line."


@dataclass(frozen=True)
class BoxCode:
    """Where the code of a box is."""

    name: str
    """Class or function."""
    file: str
    """File within the package."""
    line: int
    """Line of the class, or the line that ran."""

    @classmethod
    def of(cls, definition: Any) -> BoxCode:
        """Return where a class or function is defined."""
        file = Path(inspect.getfile(inspect.unwrap(definition))).relative_to(PACKAGE).as_posix()
        return cls(definition.__qualname__, file, inspect.getsourcelines(definition)[1])

    @classmethod
    def at(cls, reference: str, definition: Any) -> BoxCode:
        """Return the line of a place of the paper, or of a definition, within a class or function."""
        return replace(cls.of(definition), line=line_of(reference).number)

    @classmethod
    def of_last(cls, operations: Sequence[Operation]) -> BoxCode:
        """Return the line that called the last of some operations."""
        last = operations[-1]
        return cls(last.function, last.file, last.line)

    @property
    def text(self) -> str:
        """The text of the line."""
        return line_text(self.file, self.line)


@dataclass(frozen=True)
class Box:
    """A box of a figure."""

    name: str
    """Its name in one line, such as `Add & Norm`."""
    kind: Kind
    code: BoxCode
    operations: Sequence[Operation]
    paper: str = ""
    """Name of its equation in `EQUATIONS`, or a section or table; empty for what the paper does not have."""
    detail: str = ""
    """Sizes and options, in a few words."""

    @property
    def place(self) -> str:
        """Equation, section or table of the paper; empty for what the paper does not have."""
        return EQUATIONS[self.paper]["place"] if self.paper in EQUATIONS else self.paper

    @property
    def formula(self) -> str:
        """What the paper writes there; empty if it is no equation."""
        return EQUATIONS[self.paper]["formula"] if self.paper in EQUATIONS else ""

    @property
    def title(self) -> str:
        """Name, equation and line, as they are shown on pointing at the box."""
        paper = f"paper, {self.place}" if self.place else "not in the paper"
        lines = [
            f"{self.name}: {self.detail}" if self.detail else self.name,
            f"{paper}: {self.formula}" if self.formula else paper,
            f"{self.code.file}:{self.code.line}: {self.code.text}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Arrow:
    """A tensor on its way from one group to another."""

    source: int
    """Index of the group that put it out."""
    target: int
    """Index of the group that reads it."""
    tensor: int
    """Its number in the pass."""
    port: str
    """Name of the module that reads it, such as `q_proj`."""


Look = tuple[str, Kind, str]
"""Name, kind and `paper` of a box."""


@dataclass
class Groups:
    """Operations in groups, and the arrows between these; the first groups are inputs and have no operations."""

    trace: ForwardPass
    keys: list[Hashable] = field(default_factory=list)
    operations: list[list[Operation]] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    boxes: dict[int, Box] = field(default_factory=dict)
    """Box of each group; the inputs have none."""

    @property
    def rows(self) -> list[tuple[Box, list[Shape], Shape]]:
        """Each box, with the shapes of the tensors that it reads and of the one that it puts out."""
        shapes = self.trace.shapes
        return [
            (box, [shapes[arrow.tensor] for arrow in self.into(group)], shapes[box.operations[-1].outputs[0]])
            for group, box in self.boxes.items()
        ]

    def table(self) -> list[str]:
        """Return the boxes as lines of a table, with their shapes, their place in the paper and their line."""
        cells = [
            [
                box.name,
                " ".join(dict.fromkeys(map(shape_text, reads))),
                shape_text(out),
                box.place or "not in the paper",
                f"{box.code.file}:{box.code.line}",
            ]
            for box, reads, out in self.rows
        ]
        return aligned(["box", "reads", "puts out", "paper", "code"], cells, left=5)

    def data(self) -> list[dict[str, Any]]:
        """Return the boxes as plain JSON values."""
        return [
            {
                **{name: getattr(box, name) for name in ("name", "detail", "place", "formula")},
                "code": box.code.name,
                "file": box.code.file,
                "line": box.code.line,
                "reads": list(map(list, reads)),
                "puts_out": list(out),
            }
            for box, reads, out in self.rows
        ]

    def into(self, group: int) -> list[Arrow]:
        """Return the arrows that end at a group."""
        return [arrow for arrow in self.arrows if arrow.target == group]

    def out_of(self, group: int) -> list[Arrow]:
        """Return the arrows that begin at a group."""
        return [arrow for arrow in self.arrows if arrow.source == group]


def grouped(
    trace: ForwardPass,
    operations: Iterable[Operation],
    inputs: Iterable[int],
    key: Callable[[Operation], Hashable | None],
    box: Callable[[list[Operation]], Box],
) -> Groups:
    """Group neighbouring operations with the same key, and return the tensors that flow between the groups.

    Operations whose key is None, such as a change of axes, belong to no group: their result counts as the tensor that
    they were given. Masks are not followed.

    Args:
        trace: The pass.
        operations: Operations of the pass, in their order.
        inputs: Numbers of the tensors that come from outside; each is a group without operations.
        key: Returns the key of an operation.
        box: Returns the box of the operations of a group.
    """
    groups = Groups(trace)
    origin: dict[int, tuple[int, int]] = {}  # tensor -> group that put it out, and the tensor as it was put out
    for tensor in inputs:
        origin[tensor] = len(groups.keys), tensor
        groups.keys.append(f"input {tensor}")
        groups.operations.append([])
    for operation in operations:
        read = [number for number in operation.inputs if number in origin and number not in trace.masks]
        if (own := key(operation)) is None:
            origin.update({number: origin[read[0]] for number in operation.outputs if read})
            continue
        if groups.keys[-1:] != [own]:
            groups.keys.append(own)
            groups.operations.append([])
        here = len(groups.keys) - 1
        groups.operations[here].append(operation)
        port = operation.module.rpartition(".")[2]
        for source, tensor in (origin[number] for number in read):
            arrow = Arrow(source, here, tensor, port)
            if source != here and arrow not in groups.arrows:
                groups.arrows.append(arrow)
        origin.update({number: (here, number) for number in operation.outputs if number not in trace.masks})
    groups.boxes = {group: box(own) for group, own in enumerate(groups.operations) if own}
    return groups


def described(*groups: Groups) -> str:
    """Return boxes in words, for readers who cannot see the diagram."""
    outputs = (f"{box.name} puts out {shape_text(out)}" for each in groups for box, _, out in each.rows)
    return f"{'; '.join(outputs)}. B sentences, S source tokens, T target tokens."
