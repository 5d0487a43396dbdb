"""The computation of a translation line by line: the first numbers of what each line of the model computed.

Shapes: H heads, T tokens, D components.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.inspection.explanation import Explanation
from clearhead.inspection.forward_pass import ModelPass
from clearhead.inspection.line_recording import Call, Recording
from clearhead.inspection.model_lines import FORMULAS, KEYS, VALUES
from clearhead.inspection.tokens import printable, visible
from clearhead.model.recorder import AttentionWeights, HiddenStates, Recorder

_TOKENS, _COMPONENTS = 6, 4
_VIEWS = {"permute", "reshape", "split", "transpose", "view", "view_as"}
_REARRANGING = _VIEWS | {"__get__", "contiguous", "detach", "float", "to"}
"""Functions of PyTorch that compute nothing."""


def walk_lines(explanation: Explanation) -> Iterator[str]:
    """Yield what every line of the model computed, in the order of the run: the first layer of each side in full.

    Args:
        explanation: An explanation with a model pass.
    """
    model_pass = explanation.model_pass
    assert model_pass is not None, "a walk needs PyTorch"
    width, heads = model_pass.model.config.d_model, model_pass.model.config.num_heads
    yield f"source       {printable(explanation.source)}"
    if explanation.steps:
        yield f"translation  {printable(explanation.translation)}"
    yield ""
    yield (
        f"The first {min(_COMPONENTS, width)} of {width:,} components (of scores and weights, the first "
        f"{_COMPONENTS} keys) of the first {_TOKENS} tokens, head 1 of {heads}."
    )
    source, target = explanation.source_tokens, explanation.decoder_tokens
    for part in _parts(model_pass):
        yield from ("", part.title)
        yield from _call_lines(part.calls, source if part.is_source else target, source)
    yield ""
    for number, step in enumerate(explanation.steps[:_TOKENS], start=1):
        best = ", ".join(f"{visible(one.token)} {one.probability:.3f}" for one in step.candidates[:_COMPONENTS])
        yield f"step {number}, softmax of the logits: {best}; written: {visible(step.token)} {step.probability:.3f}"


@dataclass
class _Part:
    """A part of the model, and what its lines computed."""

    title: str
    is_source: bool
    """Whether its rows belong to the source tokens."""
    calls: list[Call]


def _parts(model_pass: ModelPass) -> list[_Part]:
    """Run the model; return what was computed in each of its parts: of layers after the first, the output alone."""
    model, hidden = model_pass.model, HiddenStates()
    parts: list[_Part] = []
    hooks = []
    run = Recording(_corner)

    def begin(title: str, *, is_source: bool) -> None:
        if parts:
            parts[-1].calls += [one for one in run.calls if one.code.function not in _REARRANGING]
        run.calls.clear()
        parts.append(_Part(title, is_source, []))

    def watch(module: nn.Module, title: str, *, is_source: bool) -> None:
        hooks.append(module.register_forward_pre_hook(lambda *_: begin(title, is_source=is_source)))

    for side, name, is_source in (("encoder", "source", True), ("decoder", "target", False)):
        if not hasattr(model, side):
            continue
        stack = getattr(model, side)
        watch(getattr(model, f"{name}_embedding"), f"the {name}", is_source=is_source)
        for number, layer in enumerate(stack.layers, start=1):
            watch(layer, f"{side}, layer {number} of {len(stack.layers)}", is_source=is_source)
        watch(stack.final_norm, f"{side}, after the layers", is_source=is_source)
        hooks.append(stack.final_norm.register_forward_hook(lambda *_: begin("", is_source=False)))
    try:
        with run:
            model_pass.run(Recorder(AttentionWeights(), hidden))
            if hidden.decoder:
                begin("the output", is_source=False)
                with torch.inference_mode():
                    model.logits(hidden.decoder[-1])
            begin("", is_source=False)  # ends the last part
    finally:
        for hook in hooks:
            hook.remove()
    return [_shortened(part) for part in parts if part.title and part.calls]


def _shortened(part: _Part) -> _Part:
    """Return a part; of a layer after the first, its output."""
    if (layer := re.search(r", layer (\d+) of", part.title)) is None or layer[1] == "1":
        return part
    return replace(part, title=f"{part.title}: its output", calls=part.calls[-1:])


def _call_lines(calls: Sequence[Call], tokens: list[str], memory: list[str]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for (file, number, text), group in groupby(calls, key=lambda one: (one.code.file, one.number, one.code.text)):
        yield f"  clearhead/{file}:{number}  {text}"
        for call in group:
            # The second keys and values of a decoder layer are those of the memory.
            is_memory = call.code in (KEYS, VALUES) and (file, text) in seen
            yield f"    {FORMULAS.get(call.code, call.code.function)}"
            yield from _rows(call.tensor, memory if is_memory else tokens)
        seen.add((file, text))


def _corner(tensor: Tensor) -> Tensor | None:
    """Return the numbers that are shown: the first of the first head. All of them would fill the memory.

    Indices and masks are not shown, nor what has no row for each token: vectors, and pairs of components.
    """
    if not tensor.is_floating_point() or not 2 <= tensor.dim() <= len("BHTD"):
        return None
    while tensor.dim() > 2:
        tensor = tensor[0]
    return tensor[:_TOKENS, :_COMPONENTS].clone()


def _rows(tensor: Float[Tensor, "t d"], tokens: list[str]) -> Iterator[str]:
    """Yield a line for each token."""
    names = [visible(token) for token in tokens[:_TOKENS]]
    for name, row in zip(names, tensor.tolist(), strict=False):
        yield f"      {name:<{max(map(len, names))}}  {'  '.join(f'{value:z9.3f}' for value in row)}"
