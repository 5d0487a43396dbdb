"""The boxes of figure 2 of a configuration: one attention, step by step, and the heads around it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.other_positions import rotary_positions
from clearhead.paper.figures.boxes import Arrow, Box, BoxCode, Groups, Row, formula_of, grouped, rows
from clearhead.paper.figures.operations import ForwardPass, Operation, shape_text

_STEPS = {"div": "Scale", "matmul": "MatMul", "add": "Add Bias", "masked_fill": "Mask", "softmax": "SoftMax"}
"""PyTorch function within `scaled_dot_product_attention` -> name of its box."""
_PARTS = {
    "Linear.forward": "Linear",
    "MultiHeadAttention._split_heads": "Split Heads",
    "rotary_positions": "Rotate",
    "MultiHeadAttention.queries": "Multiply",
    "scaled_dot_product_attention": "Scaled Dot-Product Attention",
    "MultiHeadAttention.attend": "Concat",
}
"""Function that ran within `MultiHeadAttention` -> name of its box."""
_INPUTS = {"q_proj": "Q", "k_proj": "K", "v_proj": "V"}
_MATRICES = {"q_proj": "W^Q", "k_proj": "W^K", "v_proj": "W^V", "out_proj": "W^O"}


@dataclass(frozen=True)
class FigureHalf:
    """One half of figure 2."""

    title: str
    subtitle: str
    """Which attention of the model it is, and what the letters of the shapes mean."""
    groups: Groups
    boxes: Mapping[int, Box]
    """Box of each group; the inputs have none."""
    inputs: Sequence[tuple[str, Arrow]]
    """Names of the arrows from outside, from left to right."""

    @property
    def rows(self) -> list[Row]:
        """Each box, with the tensors that it reads and the one that it puts out."""
        return rows(self.groups, self.boxes)


def panels(found: ForwardPass) -> tuple[FigureHalf, FigureHalf]:
    """Return both halves of figure 2: scaled dot-product attention, and multi-head attention.

    They show the attention of the model with the most steps: cross-attention, unless self-attention also has positions.
    """
    names = [name for name, module in found.model.named_modules() if isinstance(module, MultiHeadAttention)]
    both = [_panels(found, name) for name in sorted(names, key=lambda name: ("cross" not in name, name))]
    return max(both, key=lambda pair: sum(len(panel.boxes) for panel in pair))


def _panels(found: ForwardPass, name: str) -> tuple[FigureHalf, FigureHalf]:
    whole = [one for one in found.operations if f"{one.module}.".startswith(f"{name}.")]
    inside = [one for one in whole if one.function == "scaled_dot_product_attention"]
    attention = _groups(found, inside, lambda one: _STEPS.get(one.name))
    heads = _groups(found, whole, lambda one: _PARTS.get(one.function) and (one.module, one.function))
    kind = "cross-attention" if "cross" in name else f"{name.partition('.')[0]} self-attention"
    steps = [arrow for arrow in attention.arrows if not attention.operations[arrow.source]]
    outer = [(_INPUTS.get(arrow.port, "Bias"), arrow) for arrow in heads.arrows if not heads.operations[arrow.source]]
    letters = {size for _, arrow in outer for size in found.shapes[arrow.tensor]}
    words = ("B sentences", "S source tokens", "T target tokens")
    subtitle = f"{kind}: {', '.join(word for word in words if word[0] in letters)}"
    return (
        FigureHalf(
            "Figure 2, left: scaled dot-product attention",
            subtitle,
            attention,
            {group: _step_box(found, own) for group, own in enumerate(attention.operations) if own},
            # In the order of equation 1: the queries are scaled before they meet the keys; the values come last.
            list(zip(["Q", "K", *["Bias"] * (len(steps) - 3), "V"], steps, strict=True)),
        ),
        FigureHalf(
            "Figure 2, right: multi-head attention",
            subtitle,
            heads,
            {group: _part_box(found, own) for group, own in enumerate(heads.operations) if own},
            sorted(outer, key=lambda named: ("Q", "K", "Bias", "V").index(named[0])),
        ),
    )


def _groups(found: ForwardPass, operations: Sequence[Operation], key: Callable[[Operation], Hashable | None]) -> Groups:
    """Group operations; what they read from outside are the inputs. Masks and the angles of rotations are left out."""
    drawn = [one for one in operations if one.function in _PARTS and not found.masks.issuperset(one.outputs)]
    made = {tensor for one in operations for tensor in one.outputs} | found.masks
    inputs = dict.fromkeys(tensor for one in drawn for tensor in one.inputs if tensor not in made)
    return grouped(found, drawn, inputs, key)


def _step_box(found: ForwardPass, operations: Sequence[Operation]) -> Box:
    last = operations[-1]
    name = _STEPS[last.name]
    code = BoxCode(last.function, last.file, last.line)
    formula = formula_of("attention")
    match name:
        case "Scale":
            return Box(name, "norm", code, *formula, f"÷ √{found.shapes[last.outputs[0]][-1]}", operations)
        case "Add Bias":
            return Box(name, "other", code, operations=operations)
        case "Mask":
            formula = formula_of("masked_attention")
            [mask] = found.masks.intersection(last.inputs)
            return Box(name, "embedding", code, *formula, shape_text(found.shapes[mask]), operations)
    return Box(name, "softmax" if name == "SoftMax" else "linear", code, *formula, operations=operations)


def _part_box(found: ForwardPass, operations: Sequence[Operation]) -> Box:
    last = operations[-1]
    name, shape = _PARTS[last.function], found.shapes[last.outputs[0]]
    code = BoxCode(last.function, last.file, last.line)
    formula = formula_of("multi_head")
    match name:
        case "Linear":
            port = last.module.rpartition(".")[2]
            code = BoxCode.at(f"model.attention:MultiHeadAttention.{port}", MultiHeadAttention)
            return Box(name, "linear", code, *formula, _MATRICES[port], operations)
        case "Scaled Dot-Product Attention":
            code = BoxCode.of(scaled_dot_product_attention)
            formula = formula_of("attention")
            return Box(name, "attention", code, *formula, f"{shape[1]} heads", operations)
        case "Rotate":
            return Box(name, "other", BoxCode.of(rotary_positions), operations=operations)
        case "Multiply":
            return Box(name, "other", code, detail=f"× √{shape[-1]}", operations=operations)
    return Box(name, "norm", code, *formula, operations=operations)
