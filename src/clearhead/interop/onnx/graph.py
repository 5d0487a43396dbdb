"""Builder of one ONNX file: nodes, weights in float32 or int8, and layers that do not depend on positions.

Shapes: N rows, I inputs, M outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from clearhead.errors import ConfigError

OPSET = 20
"""ONNX operator set: the first with `Gelu`, supported by onnxruntime since 1.17."""

IR_VERSION = 9
"""Version of the ONNX file format, which belongs to that operator set."""

MOST_BYTES = 2**31 - 2**20
"""Largest size of the weights in one file: protobuf, its format, is limited to 2 GiB, and the nodes need little."""

MOST_WHOLE = np.float32(63)
"""Largest absolute value of a weight in 8-bit integers.

Processors without VNNI add pairs of products in 16 bits with saturation; 255 * 63 * 2 stays below the limit.
"""

LEAST = np.float32(1e-30)
"""Smallest divisor, to avoid division by zero."""

Value = str | np.ndarray | np.generic | nn.Parameter
"""Input of a node: the name of another node's output, a constant, or a weight."""


class Graph:
    """The nodes and weights of one file, in the order of computation.

    Args:
        module: Module of the weights; they keep their names and shapes, and a shared one is written once.
        rounded: Whether to quantize matrices to 8-bit integers, with one scale per row. Their inputs are quantized in
            the same way, so no row of a batch affects another.
    """

    def __init__(self, module: nn.Module, *, rounded: bool) -> None:
        self._names = {id(weight): name for name, weight in module.named_parameters()}
        self._rounded = rounded
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, np.ndarray] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> str:
        """Add a node of an ONNX operator, and return the name of its output."""
        name = f"{kind}_{len(self._nodes)}"
        read = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self._nodes.append(helper.make_node(kind, read, [name], name, **attributes))
        return name

    def input(self, name: str, kind: int, *shape: str | int) -> str:
        """Declare an input of the file; in `shape`, an axis of any length has a name."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, *shape: str | int) -> None:
        """Declare an output of the file, in float32."""
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
        # Unsigned, with 128 for zero: onnxruntime multiplies signed by signed integers ten times as slowly.
        whole = self.op("Add", self.op("Round", self.op("Div", x, step)), np.float32(128))
        whole = self.op("Cast", whole, to=TensorProto.UINT8)
        product = self.op("MatMulInteger", whole, self.op("Transpose", weight, perm=[1, 0]), np.uint8(128))
        # Apply the scales one after the other: onnxruntime 1.32 takes their product for a fusion pattern, in which
        # `step` is a single number.
        y = self.op("Mul", self.op("Cast", product, to=TensorProto.FLOAT), step)
        y = self.op("Mul", y, self.op("Transpose", scale, perm=[1, 0]))
        return self.op("Add", y, *bias) if bias else y

    def rows(self, table: nn.Parameter, ids: str) -> str:
        """Return the rows of a matrix with these ids."""
        if not self._rounded:
            return self.op("Gather", table, ids)
        whole, scale = self._rounded_rows(table)
        row = self.op("Cast", self.op("Gather", whole, ids), to=TensorProto.FLOAT)
        return self.op("Mul", row, self.op("Gather", scale, ids))

    def norm(self, x: str, norm: Any) -> str:
        """Return x after a LayerNorm or an RMSNorm; without a norm, x itself."""
        match norm:
            case nn.LayerNorm():
                return self.op("LayerNormalization", x, norm.weight, norm.bias, epsilon=norm.eps)
            case nn.RMSNorm():
                square = self.op("ReduceMean", self.op("Mul", x, x), np.array([-1]))
                root = self.op("Sqrt", self.op("Add", square, np.float32(norm.eps)))
                return self.op("Mul", self.op("Div", x, root), norm.weight)
            case nn.Identity() | None:
                return x
            case other:
                raise ConfigError(f"a {type(other).__name__} cannot be written as ONNX")

    def whole(self, name: str) -> onnx.ModelProto:
        """Return the ONNX file; its graph has the file's name without the extension.

        Raises:
            ConfigError: If the weights exceed the size limit of a file.
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
        """Return the names of a matrix in 8-bit integers [M, I] and of the scales of its rows [M, 1]."""
        name = self._names[id(weight)]
        values = weight.detach().float().cpu().numpy()
        scale = np.maximum(np.abs(values).max(axis=1, keepdims=True), LEAST) / MOST_WHOLE
        self._weights[f"{name}.int8"] = np.round(values / scale).astype(np.int8)
        self._weights[f"{name}.scale"] = scale
        return f"{name}.int8", f"{name}.scale"
