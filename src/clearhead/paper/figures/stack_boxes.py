"""The boxes of figure 1 of a configuration, named by the modules that ran."""

from __future__ import annotations

from clearhead.config import ModelConfig
from clearhead.decoding.step import next_log_probs
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embeddings import Embedding, OutputProjection, OutputTransform
from clearhead.model.feed_forward import FeedForward
from clearhead.model.other_positions import LearnedPositions, RelativePositions
from clearhead.model.positions import SinusoidalPositions
from clearhead.model.residual import Residual
from clearhead.paper.figures.boxes import Box, BoxCode, Row, formula_of, grouped, rows
from clearhead.paper.figures.operations import ForwardPass, Operation

_WHOLE = (
    *(SinusoidalPositions, LearnedPositions, RelativePositions, MultiHeadAttention, FeedForward),
    *(OutputTransform, OutputProjection),
)
"""Modules that are one box each; every line of an embedding or a residual connection is a box."""

SUM = "Add Positions"
"""Name of the box that is drawn as a plus sign."""


class StackBoxes:
    """The boxes of figure 1 and the arrows between them."""

    def __init__(self, config: ModelConfig, found: ForwardPass) -> None:
        self.config = config
        self.found = found
        inputs = [one for one in (found.source, found.target) if one is not None]
        self.groups = grouped(found, found.operations, inputs, self._key)
        matrices = [one.weights[0] for one in found.operations if one.name in ("embedding", "linear") and one.weights]
        self.shared = {name for name in matrices if matrices.count(name) > 1}
        """Names of the matrices that several boxes use."""
        self.boxes = {
            group: self._box(operations) for group, operations in enumerate(self.groups.operations) if operations
        }
        """Box of each group; the inputs have none."""

    @property
    def layers_text(self) -> str:
        """The number of layers, in words."""
        layers = {"encoder": self.config.num_encoder_layers, "decoder": self.config.num_decoder_layers}
        return " and ".join(f"{number} {name} layers" for name, number in layers.items() if number)

    @property
    def rows(self) -> list[Row]:
        """Each box, with the tensors that it reads and the one that it puts out."""
        return rows(self.groups, self.boxes)

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
            if isinstance(module, _WHOLE):
                return name, 0
            if isinstance(module, Embedding | Residual):
                return name, operation.line
            name = name.rpartition(".")[0]
        is_drawn = _is_norm(operation) or operation.name in ("div", "softmax")
        return (operation.module, operation.line) if is_drawn else None

    def _box(self, operations: list[Operation]) -> Box:
        key = self._key(operations[-1])
        assert key is not None, "operations without a key belong to no group"
        module = self.found.model.get_submodule(key[0])
        last = operations[-1]
        code = BoxCode.of(type(module)) if isinstance(module, _WHOLE) else BoxCode(last.function, last.file, last.line)
        names = [one.name for one in operations]
        match module:
            case Embedding():
                return self._embedding_box(module, operations, code)
            case Residual():
                parts = ["Add"] * ("add" in names) + ["Norm"] * any(map(_is_norm, operations))
                formula = formula_of("residual")
                return Box(" & ".join(parts), "norm", code, *formula, operations=operations)
            case SinusoidalPositions():
                formula = formula_of("positions")
                return Box("Positional Encoding", "other", code, *formula, operations=operations)
            case LearnedPositions():
                return Box("Learned Positions", "other", code, "Table 3, row E", operations=operations)
            case RelativePositions():
                return Box("Relative Positions", "other", code, operations=operations)
            case MultiHeadAttention():
                return self._attention_box(operations, code)
            case FeedForward():
                return self._feed_forward_box(operations, code)
            case OutputTransform():
                return Box("Output Transform", "linear", code, operations=operations)
            case OutputProjection():
                detail = "matrix E" if last.weights[0] in self.shared else ""
                formula = formula_of("tied_output")
                return Box("Linear", "linear", code, *formula, detail, operations)
        if "softmax" in names:
            taken = BoxCode.at("output.log_probs", next_log_probs)
            return Box("Softmax", "softmax", taken, "section 3.4", operations=operations)
        if any(map(_is_norm, operations)):
            return Box("Norm", "norm", code, operations=operations)
        return Box(f"Divide by √{self.config.d_model}", "other", code, operations=operations)

    def _embedding_box(self, module: Embedding, operations: list[Operation], code: BoxCode) -> Box:
        names = [one.name for one in operations]
        if operations[-1].function == "Embedding.vectors":
            name = "Input Embedding" if is_of_source(operations[-1].module) else "Output Embedding"
            shared = ["matrix E"] if operations[0].weights[0] in self.shared else []
            detail = ", ".join([*shared, *([f"× √{self.config.d_model}"] if module.scale != 1.0 else [])])
            formula = formula_of("scaled_embedding")
            return Box(name, "embedding", code, *formula, detail, operations)
        if any(map(_is_norm, operations)):
            return Box("Norm", "norm", code, operations=operations)
        if "embedding" in names:
            return Box("Add Segment", "embedding", code, operations=operations)
        return Box(SUM, "other", code, "section 3.5", operations=operations)

    def _attention_box(self, operations: list[Operation], code: BoxCode) -> Box:
        name = "Multi-Head Attention"
        if any(one.function == "causal_mask" for one in operations):
            name = f"Masked {name}"
        split = next(one for one in operations if one.name == "transpose")
        detail = f"{self.found.shapes[split.outputs[0]][1]} heads"
        if any(one.function == "rotary_positions" for one in operations):
            detail += ", rotary"
        formula = formula_of("multi_head")
        return Box(name, "attention", code, *formula, detail, operations)

    def _feed_forward_box(self, operations: list[Operation], code: BoxCode) -> Box:
        names = [one.name for one in operations]
        activation = " ".join(name for name in names if name not in ("linear", "mul"))
        gated = "gated " if "mul" in names else ""
        detail = f"{gated}{activation}, {self.found.shapes[operations[0].outputs[0]][-1]}"
        formula = formula_of("feed_forward")
        return Box("Feed Forward", "feed_forward", code, *formula, detail, operations)


def is_of_source(module: str) -> bool:
    """Return whether a module reads the source: the source embedding and the encoder."""
    return module.startswith(("source_embedding", "encoder"))


def _is_norm(operation: Operation) -> bool:
    return operation.name in ("layer_norm", "rms_norm")
