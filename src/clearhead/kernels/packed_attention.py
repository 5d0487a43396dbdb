"""Attention over packed rows (paper section 3.2.1): sentences one after another, without padding and without a mask.

A query may attend to a range of keys: those of a sentence, and in a decoder's self-attention only up to its own. On a
GPU, for float16 and bfloat16, Triton kernels compute it (`packed_attention_triton.py`); everywhere else the plain form
below, with all scores at once. Both are differentiable, once.

Shapes: T queries, S keys, H heads, K head width.
"""

from __future__ import annotations

import math
import os
import shutil
import sysconfig
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int32
from torch import Tensor

from clearhead.errors import ClearheadError

NONE = 2**30
"""Start of an empty range; its end is 0. So the first start and the last end of a block of rows ignore it."""

NEEDED = "triton (pip install triton), a C compiler (gcc or clang) and Python.h"
"""What the Triton kernels need."""

HEAD_WIDTHS = (16, 32, 64, 128, 256)
"""Widths of a head that the Triton kernels can compute."""


@dataclass(frozen=True)
class KeyRanges:
    """Which keys each query of packed rows may attend to, and which queries see each key.

    Both say the same; the plain form uses the first alone, the kernel for the gradients of the keys the second.
    """

    start: Int32[Tensor, " T"]
    """First key of each query; `NONE` if it may attend to no key, as rows that only fill a batch up."""
    end: Int32[Tensor, " T"]
    """The key after the last of each query; 0 if it may attend to no key."""
    query_start: Int32[Tensor, " S"]
    """First query that sees each key; `NONE` if none does."""
    query_end: Int32[Tensor, " S"]
    """The query after the last that sees each key; 0 if none does."""

    def mask(self) -> Bool[Tensor, "T S"]:
        """Return the same as a mask: True where a query may attend to a key."""
        return _mask(self.start, self.end, len(self.query_start))


def packed_attention(
    q: Float[Tensor, "T H K"],
    k: Float[Tensor, "S H K"],
    v: Float[Tensor, "S H K"],
    ranges: KeyRanges,
) -> Float[Tensor, "T H K"]:
    """Attend each query to the keys of its range: softmax(q k^T / sqrt(K)) v (equation 1).

    It is one node for `torch.compile`, and reads no value of a tensor: once a first call has compiled the kernels, a
    CUDA graph can record it. They are compiled once for all T and S, and compute the same bits each time.

    Args:
        q: Queries. They, the keys and the values may be slices of one product.
        k: Keys.
        v: Values, one for each key.
        ranges: The keys of each query.

    Returns:
        The weighted sums of the values; zeros for a query without keys.

    Raises:
        ValueError: If the kernels should run and cannot compute heads of that width.
        ClearheadError: If the kernels should run and Triton or a C compiler is missing; see `has_triton`.
    """
    if _runs_triton(q) and q.size(-1) not in HEAD_WIDTHS:
        raise ValueError(f"packed attention on a GPU takes heads of width {HEAD_WIDTHS}, not {q.size(-1)}")
    out, _ = _attention(q, k, v, ranges.start, ranges.end, ranges.query_start, ranges.query_end)
    return out


@cache
def has_triton() -> bool:
    """Return whether Triton is installed, and a C compiler and Python's header for what launches its kernels."""
    compilers = (os.environ.get("CC", ""), "gcc", "clang")
    has_header = Path(sysconfig.get_paths()["include"], "Python.h").exists()
    return find_spec("triton") is not None and has_header and any(map(shutil.which, compilers))


def _runs_triton(q: Float[Tensor, "T H K"]) -> bool:
    # Tensor cores would round float32 to TF32.
    return q.device.type == "cuda" and q.dtype in (torch.float16, torch.bfloat16)


@cache
def _triton_form() -> Any:
    if not has_triton():
        raise ClearheadError(f"packed attention on a GPU needs {NEEDED}")
    from clearhead.kernels import packed_attention_triton  # Triton takes half a second

    return packed_attention_triton


@torch.library.custom_op(
    "clearhead::packed_attention",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor start, Tensor end, Tensor query_start, Tensor query_end)"
    " -> (Tensor, Tensor)",
)
def _attention(
    q: Float[Tensor, "T H K"],
    k: Float[Tensor, "S H K"],
    v: Float[Tensor, "S H K"],
    start: Int32[Tensor, " T"],
    end: Int32[Tensor, " T"],
    query_start: Int32[Tensor, " S"],
    query_end: Int32[Tensor, " S"],
) -> tuple[Float[Tensor, "T H K"], Float[Tensor, "H T"]]:
    """Return the output, and the logarithm of each query's sum of exponentials; 0 for a query without keys."""
    if _runs_triton(q):
        return _triton_form().forward(q, k, v, start, end)
    scores = _scores(q, k, _mask(start, end, len(k)))
    log_sums = scores.logsumexp(dim=-1)  # (H, T)
    log_sums = log_sums.masked_fill(log_sums == float("-inf"), 0.0)
    weights = (scores - log_sums[..., None]).exp()  # (H, T, S)
    return _product("hts,shk->thk", weights, v).to(q.dtype), log_sums


@torch.library.custom_op(
    "clearhead::packed_attention_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor start, Tensor end, Tensor query_start, Tensor query_end,"
    " Tensor out, Tensor log_sums) -> (Tensor, Tensor, Tensor)",
)
def _attention_backward(
    grad: Float[Tensor, "T H K"],
    q: Float[Tensor, "T H K"],
    k: Float[Tensor, "S H K"],
    v: Float[Tensor, "S H K"],
    start: Int32[Tensor, " T"],
    end: Int32[Tensor, " T"],
    query_start: Int32[Tensor, " S"],
    query_end: Int32[Tensor, " S"],
    out: Float[Tensor, "T H K"],
    log_sums: Float[Tensor, "H T"],
) -> tuple[Float[Tensor, "T H K"], Float[Tensor, "S H K"], Float[Tensor, "S H K"]]:
    """Return the gradients of q, k and v, as FlashAttention computes them (Dao 2023, section 2.3.2)."""
    if _runs_triton(q):
        return _triton_form().backward(grad, q, k, v, start, end, query_start, query_end, out, log_sums)
    weights = (_scores(q, k, _mask(start, end, len(k))) - log_sums[..., None]).exp()  # P: (H, T, S)
    inner = _product("thk,thk->ht", grad, out)  # what the softmax takes from each gradient: the mean by the weights
    grad_scores = weights * (_product("thk,shk->hts", grad, v) - inner[..., None]) / math.sqrt(q.size(-1))
    grad_q = _product("hts,shk->thk", grad_scores, k)
    grad_k = _product("hts,thk->shk", grad_scores, q)
    grad_v = _product("hts,thk->shk", weights, grad)
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)


def _mask(start: Int32[Tensor, " T"], end: Int32[Tensor, " T"], num_keys: int) -> Bool[Tensor, "T S"]:
    keys = torch.arange(num_keys, dtype=torch.int32, device=start.device)
    return (start[:, None] <= keys) & (keys < end[:, None])


def _scores(q: Float[Tensor, "T H K"], k: Float[Tensor, "S H K"], mask: Bool[Tensor, "T S"]) -> Float[Tensor, "H T S"]:
    scores = _product("thk,shk->hts", q, k) / math.sqrt(q.size(-1))
    return scores.masked_fill(~mask, float("-inf"))


def _product(equation: str, a: Float[Tensor, "..."], b: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return a contiguous product, in float32 at least."""
    wide = torch.promote_types(a.dtype, torch.float32)
    return torch.einsum(equation, a.to(wide), b.to(wide)).contiguous()


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *ranges: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    return q.new_empty(q.shape), q.new_empty((q.size(1), q.size(0)), dtype=wide)


@_attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save_for_backward(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs, *output)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_attention_backward(grad, *ctx.saved_tensors), None, None, None, None


_attention.register_autograd(_gradients, setup_context=_save_for_backward)
