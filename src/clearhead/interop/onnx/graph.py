"""One ONNX file: its nodes and weights, and the parts of a Transformer that know nothing of positions.

Shapes: N rows, I inputs, M outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from clearhead.errors import ConfigError

__all__ = ["Graph"]

OPSET = 20
"""The first version of their operators with `Gelu`; onnxruntime has it from 1.17 on."""

IR_VERSION = 9
"""Of the file itself; the one that came with those operators."""

MOST_BYTES = 2**31 - 2**20
"""Of the weights of one file: protobuf, in which it is written, ends at 2 GiB, and the nodes take little."""

MOST_WHOLE = np.float32(63)
"""Of a weight in 8-bit integers. Processors without VNNI add products by twos in 16 bits, and cut off what is above: no
255 * 63 * 2 is."""

LEAST = np.float32(1e-30)
"""Instead of 0, which nothing is divided by."""

Value = str | np.ndarray | np.generic | nn.Parameter
"""What a node reads: what another one gives, by its name, or a constant, or a weight."""


class Graph:
    """The nodes and weights of one file, in the order in which they are computed.

    Args:
        module: Whose weights it takes: they keep their names and shapes, and a shared one is written once.
        rounded: Write matrices in 8-bit integers, each row with a scale of its own; what they are multiplied with is
            rounded in the same way, so that no row of a batch changes another.
    """

    def __init__(self, module: nn.Module, *, rounded: bool) -> None:
        self._names = {id(weight): name for name, weight in module.named_parameters()}
        self._rounded = rounded
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, np.ndarray] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> str:
        """Add a node of one of their operators, and return the name of what it gives."""
        name = f"{kind}_{len(self._nodes)}"
        read = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self._nodes.append(helper.make_node(kind, read, [name], name, **attributes))
        return name

    def input(self, name: str, kind: int, *shape: str | int) -> str:
        """Declare what a caller gives; an axis of any length has a name in `shape`."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, *shape: str | int) -> None:
        """Declare what a caller receives, in float32."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def linear(self, x: str, linear: Any) -> str:
        """Return x W^T + b [N, M]; x is [N, I] and W [M, I]."""
        bias = [] if linear.bias is None else [linear.bias]
        if not self._rounded:
            return self.op("Gemm", x, linear.weight, *bias, transB=1)
        weight, scale = self._rounded_rows(linear.weight)
        largest = self.op("ReduceMax", self.op("Abs", x), np.array([-1]))  # [N, 1]
        step = self.op("Div", self.op("Max", largest, LEAST), np.float32(127))
        # Unsigned, 128 for zero: onnxruntime multiplies signed by signed numbers ten times as slowly.
        whole = self.op("Add", self.op("Round", self.op("Div", x, step)), np.float32(128))
        whole = self.op("Cast", whole, to=TensorProto.UINT8)
        product = self.op("MatMulInteger", whole, self.op("Transpose", weight, perm=[1, 0]), np.uint8(128))
        # One scale after the other: onnxruntime 1.32 takes their product for a pattern where `step` is a single number.
        y = self.op("Mul", self.op("Cast", product, to=TensorProto.FLOAT), step)
        y = self.op("Mul", y, self.op("Transpose", scale, perm=[1, 0]))
        return self.op("Add", y, *bias) if bias else y

    def rows(self, table: nn.Parameter, ids: str) -> str:
        """Return the rows of a matrix that ids name."""
        if not self._rounded:
            return self.op("Gather", table, ids)
        whole, scale = self._rounded_rows(table)
        row = self.op("Cast", self.op("Gather", whole, ids), to=TensorProto.FLOAT)
        return self.op("Mul", row, self.op("Gather", scale, ids))

    def norm(self, x: str, norm: Any) -> str:
        """Return x after a LayerNorm or an RMSNorm; with any other module, as it is."""
        match norm:
            case nn.LayerNorm():
                return self.op("LayerNormalization", x, norm.weight, norm.bias, epsilon=norm.eps)
            case nn.RMSNorm():
                square = self.op("ReduceMean", self.op("Mul", x, x), np.array([-1]))
                root = self.op("Sqrt", self.op("Add", square, np.float32(norm.eps)))
                return self.op("Mul", self.op("Div", x, root), norm.weight)
            case _:
                return x

    def whole(self, name: str) -> onnx.ModelProto:
        """Return the file, whose name without its ending is that of the graph.

        Raises:
            ConfigError: If its weights are more than such a file can hold.
        """
        size = sum(value.nbytes for value in self._weights.values())
        if size > MOST_BYTES:
            raise ConfigError(
                f"{name}.onnx would hold {size / 2**30:.1f} GiB of weights, and an ONNX file ends at 2 GiB; weights in "
                "files beside it are not written here"
            )
        weights = [numpy_helper.from_array(value, name) for name, value in self._weights.items()]
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, weights)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="clearhead"
        )

    def _constant(self, value: Any) -> str:
        if isinstance(value, Tensor):
            name, value = self._names[id(value)], value.detach().float().cpu().numpy()
        else:
            name, value = f"constant_{len(self._weights)}", np.asarray(value)
        self._weights[name] = value
        return name

    def _rounded_rows(self, weight: nn.Parameter) -> tuple[str, str]:
        """Return a matrix in whole numbers [M, I] and the scale of each row [M, 1]."""
        name = self._names[id(weight)]
        values = weight.detach().float().cpu().numpy()
        scale = np.maximum(np.abs(values).max(axis=1, keepdims=True), LEAST) / MOST_WHOLE
        self._weights[f"{name}.int8"] = np.round(values / scale).astype(np.int8)
        self._weights[f"{name}.scale"] = scale
        return f"{name}.int8", f"{name}.scale"
