"""The computation of a translation line by line: the first numbers of what each line of the model computed.

As text, as plain values for JSON, and as a page.

Shapes: H heads, T tokens, D components.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.inspection.explanation import Explanation
from clearhead.inspection.forward_pass import ModelPass
from clearhead.inspection.token_steps import Step
from clearhead.inspection.tokens import printable, visible
from clearhead.model.recorder import AttentionWeights, HiddenStates, Recorder
from clearhead.model.residual import Residual
from clearhead.paper.places import FORMULAS, Code, CodeLine, code
from clearhead.paper.recording import RecordedCall, Recording
from clearhead.paper.walk.rendering import ShownMatrix, ShownStage, ShownStep, render_walk
from clearhead.text.lines import shortened

_TOKENS, _COMPONENTS = 6, 4
_OUTPUT = ": its output"
_LAST = "softmax of the logits"
_OF_MEMORY = {code("heads.keys"), code("heads.values")}
"""Of a decoder layer, the second call of these reads the memory."""
_VIEWS = {"permute", "reshape", "split", "transpose", "view", "view_as"}
_REARRANGING = _VIEWS | {"__get__", "contiguous", "detach", "float", "to"}
"""Functions of PyTorch that compute nothing."""


@dataclass(frozen=True)
class ComputedLine:
    """What a line computed for the first tokens: a row for each, with the first numbers."""

    line: CodeLine
    formula: str
    """What it is in the paper, or the function of PyTorch that computed it."""
    tokens: list[str]
    values: list[list[float]]


@dataclass(frozen=True)
class WalkStage:
    """A part of the model: the embedding of a side, a layer, the norm after the layers, or the output."""

    name: str
    computed: list[ComputedLine]
    ends: list[int]
    """Places in `computed` where a sublayer ends and another follows."""

    def sublayers(self) -> Iterator[WalkStage]:
        """Yield a stage for each sublayer, since a layer is long to read; a stage without sublayers as it is."""
        attentions = iter(("self-attention", "cross-attention"))
        for start, end in pairwise([0, *self.ends, len(self.computed)]):
            part = self.computed[start:end]
            if not self.ends:
                name = self.name
            elif any(call.line.file == "model/attention.py" for call in part):
                name = f"{self.name}: {next(attentions)}"
            else:
                name = f"{self.name}: feed-forward network"
            yield WalkStage(name, part, [])


@dataclass(frozen=True)
class ModelWalk:
    """What the lines of a model computed, in the order of the run: the first layer of each side in full."""

    explanation: Explanation
    stages: list[WalkStage]

    @property
    def about(self) -> str:
        """What of each matrix is shown."""
        assert self.explanation.model_pass is not None
        config = self.explanation.model_pass.model.config
        return (
            f"The first {min(_COMPONENTS, config.d_model)} of {config.d_model:,} components (of scores and weights, "
            f"the first {_COMPONENTS} keys) of the first {_TOKENS} tokens, head 1 of {config.num_heads}."
        )

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text."""
        yield f"source       {printable(self.explanation.source)}"
        if self.explanation.steps:
            yield f"translation  {printable(self.explanation.translation)}"
        yield from ("", self.about)
        for stage in self.stages:
            yield from ("", stage.name)
            for line, group in groupby(stage.computed, key=lambda computation: computation.line):
                yield f"  clearhead/{line.file}:{line.number}  {line.text}"
                for computation in group:
                    yield f"    {computation.formula}"
                    width = max(map(len, computation.tokens))
                    for name, row in zip(computation.tokens, _cells(computation.values), strict=True):
                        yield f"      {name:<{width}}  {'  '.join(cell.rjust(9) for cell in row)}"
        yield ""
        for number, step in enumerate(self.explanation.steps[:_TOKENS], start=1):
            best = ", ".join(_candidates(step))
            yield f"step {number}, {_LAST}: {best}; written: {visible(step.token)} {step.probability:.3f}"

    def to_dict(self) -> dict[str, Any]:
        """Return the walk as plain values for JSON; minus infinity, which JSON does not have, is None."""
        return {
            "source": self.explanation.source,
            "translation": self.explanation.translation,
            "about": self.about,
            "stages": [
                {
                    "name": stage.name,
                    "computed": [
                        {
                            **asdict(computation),
                            "values": [
                                [value if math.isfinite(value) else None for value in row] for row in computation.values
                            ],
                        }
                        for computation in stage.computed
                    ],
                }
                for stage in self.stages
            ],
            "steps": [asdict(step) for step in self.explanation.steps[:_TOKENS]],
        }

    def to_html(self) -> str:
        """Return the walk as a page that shows one stage at a time."""
        stages = [
            ShownStage(
                stage.name,
                self.about,
                "Of this layer the output alone is shown." if stage.name.endswith(_OUTPUT) else "",
                [
                    ShownStep(row.formula, [row.line], [("result", [ShownMatrix("", _cells(row.values), row.tokens)])])
                    for row in stage.computed
                ],
            )
            for stage in chain.from_iterable(stage.sublayers() for stage in self.stages)
        ]
        if steps := self.explanation.steps[:_TOKENS]:
            cells = [[f"{visible(step.token)} {step.probability:.3f}", ", ".join(_candidates(step))] for step in steps]
            names = [str(number) for number in range(1, len(steps) + 1)]
            shown = ShownMatrix("", cells, names, ["written", "most probable"], ["text", "text"])
            about = "The tokens with the largest probabilities at the first steps."
            stages.append(ShownStage("the next token", "", about, [ShownStep(_LAST, [], [("result", [shown])])]))
        source, translation = (printable(text) for text in (self.explanation.source, self.explanation.translation))
        return render_walk(
            f"Line by line: {shortened(source, 60)}",
            f"What each line of the model “{self.explanation.model['name']}” computed for “{source}”, in their order.",
            stages,
            f"The translation: {translation}" if translation else "The states of the encoder are the result.",
        )


def walk_of(explanation: Explanation) -> ModelWalk:
    """Run the model, and return what every line computed.

    Args:
        explanation: An explanation with a model pass.
    """
    model_pass = explanation.model_pass
    assert model_pass is not None, "a walk needs PyTorch"
    source, target = explanation.source_tokens, explanation.decoder_tokens
    return ModelWalk(
        explanation,
        [
            WalkStage(part.title, list(_computed(part.calls, source if part.is_source else target, source)), part.ends)
            for part in _parts(model_pass)
        ],
    )


def _candidates(step: Step) -> list[str]:
    return [f"{visible(candidate.token)} {candidate.probability:.3f}" for candidate in step.candidates[:_COMPONENTS]]


def _cells(values: list[list[float]]) -> list[list[str]]:
    return [[f"{value:z.3f}" for value in row] for row in values]


@dataclass
class _Part:
    """A part of the model, and what its lines computed."""

    title: str
    is_source: bool
    """Whether its rows belong to the source tokens."""
    calls: list[RecordedCall] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Numbers of calls after which a sublayer has ended and another follows."""


def _parts(model_pass: ModelPass) -> list[_Part]:
    """Run the model; return what was computed in each of its parts: of layers after the first, the output alone."""
    model, hidden = model_pass.model, HiddenStates()
    parts: list[_Part] = []
    hooks = []
    run = Recording(_corner)

    def keep() -> None:
        if parts:
            parts[-1].calls += [call for call in run.calls if call.code.function not in _REARRANGING]
        run.calls.clear()

    def begin(title: str, *, is_source: bool) -> None:
        keep()
        parts.append(_Part(title, is_source))

    def end_sublayer(*_: object) -> None:
        keep()
        parts[-1].ends.append(len(parts[-1].calls))

    def watch(module: nn.Module, title: str, *, is_source: bool) -> None:
        hooks.append(module.register_forward_pre_hook(lambda *_: begin(title, is_source=is_source)))

    for side, name, is_source in (("encoder", "source", True), ("decoder", "target", False)):
        if not hasattr(model, side):
            continue
        stack = getattr(model, side)
        watch(getattr(model, f"{name}_embedding"), f"the {name}", is_source=is_source)
        for number, layer in enumerate(stack.layers, start=1):
            watch(layer, f"{side}, layer {number} of {len(stack.layers)}", is_source=is_source)
            for norm, is_pre in ((part.norm, part.is_pre) for part in layer.modules() if isinstance(part, Residual)):
                register = norm.register_forward_pre_hook if is_pre else norm.register_forward_hook
                hooks.append(register(end_sublayer))
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
        return replace(part, ends=[end for end in part.ends if 0 < end < len(part.calls)])
    return replace(part, title=part.title + _OUTPUT, calls=part.calls[-1:], ends=[])


def _computed(calls: Sequence[RecordedCall], tokens: list[str], memory: list[str]) -> Iterator[ComputedLine]:
    seen: set[Code] = set()
    for (_, text), group in groupby(calls, key=lambda entry: (entry.number, entry.code.text)):
        lines = list(group)
        for call in lines:
            is_memory = call.code in _OF_MEMORY and call.code in seen
            values = call.tensor.tolist()
            names = [visible(token) for token in (memory if is_memory else tokens)[: len(values)]]
            line = CodeLine(call.code.file, call.number, text)
            yield ComputedLine(line, FORMULAS.get(call.code, call.code.function), names, values[: len(names)])
        seen.update(call.code for call in lines)


def _corner(tensor: Tensor) -> Tensor | None:
    """Return the numbers that are shown: the first of the first head. All of them would fill the memory.

    Indices and masks are not shown, nor what has no row for each token: vectors, and pairs of components.
    """
    if not tensor.is_floating_point() or not 2 <= tensor.dim() <= len("BHTD"):
        return None
    while tensor.dim() > 2:
        tensor = tensor[0]
    return tensor[:_TOKENS, :_COMPONENTS].clone()
