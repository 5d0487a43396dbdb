"""Mistakes in study notes about recurrent layers and residual connections (sections 1, 3.1 and 4, Table 1).

Shapes: B batch, n length, d width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config import ModelConfig
from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.encoder import EncoderLayer
from clearhead.model.residual import Residual
from clearhead.paper.counts import counted_flops
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import EXACT, build, compared, count_weights, difference, on_meta, standard_normal
from clearhead.paper.plain import layer_norm

_SIZES = ((64, 512), (256, 512), (512, 512), (1024, 512), (600, 1024), (160, 128), (2048, 128))
_SUBLAYERS = 6
"""Number of self-attention sub-layers in one stack of the paper (N = 6)."""


@cache
def _multiply_adds(n: int, d: int) -> tuple[int, int]:
    """Count multiply-adds over n positions, of equation 1 and of recurrence, h_t = tanh(x_t W + h_(t-1) U)."""
    x = torch.zeros(1, n, d, device="meta")
    recurrent = on_meta(lambda: nn.RNN(d, d, bias=False, batch_first=True))
    attention = counted_flops(lambda: scaled_dot_product_attention(x, x, x))
    return attention // 2, counted_flops(lambda: recurrent(x)) // 2


def _predicts_the_cheaper(claims_attention: Callable[[int, int], bool]) -> CheckResult:
    """The claim names the cheaper layer at every size, by counted multiply-adds.

    The sizes n x d are 64 x 512, 256 x 512, 512 x 512, 1024 x 512, 600 x 1024, 160 x 128 and 2048 x 128.
    """
    claims = [claims_attention(n, d) for n, d in _SIZES]
    correct = 0
    for claim, (n, d) in zip(claims, _SIZES, strict=True):
        attention, recurrence = _multiply_adds(n, d)
        correct += claim == (attention < recurrence)
    n, d = _SIZES[-1]
    attention, recurrence = _multiply_adds(n, d)
    return CheckResult(
        correct == len(_SIZES),
        f"right at {correct} of {len(_SIZES)} sizes (n = {n}, d = {d}: {attention:,} multiply-adds for attention, "
        f"{recurrence:,} for recurrence)",
        claims,
    )


def _takes_as_many_steps_as_words(run: Callable[[nn.RNNCell, Tensor], Tensor]) -> CheckResult:
    """Four sentences of seven words take at most seven calls of the cell, with the right states."""
    cell, x = build(lambda: nn.RNNCell(5, 3)), standard_normal(4, 7, 5, seed=80)
    calls: list[object] = []
    cell.register_forward_hook(lambda *_: calls.append(None))
    states, wanted = run(cell, x), torch.zeros(4, 3)
    for word in x.unbind(1):
        wanted = torch.tanh(word @ cell.weight_ih.T + cell.bias_ih + wanted @ cell.weight_hh.T + cell.bias_hh)
    distance = difference(states, wanted)
    return CheckResult(
        len(calls) <= 7 and distance < EXACT,
        f"{len(calls)} sequential steps, states differ by {distance:.2f}",
        (len(calls), states.tolist()),
    )


def _sentence_by_sentence(cell: nn.RNNCell, x: Tensor) -> Tensor:
    rows = []
    for sentence in x:
        state = torch.zeros(1, 3)
        for word in sentence:
            state = cell(word[None], state)
        rows.append(state[0])
    return torch.stack(rows)


def _all_sentences_at_once(cell: nn.RNNCell, x: Tensor) -> Tensor:
    state = torch.zeros(x.size(0), 3)
    for words in x.unbind(1):
        state = cell(words, state)
    return state


def _two_sentences_at_a_time(cell: nn.RNNCell, x: Tensor) -> Tensor:
    return torch.cat([_all_sentences_at_once(cell, pair) for pair in x.split(2)])


def _is_the_gate_of_an_lstm(gate: Callable[[Tensor], Tensor]) -> CheckResult:
    """An LSTM step with these gates gives the states of PyTorch's LSTM cell.

    Every input of a gate has a gradient.
    """
    cell = build(lambda: nn.LSTMCell(5, 4))
    x, h, c = standard_normal(3, 5, seed=81), standard_normal(3, 4, seed=82), standard_normal(3, 4, seed=83)
    before = (x @ cell.weight_ih.T + cell.bias_ih + h @ cell.weight_hh.T + cell.bias_hh).requires_grad_()
    inputs, forgets, candidates, outputs = before.chunk(4, dim=-1)
    new_c = gate(forgets) * c + gate(inputs) * candidates.tanh()
    new_h = gate(outputs) * new_c.tanh()
    gradient = torch.autograd.grad(new_h.sum(), before)[0][:, [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15]]
    distance = difference(new_h, cell(x, (h, c))[0])
    reached = (gradient != 0).float().mean().item()
    return CheckResult(
        reached == 1 and distance < EXACT,
        f"{100 * reached:.0f} % of the gates' inputs have a gradient, states differ from PyTorch's by {distance:.2f}",
        (new_h.detach(), gradient),
    )


def _counts_the_weights(formula: Callable[[int], tuple[int, int]]) -> CheckResult:
    """The formula gives the weights of an LSTM layer and of an encoder layer, with errors below 2 %.

    They are counted at d = 64, 512 and 1024, where d_ff = 4 d.
    """
    claimed, errors, counted = [], [], (0, 0)
    for d in (64, 1024, 512):
        encoder = on_meta(partial(EncoderLayer, ModelConfig(d_model=d, d_ff=4 * d, num_heads=8)))
        counted = count_weights(on_meta(partial(nn.LSTM, d, d))), count_weights(encoder)
        claimed.append(formula(d))
        errors += [abs(claim / count - 1) for claim, count in zip(claimed[-1], counted, strict=True)]
    return CheckResult(
        max(errors) < 0.02,
        f"at d = 512 {claimed[-1][0]:,} weights in an LSTM layer (counted: {counted[0]:,}), {claimed[-1][1]:,} in an "
        f"encoder layer (counted: {counted[1]:,})",
        claimed,
    )


def _lets_gradients_pass(combine: Callable[[Residual, Tensor, Tensor], Tensor]) -> CheckResult:
    """Six self-attention sub-layers keep the size of the gradient within a factor of 10.

    The gradient is that of the differences between eight words. A small error grows less than twofold, whereas it grows
    more than twofold if the sums have no norm. A sub-layer returns LayerNorm(x + Sublayer(x)), calculated number by
    number.
    """
    attentions = build(lambda: nn.ModuleList(MultiHeadAttention(d_model=32, num_heads=4) for _ in range(_SUBLAYERS)))
    residual = build(lambda: Residual(nn.LayerNorm(32), dropout=0.0))

    def stack(x: Tensor, combine: Callable[[Residual, Tensor, Tensor], Tensor]) -> Tensor:
        for attention in attentions:
            x = combine(residual, x, attention(x, x))
        return x

    def growth(combine: Callable[[Residual, Tensor, Tensor], Tensor]) -> float:
        return ((stack(x + 1e-3 * error, combine) - stack(x, combine)).norm() / (1e-3 * error).norm()).item()

    x = standard_normal(1, 8, 32, seed=84).requires_grad_()
    direction, error = (standard_normal(1, 8, 32, seed=seed) for seed in (85, 86))
    direction = direction - direction.mean(dim=1, keepdim=True)
    gradient = torch.autograd.grad((stack(x, combine) * direction).sum(), x)[0].norm() / direction.norm()
    grown, bare = growth(combine), growth(lambda residual, x, update: x + update)
    words, update, norm = standard_normal(8, 32, seed=88), standard_normal(8, 32, seed=89), residual.norm
    assert isinstance(norm, nn.LayerNorm)
    return compared(
        combine(residual, words, update),
        layer_norm((words + update).tolist(), norm.weight.tolist(), norm.bias.tolist(), norm.eps),
        to="section 3.1",
        holds=0.1 < gradient.item() < 10 and grown < 2 < bare,
        figures=f"the gradient of the differences between words is multiplied by {gradient.item():.2f}, a small error "
        f"by {grown:.1f} (by sums without a norm: {bare:.1f})",
    )


def _predicts_the_shorter(claims_shorter: Callable[[int, int], bool]) -> CheckResult:
    """The claim says whether truncation makes the way back of the gradient shorter, in steps that it passes.

    The gradient goes back from the last of 4 to 32 words; truncated, it ends after at most 8, 16 or 32 steps.
    """

    def steps_back(words: int, window: int) -> int:
        cell, state, passed = build(lambda: nn.RNNCell(5, 3)), torch.zeros(1, 3), list[Tensor]()
        for t, word in enumerate(standard_normal(words, 1, 5, seed=87)):
            if t % window == 0:
                state = start = state.detach().requires_grad_()
            state = cell(word, state)
            state.register_hook(passed.append)
        torch.autograd.grad(state.sum(), start)
        return len(passed)

    sizes = ((32, 8), (32, 16), (16, 8), (16, 16), (4, 8), (16, 32))
    claims = [claims_shorter(words, window) for words, window in sizes]
    is_shorter = [steps_back(words, window) < steps_back(words, words) for words, window in sizes]
    correct = sum(claim == fact for claim, fact in zip(claims, is_shorter, strict=True))
    return CheckResult(
        claims == is_shorter,
        f"right at {correct} of {len(sizes)} lengths and windows (32 words: {steps_back(32, 8)} steps truncated to 8, "
        f"{steps_back(32, 32)} not truncated)",
        claims,
    )


COSTS_ERRATA = (
    erratum(
        "Attention always costs less than recurrence",
        wrong_version=lambda n, d: True,
        right_version=lambda n, d: n < d,
        test=_predicts_the_cheaper,
        mutants={
            "while n < 512, whatever d is": lambda n, d: n < 512,
            "while n < 2 d": lambda n, d: n < 2 * d,
            "while d > 256": lambda n, d: d > 256,
        },
        also_right={"n^2 d < n d^2": lambda n, d: n * n * d < n * d * d},
    ),
    erratum(
        "A recurrent network cannot be parallelised",
        wrong_version=_sentence_by_sentence,
        right_version=_all_sentences_at_once,
        test=_takes_as_many_steps_as_words,
        mutants={
            "two sentences at a time": _two_sentences_at_a_time,
            "words in reverse": lambda cell, x: _all_sentences_at_once(cell, x.flip(1)),
            "all words at once, without earlier states": lambda cell, x: cell(x[:, -1]),
        },
    ),
    erratum(
        "The gates of an LSTM are step functions",
        wrong_version=lambda x: (x > 0).to(x.dtype) + 0 * x,
        right_version=torch.sigmoid,
        test=_is_the_gate_of_an_lstm,
        mutants={
            "a ramp from 0 to 1": functional.hardsigmoid,
            "the hyperbolic tangent": torch.tanh,
            "a step with the gradient of a sigmoid": lambda x: (x > 0) + x.sigmoid() - x.sigmoid().detach(),
        },
        also_right={"(1 + tanh(x / 2)) / 2": lambda x: (1 + (x / 2).tanh()) / 2},
    ),
    erratum(
        "An LSTM has many more parameters",
        wrong_version=lambda d: (8 * d**2, 4 * d**2),
        right_version=lambda d: (8 * d**2, 12 * d**2),
        test=_counts_the_weights,
        mutants={
            "one gate of the LSTM": lambda d: (2 * d**2, 12 * d**2),
            "the feed-forward network alone": lambda d: (8 * d**2, 8 * d**2),
            "d_ff = d": lambda d: (8 * d**2, 6 * d**2),
        },
        also_right={"with biases and norms": lambda d: (8 * d**2 + 8 * d, 12 * d**2 + 9 * d)},
    ),
    erratum(
        "Residual connections amplify errors",
        wrong_version=lambda residual, x, update: residual.norm(update),
        right_version=lambda residual, x, update: residual.add_and_norm(x, lambda x: update),
        test=_lets_gradients_pass,
        mutants={
            "no sub-layer": lambda residual, x, update: x,
            "the norm without the sub-layer": lambda residual, x, update: residual.norm(x),
            "x + LayerNorm(Sublayer(x))": lambda residual, x, update: x + residual.norm(update),
            "the mean in place of the sum": lambda residual, x, update: (x + update) / 2,
        },
    ),
    erratum(
        "Truncated back-propagation makes the model slower",
        wrong_version=lambda words, window: False,
        right_version=lambda words, window: window < words,
        test=_predicts_the_shorter,
        mutants={
            "always cheaper": lambda words, window: True,
            "cheaper with windows up to 8": lambda words, window: window <= 8,
            "cheaper with less than half of the words": lambda words, window: window < words / 2,
        },
    ),
)
