"""Packed attention on a GPU, in Triton: FlashAttention-2 (Dao 2023), with a range of keys for each query.

A program computes one block of queries (or of keys, for their gradients) of one head. A block may span several
sentences: the program reads all keys from the first start to the last end of its queries, and masks. The kernels of
variable lengths that PyTorch has give each block to one sentence; of a block of 128 rows, a sentence of 15 tokens uses
few. No kernel adds to memory that another program writes, so results do not depend on the order of the programs.

Shapes: T queries, S keys, H heads, K head width. A tile is a block of rows by K. In a kernel, `q`, `k`, `v` and so on
are pointers; a row of each tensor holds its heads one after another.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor

_SIZES = ("num_queries", "num_keys")
"""Arguments for which Triton would otherwise compile anew: where 16 divides one, and where it is 1."""

_LARGEST = tl.constexpr(2**31 - 1)
_LOG2_E = tl.constexpr(math.log2(math.e))  # the processor has the power of 2, not that of e
_LN_2 = tl.constexpr(math.log(2))


def forward(
    q: Float[Tensor, "T H K"],
    k: Float[Tensor, "S H K"],
    v: Float[Tensor, "S H K"],
    start: Int32[Tensor, " T"],
    end: Int32[Tensor, " T"],
) -> tuple[Float[Tensor, "T H K"], Float[Tensor, "H T"]]:
    """Return the weighted sums of the values, and the logarithm of each query's sum of exponentials (0 if empty)."""
    q, k, v = _aligned(q), _aligned(k), _aligned(v)
    (num_queries, heads, width), num_keys = q.shape, len(k)
    out = q.new_empty(q.shape)
    log_sums = q.new_empty((heads, num_queries), dtype=torch.float32)
    sizes = (q.stride(0), k.stride(0), v.stride(0), num_queries, num_keys, 1 / math.sqrt(width))
    how = _block(width)
    with torch.cuda.device_of(q):  # Triton would launch on the current device
        _forward_kernel[triton.cdiv(num_queries, how["BLOCK"]), heads](
            q, k, v, start, end, out, log_sums, *sizes, **how
        )
    return out, log_sums


def backward(
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
    """Return the gradients of the queries, keys and values, from that of the output and what `forward` returned."""
    q, k, v, grad = _aligned(q), _aligned(k), _aligned(v), grad.contiguous()
    (num_queries, heads, width), num_keys = q.shape, len(k)
    grad_q, grad_k, grad_v = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    inner = torch.empty_like(log_sums)
    sizes = (q.stride(0), k.stride(0), v.stride(0), num_queries, num_keys, 1 / math.sqrt(width))
    how = _block(width)
    with torch.cuda.device_of(q):
        _grad_queries_kernel[triton.cdiv(num_queries, how["BLOCK"]), heads](
            q, k, v, start, end, out, log_sums, grad, inner, grad_q, *sizes, **how
        )
        _grad_keys_kernel[triton.cdiv(num_keys, how["BLOCK"]), heads](
            q, k, v, query_start, query_end, log_sums, grad, inner, grad_k, grad_v, *sizes, **how
        )
    return grad_q, grad_k, grad_v


def _aligned(x: Float[Tensor, "N H K"]) -> Float[Tensor, "N H K"]:
    """Return rows that may lie apart, as in a slice of a product, but whose heads lie one after another."""
    return x if x.stride()[1:] == (x.size(2), 1) else x.contiguous()


def _block(width: int) -> dict[str, int]:
    """Return the size of a block and how a program runs: as measured on an H200 for heads of 64.

    On cards since 2020, blocks of 64 rows fit for heads up to 128, and of 32 for heads of 256: up to 97 KiB of shared
    memory, and of 255 registers a thread at most 12 more in memory.
    """
    return {"WIDTH": width, "BLOCK": 64 if width <= 128 else 32, "num_warps": 4, "num_stages": 2}


@triton.jit(do_not_specialize=_SIZES)
def _forward_kernel(
    q,  # T H K
    k,  # S H K
    v,  # S H K
    start,  # T
    end,  # T
    out,  # T H K, written
    log_sums,  # H T, written
    q_stride,
    k_stride,
    v_stride,
    num_queries,
    num_keys,
    scale,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """O = softmax(Q K^T scale) V; the softmax is corrected whenever a block of keys has a higher score than before."""
    queries = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    starts, ends = _load_ranges(start, end, queries, num_queries)
    q_tile = _load_tile(q, queries, num_queries, q_stride, WIDTH)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    weighted = tl.zeros([BLOCK, WIDTH], tl.float32)
    for first in range(tl.min(starts, 0), tl.max(ends, 0), BLOCK):
        keys = first + tl.arange(0, BLOCK)
        k_tile = _load_tile(k, keys, num_keys, k_stride, WIDTH)
        v_tile = _load_tile(v, keys, num_keys, v_stride, WIDTH)
        scores = _scores(q_tile, k_tile, keys, starts, ends, scale)  # (queries, keys)
        higher = tl.maximum(highest, tl.max(scores, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)  # a query that has seen no key yet
        weights = tl.exp2(scores - shift[:, None])
        shrinking = tl.exp2(highest - shift)
        total = total * shrinking + tl.sum(weights, 1)
        weighted = weighted * shrinking[:, None] + tl.dot(weights.to(v_tile.dtype), v_tile)
        highest = higher
    is_empty = total == 0.0
    total = tl.where(is_empty, 1.0, total)
    _store_tile(out, weighted / total[:, None], queries, num_queries, WIDTH)
    log_sum = tl.where(is_empty, 0.0, (highest + tl.log2(total)) * _LN_2)
    _store_row(log_sums, log_sum, queries, num_queries)


@triton.jit(do_not_specialize=_SIZES)
def _grad_queries_kernel(
    q,  # T H K
    k,  # S H K
    v,  # S H K
    start,  # T
    end,  # T
    out,  # T H K
    log_sums,  # H T
    grad,  # T H K
    inner,  # H T, written: rowsum(dO * O)
    grad_q,  # T H K, written
    q_stride,
    k_stride,
    v_stride,
    num_queries,
    num_keys,
    scale,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """P = exp(Q K^T scale - L), dP = dO V^T, dS = P * (dP - rowsum(dO * O)), dQ = dS K scale."""
    queries = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    starts, ends = _load_ranges(start, end, queries, num_queries)
    q_tile = _load_tile(q, queries, num_queries, q_stride, WIDTH)
    row = tl.num_programs(1) * WIDTH
    grad_tile = _load_tile(grad, queries, num_queries, row, WIDTH)
    out_tile = _load_tile(out, queries, num_queries, row, WIDTH)
    log_sum = _load_row(log_sums, queries, num_queries) * _LOG2_E
    product = tl.sum(grad_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
    _store_row(inner, product, queries, num_queries)
    total = tl.zeros([BLOCK, WIDTH], tl.float32)
    for first in range(tl.min(starts, 0), tl.max(ends, 0), BLOCK):
        keys = first + tl.arange(0, BLOCK)
        k_tile = _load_tile(k, keys, num_keys, k_stride, WIDTH)
        v_tile = _load_tile(v, keys, num_keys, v_stride, WIDTH)
        scores = _scores(q_tile, k_tile, keys, starts, ends, scale)  # (queries, keys)
        weights = tl.exp2(scores - log_sum[:, None])
        grad_scores = weights * (tl.dot(grad_tile, tl.trans(v_tile)) - product[:, None])
        total += tl.dot(grad_scores.to(k_tile.dtype), k_tile)
    _store_tile(grad_q, total * scale, queries, num_queries, WIDTH)


@triton.jit(do_not_specialize=_SIZES)
def _grad_keys_kernel(
    q,  # T H K
    k,  # S H K
    v,  # S H K
    query_start,  # S
    query_end,  # S
    log_sums,  # H T
    grad,  # T H K
    inner,  # H T
    grad_k,  # S H K, written
    grad_v,  # S H K, written
    q_stride,
    k_stride,
    v_stride,
    num_queries,
    num_keys,
    scale,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As for the queries, with all matrices transposed: dK = dS^T Q scale, dV = P^T dO."""
    keys = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    starts, ends = _load_ranges(query_start, query_end, keys, num_keys)
    k_tile = _load_tile(k, keys, num_keys, k_stride, WIDTH)
    v_tile = _load_tile(v, keys, num_keys, v_stride, WIDTH)
    row = tl.num_programs(1) * WIDTH
    total_k = tl.zeros([BLOCK, WIDTH], tl.float32)
    total_v = tl.zeros([BLOCK, WIDTH], tl.float32)
    for first in range(tl.min(starts, 0), tl.max(ends, 0), BLOCK):
        queries = first + tl.arange(0, BLOCK)
        q_tile = _load_tile(q, queries, num_queries, q_stride, WIDTH)
        grad_tile = _load_tile(grad, queries, num_queries, row, WIDTH)
        log_sum = _load_row(log_sums, queries, num_queries) * _LOG2_E
        product = _load_row(inner, queries, num_queries)
        scores = _scores(k_tile, q_tile, queries, starts, ends, scale)  # (keys, queries)
        weights = tl.exp2(scores - log_sum[None, :])
        total_v += tl.dot(weights.to(grad_tile.dtype), grad_tile)
        grad_scores = weights * (tl.dot(v_tile, tl.trans(grad_tile)) - product[None, :])
        total_k += tl.dot(grad_scores.to(q_tile.dtype), q_tile)
    _store_tile(grad_k, total_k * scale, keys, num_keys, WIDTH)
    _store_tile(grad_v, total_v, keys, num_keys, WIDTH)


@triton.jit
def _load_ranges(start, end, rows, count):
    """Return the ranges of some rows; those after the last row are empty, with a start that is no minimum."""
    return tl.load(start + rows, mask=rows < count, other=_LARGEST), tl.load(end + rows, mask=rows < count, other=0)


@triton.jit
def _scores(rows, others, numbers, starts, ends, scale):
    """Return the scores of two tiles times log2(e): (rows, others); minus infinity outside of the rows' ranges.

    The others have these numbers.
    """
    scores = tl.dot(rows, tl.trans(others)) * (scale * _LOG2_E)
    is_within = (numbers[None, :] >= starts[:, None]) & (numbers[None, :] < ends[:, None])
    return tl.where(is_within, scores, float("-inf"))


@triton.jit
def _tile_pointers(x, rows, stride, WIDTH: tl.constexpr):
    """Return where this program's head of some rows lies; 32 bits do not number the elements of a million rows."""
    return x + rows[:, None].to(tl.int64) * stride + tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _load_tile(x, rows, count, stride, WIDTH: tl.constexpr):
    """Return this program's head of some rows; zeros after the last row."""
    return tl.load(_tile_pointers(x, rows, stride, WIDTH), mask=(rows < count)[:, None], other=0.0)


@triton.jit
def _store_tile(x, tile, rows, count, WIDTH: tl.constexpr):
    pointers = _tile_pointers(x, rows, tl.num_programs(1) * WIDTH, WIDTH)
    tl.store(pointers, tile.to(x.dtype.element_ty), mask=(rows < count)[:, None])


@triton.jit
def _load_row(x, columns, count):
    """Return this program's head of some columns of (H, T); zeros after the last column."""
    return tl.load(x + tl.program_id(1) * count + columns, mask=columns < count, other=0.0)


@triton.jit
def _store_row(x, row, columns, count):
    tl.store(x + tl.program_id(1) * count + columns, row, mask=columns < count)
