"""The boxes of figure 2 of a configuration: one attention, step by step, and the heads around it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.other_positions import rotary_positions
from clearhead.paper.figures.boxes import Arrow, Box, BoxCode, Groups, Look, grouped
from clearhead.paper.figures.operations import ForwardPass, Operation, shape_text

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


@dataclass(frozen=True)
class FigureHalf:
    """One half of figure 2."""

    title: str
    subtitle: str
    """Which attention of the model it is, and what the letters of the shapes mean."""
    groups: Groups
    inputs: Sequence[tuple[str, Arrow]]
    """Names of the arrows from outside, from left to right."""


def panels(found: ForwardPass) -> tuple[FigureHalf, FigureHalf]:
    """Return both halves of figure 2: scaled dot-product attention, and multi-head attention.

    They show the attention of the model with the most steps: cross-attention, unless self-attention also has positions.
    """
    names = [name for name, module in found.model.named_modules() if isinstance(module, MultiHeadAttention)]
    both = [_panels(found, name) for name in sorted(names, key=lambda name: ("cross" not in name, name))]
    return max(both, key=lambda pair: sum(len(panel.groups.boxes) for panel in pair))


def _panels(found: ForwardPass, name: str) -> tuple[FigureHalf, FigureHalf]:
    whole = [one for one in found.operations if f"{one.module}.".startswith(f"{name}.")]
    inside = [one for one in whole if one.function == "scaled_dot_product_attention"]
    attention = _groups(found, inside, lambda one: _STEPS.get(one.name), _step_box)
    heads = _groups(found, whole, lambda one: (one.module, one.function), _part_box)
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
    found: ForwardPass,
    operations: Sequence[Operation],
    key: Callable[[Operation], Hashable | None],
    box: Callable[[ForwardPass, list[Operation]], Box],
) -> Groups:
    """Group operations; what they read from outside are the inputs. Masks and the angles of rotations are left out."""
    drawn = [one for one in operations if one.function in _PARTS and not found.masks.issuperset(one.outputs)]
    made = {tensor for one in operations for tensor in one.outputs} | found.masks
    inputs = dict.fromkeys(tensor for one in drawn for tensor in one.inputs if tensor not in made)
    return grouped(found, drawn, inputs, key, partial(box, found))


def _step_box(found: ForwardPass, operations: list[Operation]) -> Box:
    last, detail = operations[-1], ""
    name, kind, paper = _STEPS[last.name]
    match name:
        case "Scale":
            detail = f"÷ √{found.shapes[last.outputs[0]][-1]}"
        case "Mask":
            [mask] = found.masks.intersection(last.inputs)
            detail = shape_text(found.shapes[mask])
    return Box(name, kind, BoxCode.of_last(operations), operations, paper, detail)


def _part_box(found: ForwardPass, operations: list[Operation]) -> Box:
    last, code, detail = operations[-1], BoxCode.of_last(operations), ""
    (name, kind, paper), shape = _PARTS[last.function], found.shapes[last.outputs[0]]
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
