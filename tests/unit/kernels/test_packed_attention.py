"""Packed attention: equal to equation 1 sentence by sentence, one node for the compiler, and equal in its kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from clearhead.errors import ClearheadError
from clearhead.kernels import packed_attention as module
from clearhead.kernels.packed_attention import NONE, KeyRanges, has_triton, packed_attention
from clearhead.model.attention import scaled_dot_product_attention
from clearhead.model.masks import causal_mask
from processes import call

HEADS, WIDTH = 3, 16
SOURCES, TARGETS = (5, 67, 1, 0, 22, 38), (9, 2, 71, 4, 30, 13)
"""Lengths of the sentences; one has no source. A block of 64 rows holds parts of several."""
KINDS = {"encoder": (SOURCES, SOURCES), "decoder": (TARGETS, TARGETS), "cross": (TARGETS, SOURCES)}
FILLING = 7
"""Rows at the end that no sentence has."""


def places(lengths: tuple[int, ...]) -> list[range]:
    """Return the rows of each sentence."""
    ends = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    return [range(*pair) for pair in pairwise(ends)]


def key_ranges(kind: str) -> KeyRanges:
    queries, keys = map(places, KINDS[kind])
    start, end = ([none] * (queries[-1].stop + FILLING) for none in (NONE, 0))
    query_start, query_end = ([none] * (keys[-1].stop + FILLING) for none in (NONE, 0))
    for rows, seen in zip(queries, keys, strict=True):
        if rows and seen:
            for row in rows:
                start[row], end[row] = seen.start, row + 1 if kind == "decoder" else seen.stop
            for key in seen:
                query_start[key], query_end[key] = key if kind == "decoder" else rows.start, rows.stop
    return KeyRanges(*(torch.tensor(numbers, dtype=torch.int32) for numbers in (start, end, query_start, query_end)))


def drawn(ranges: KeyRanges, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return queries and keys as slices of one product, and values and a gradient of the output, heads outermost."""
    num_queries, num_keys = len(ranges.start), len(ranges.query_start)
    together = torch.randn(max(num_queries, num_keys), 2 * HEADS, WIDTH, dtype=dtype).requires_grad_()
    q, k = together.split(HEADS, dim=1)
    v = torch.randn(HEADS, num_keys, WIDTH, dtype=dtype).requires_grad_()
    grad = torch.randn(HEADS, num_queries, WIDTH, dtype=dtype)
    return [q[:num_queries], k[:num_keys], v.transpose(0, 1), grad.transpose(0, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_packed_attention_is_equation_1_sentence_by_sentence(kind):
    ranges = key_ranges(kind)
    q, k, v, grad = drawn(ranges)
    out = packed_attention(q, k, v, ranges)
    expected = torch.zeros_like(out)
    for rows, seen in zip(*map(places, KINDS[kind]), strict=True):
        heads = [x[part.start : part.stop].transpose(0, 1) for x, part in ((q, rows), (k, seen), (v, seen))]
        mask = causal_mask(len(rows)) if kind == "decoder" else None
        attended, _ = scaled_dot_product_attention(*heads, mask)
        expected[rows.start : rows.stop] = attended.transpose(0, 1)
    torch.testing.assert_close(out, expected)
    found, wanted = (torch.autograd.grad(x, [q, k, v], grad) for x in (out, expected))
    torch.testing.assert_close(found, wanted)
    rows_of_no_use = ranges.start == NONE
    assert rows_of_no_use.sum() == FILLING + (TARGETS[SOURCES.index(0)] if kind == "cross" else 0)
    assert out[rows_of_no_use].count_nonzero() == found[0][rows_of_no_use].count_nonzero() == 0


def few(dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Return small arguments of the operation: two sentences of one kind, a query and a key of none."""
    rows = [torch.randn(count, 2, 3, dtype=dtype).requires_grad_() for count in (6, 5, 5)]
    ranges = [(0, 0, 1, 1, 1, NONE), (1, 1, 4, 4, 3, 0), (0, 2, 2, 2, NONE), (2, 5, 5, 4, 0)]
    return *rows, *(torch.tensor(numbers, dtype=torch.int32) for numbers in ranges)


def test_gradients_are_those_of_small_differences():
    q, k, v, *ranges = few()
    assert torch.autograd.gradcheck(lambda *rows: packed_attention(*rows, KeyRanges(*ranges)), (q, k, v))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_operations_follow_the_rules_of_torch(dtype):
    arguments = few(dtype)
    torch.library.opcheck(module._attention, arguments)
    out, log_sums = module._attention(*arguments)
    assert (out.requires_grad, log_sums.requires_grad) == (True, False)
    arguments = [x.detach() for x in (torch.randn_like(out), *arguments, out, log_sums)]
    torch.library.opcheck(module._attention_backward, arguments)


def test_no_value_is_read_on_a_gpu():
    # Without requires_grad: builds of PyTorch for CPUs cannot record a graph for tensors of a GPU.
    with FakeTensorMode(), torch.device("cuda"):  # reading a value raises
        q, k, v = torch.empty(310, 3, 8, 64, dtype=torch.bfloat16).unbind(1)
        k, v = k.narrow(0, 0, 290), v.narrow(0, 0, 290)
        numbers = [torch.empty(count, dtype=torch.int32) for count in (310, 310, 290, 290)]
        out = packed_attention(q, k, v, KeyRanges(*numbers))
        found = module._attention_backward(out, q, k, v, *numbers, out, torch.empty(8, 310))
        with pytest.raises(ValueError, match=r"takes heads of width \(16, .*\), not 48"):
            packed_attention(*(x.narrow(2, 0, 48) for x in (q, k, v)), KeyRanges(*numbers))
        plain = packed_attention(*(x.float().narrow(2, 0, 48) for x in (q, k, v)), KeyRanges(*numbers))
    assert plain.shape == (310, 8, 48)
    assert [(x.device.type, x.dtype, x.shape) for x in (out, *found)] == [
        ("cuda", torch.bfloat16, (rows, 8, 64)) for rows in (310, 310, 290, 290)
    ]


def test_has_triton_asks_for_triton_and_a_c_compiler(monkeypatch):
    for triton, compiler in product((None, "triton"), (None, "/usr/bin/gcc")):
        monkeypatch.setattr(module, "find_spec", lambda name, found=triton: found)
        monkeypatch.setattr(shutil, "which", lambda name, found=compiler: name and found)
        assert has_triton.__wrapped__() == bool(triton and compiler)
    monkeypatch.setattr(module, "has_triton", lambda: False)
    with pytest.raises(ClearheadError, match="pip install triton"):
        module._triton_form()


def check_compiled() -> None:
    compiled = torch.compile(packed_attention, backend="aot_eager", fullgraph=True, dynamic=True)
    for kind in KINDS:
        ranges = key_ranges(kind)
        *rows, grad = drawn(ranges)
        results = [attend(*rows, ranges) for attend in (compiled, packed_attention)]
        gradients = [torch.autograd.grad(out, rows, grad) for out in results]
        torch.testing.assert_close(*results, rtol=0, atol=0)
        torch.testing.assert_close(*gradients, rtol=0, atol=0)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_packed_attention_is_one_graph_for_the_compiler():
    assert call(check_compiled) == 0  # in a process of its own, without the shape checks of a test run


def check_kernels() -> None:
    from clearhead.kernels import packed_attention_triton

    half, single = (torch.float16, 1e-3), (torch.float32, 1e-5)  # it has no bfloat16
    for kind, (dtype, limit) in {"encoder": half, "decoder": single, "cross": half}.items():
        ranges = key_ranges(kind)
        numbers = ranges.start, ranges.end, ranges.query_start, ranges.query_end
        q, k, v, grad = (x.detach() for x in drawn(ranges, dtype))
        out, log_sums = packed_attention_triton.forward(q, k, v, *numbers[:2])
        found = out, log_sums, *packed_attention_triton.backward(grad, q, k, v, *numbers, out, log_sums)
        q, k, v, grad = (x.double() for x in (q, k, v, grad))
        out, log_sums = module._attention(q, k, v, *numbers)
        wanted = out, log_sums, *module._attention_backward(grad, q, k, v, *numbers, out, log_sums)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=limit, atol=limit * other.abs().max().item())


def check_compilation() -> None:
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from clearhead.kernels import packed_attention_triton as kernels

    def kind(argument: str) -> str:
        if argument.isupper():
            return "constexpr"
        if argument.startswith("num_") or argument.endswith("_stride"):
            return "i32"
        return types.get(argument, "*bf16")

    types = dict.fromkeys(["start", "end", "query_start", "query_end"], "*i32")
    types |= {"log_sums": "*fp32", "inner": "*fp32", "scale": "fp32"}
    choice = kernels._block(16)
    sizes, options = ({key: choice[key] for key in keys} for keys in (["WIDTH", "BLOCK"], ["num_warps", "num_stages"]))
    for kernel in (kernels._forward_kernel, kernels._grad_queries_kernel, kernels._grad_keys_kernel):
        source = ASTSource(kernel, {name: kind(name) for name in kernel.arg_names}, sizes)
        compile(source, GPUTarget("cuda", 90, 32), options)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed (it has packages for Linux alone)")
@pytest.mark.parametrize(("check", "interpret"), [("check_kernels", "1"), ("check_compilation", "0")])
def test_the_kernels_are_the_plain_form_and_compile_for_a_gpu(check, interpret, tmp_path):
    settings = {"TRITON_INTERPRET": interpret, "TRITON_CACHE_DIR": str(tmp_path)}  # read when Triton is imported
    settings["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, __file__, check]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_are_the_plain_form_on_a_gpu(kind):
    ranges = key_ranges(kind)
    drawn_numbers = [x.detach() for x in drawn(ranges, torch.bfloat16)]
    results = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.bfloat16)):
        *rows, grad = (x.to(device, dtype) for x in drawn_numbers)
        rows = [x.requires_grad_() for x in rows]
        out = packed_attention(*rows, KeyRanges(*(x.to(device) for x in vars(ranges).values())))
        results.append([x.to("cpu", torch.float64) for x in (out, *torch.autograd.grad(out, rows, grad))])
    for wanted, found in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2 * wanted.abs().max().item())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
