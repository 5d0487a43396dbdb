"""The boxes of figure 1 of a configuration, named by the modules that ran."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from clearhead.config import ModelConfig
from clearhead.decoding.step import next_log_probs
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embeddings import Embedding, OutputProjection, OutputTransform
from clearhead.model.feed_forward import FeedForward
from clearhead.model.other_positions import LearnedPositions, RelativePositions
from clearhead.model.positions import SinusoidalPositions
from clearhead.model.residual import Residual
from clearhead.paper.figures.boxes import Box, BoxCode, Look, grouped
from clearhead.paper.figures.operations import ForwardPass, Operation

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


class StackBoxes:
    """The boxes of figure 1 and the arrows between them."""

    def __init__(self, config: ModelConfig, found: ForwardPass) -> None:
        self.config = config
        self.found = found
        inputs = [one for one in (found.source, found.target) if one is not None]
        matrices = [one.weights[0] for one in found.operations if one.name in ("embedding", "linear") and one.weights]
        self.shared = {name for name in matrices if matrices.count(name) > 1}
        """Names of the matrices that several boxes use."""
        self.groups = grouped(found, found.operations, inputs, self._key, self._box)

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
            module = self.found.model.get_submodule(name)
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
        module, code = self.found.model.get_submodule(key[0]), BoxCode.of_last(operations)
        names = [one.name for one in operations]
        is_norm = any(map(_is_norm, operations))
        if look := _WHOLE.get(type(module)):
            name, kind, paper = look
            is_masked = any(one.function == "causal_mask" for one in operations)
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
        names, functions = [one.name for one in operations], [one.function for one in operations]
        details = ["matrix E"] if self.shared.intersection(operations[0].weights) else []
        match module:
            case Embedding() if module.scale != 1.0:
                details.append(f"× √{self.config.d_model}")
            case MultiHeadAttention():
                split = operations[names.index("transpose")]
                details.append(f"{self.found.shapes[split.outputs[0]][1]} heads")
                details += ["rotary"] if "rotary_positions" in functions else []
            case FeedForward():
                activation = " ".join(name for name in names if name not in ("linear", "mul"))
                details.append("gated " * ("mul" in names) + activation)
                details.append(str(self.found.shapes[operations[0].outputs[0]][-1]))
        return ", ".join(details)


def is_of_source(module: str) -> bool:
    """Return whether a module reads the source: the source embedding and the encoder."""
    return module.startswith(("source_embedding", "encoder"))


def _is_norm(operation: Operation) -> bool:
    return operation.name in ("layer_norm", "rms_norm")
