"""Losses: label-smoothed cross-entropy (paper section 5.4), and guided alignment, both summed over tokens.

Label smoothing: the true token has probability 1 - eps, and eps is spread evenly over the vocabulary (Szegedy et al.
2016, section 7).

Guided alignment: one decoder head learns to attend along given word alignment links (Garg et al. 2019, "Jointly
Learning to Align and Translate with Transformer Models", arXiv:1909.02074, section 4). In the paper the decoder runs a
second time and sees the whole target. Here it runs once: the alignment of a target token is read at the next step,
which takes that token as input and sees only it and earlier ones.

Shapes: N target tokens without padding, D d_model, V vocabulary, B batch, T target length, S source length.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import TokenLinks
from clearhead.errors import ConfigError
from clearhead.kernels.bf16_linear import ROUNDED_ROWS, bf16_product

GUIDED_HEAD = 0
"""Index of the guided head in its layer. Any index will do: before training all heads are equivalent."""

_CHUNK = ROUNDED_ROWS
"""Rows of logits held at once on a CPU: few enough to stay in its cache, many enough for fast matrix products."""

_CHUNK_BYTES = 256 * 2**20
"""Bytes of float32 logits held at once on a GPU: 2,048 rows for a vocabulary of 32,000. It is not measured."""


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "N V"],
    target: Int[Tensor, " N"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the smoothed loss and the plain negative log-likelihood, both summed over the tokens, in nats.

    `train` runs its twin `chunked_cross_entropy`, which holds fewer logits; with `plain=True`, `--plain` and a model of
    the program's own, this one. tests/unit/training/test_loss.py holds them equal.

    Args:
        logits: Unnormalised log-probabilities over the vocabulary at each target token.
        target: Reference tokens.
        smoothing: Probability mass eps spread over the vocabulary.
    """
    # bfloat16 has 8 significant bits; a sum over the vocabulary needs float32.
    log_probs = logits.float().log_softmax(dim=-1)
    of_target, mean = log_probs.gather(-1, target.long().unsqueeze(-1)).squeeze(-1), log_probs.mean(dim=-1)  # (N,)
    nll = -of_target.sum()
    return (1.0 - smoothing) * nll - smoothing * mean.sum(), nll.detach()


def chunked_cross_entropy(
    states: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    target: Int[Tensor, " N"],
    smoothing: float,
    is_token: Bool[Tensor, " N"] | None = None,
    *,
    is_bf16: bool = False,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return `label_smoothed_cross_entropy` of `states @ weight.T + bias` without holding all logits in memory.

    A few rows of logits at a time are turned into their loss and, in place, their gradient, and are then dropped. The
    number of rows follows from shapes alone, so that torch.compile makes one graph of it. Call it outside autocast.

    Args:
        states: Decoder states.
        weight: Output projection; in the paper it is the shared embedding.
        bias: Bias of the output projection; None if it has none, as in the paper.
        target: Reference tokens.
        smoothing: Probability mass eps spread over the vocabulary.
        is_token: False at rows that do not count; all do if not given.
        is_bf16: Whether to round the products to bfloat16; on a CPU those of whole blocks of rows alone.
    """
    states = states.to(weight.dtype)  # bfloat16 has too few bits for the sums below
    counts = torch.ones_like(target, dtype=weight.dtype)
    if is_token is not None:
        states, counts = torch.where(is_token[:, None], states, 0.0), is_token.to(weight.dtype)
    inputs = states, weight, bias, target, counts, smoothing, is_bf16
    loss, nll = _ChunkedCrossEntropy.apply(*inputs)  # type: ignore[no-untyped-call]
    return loss, nll


def _rows_at_once(weight: Float[Tensor, "V D"]) -> int:
    if weight.device.type == "cpu":
        return _CHUNK
    return max(_CHUNK, _CHUNK_BYTES // (4 * weight.size(0)) // _CHUNK * _CHUNK)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        counts: Tensor,
        smoothing: float,
        is_bf16: bool,
    ) -> tuple[Tensor, Tensor]:
        # With z the logits of a row, the loss is log sum exp(z) - (1 - eps) z[target] - eps mean(z). Its gradient with
        # respect to z is softmax(z) - (1 - eps) one-hot(target) - eps / V. Only the softmax is as wide as the
        # vocabulary and differs from row to row. It is left unnormalised, and everything else is a product of thin
        # matrices. Rows that do not count have states of 0, and so no part in the gradient of the weight.
        share, rows = smoothing / weight.size(0), _rows_at_once(weight)
        rounded_weight = weight.bfloat16() if is_bf16 else weight
        grad_states = torch.empty_like(states)
        grad_weight = torch.zeros_like(weight)
        grad_bias = None if bias is None else torch.zeros_like(bias)
        log_normalisers = states.new_empty(states.size(0))
        for start in range(0, states.size(0), rows):
            part = slice(start, start + rows)
            is_rounded = is_bf16 and (start + rows <= states.size(0) or weight.device.type != "cpu")
            if is_rounded:
                logits = bf16_product(states[part], rounded_weight.t()).float()  # (n, V)
                if bias is not None:
                    logits += bias
            else:
                logits = functional.linear(states[part], weight, bias)
            highest = logits.amax(dim=-1, keepdim=True)  # (n, 1)
            exponentials = logits.sub_(highest).exp_()  # (n, V)
            total = exponentials.sum(dim=-1, keepdim=True)  # (n, 1)
            log_normalisers[part] = (highest + total.log())[:, 0]
            if is_rounded:
                rounded = exponentials.bfloat16()
                grad_states[part] = bf16_product(rounded, rounded_weight) / total
                grad_weight += bf16_product(rounded.t(), states[part] / total)
            else:
                torch.mm(exponentials, weight, out=grad_states[part]).div_(total)
                grad_weight.addmm_(exponentials.t(), states[part] / total)
            if grad_bias is not None:
                grad_bias.addmv_(exponentials.t(), counts[part] / total[:, 0])

        true_rows = functional.embedding(target, weight)  # (N, D)
        true_logits = (states * true_rows).sum(dim=-1)  # (N,)
        mean_logits = states @ weight.mean(dim=0)  # (N,)
        grad_states.sub_(weight.sum(dim=0), alpha=share).sub_(true_rows, alpha=1.0 - smoothing)
        grad_weight.sub_(states.sum(dim=0), alpha=share)
        grad_weight.index_add_(0, target, states, alpha=smoothing - 1.0)
        if bias is not None and grad_bias is not None:
            true_logits, mean_logits = true_logits + bias[target], mean_logits + bias.mean()
            grad_bias.sub_(share * counts.sum(dtype=torch.float64))
            grad_bias.index_add_(0, target, counts, alpha=smoothing - 1.0)
        nll = ((log_normalisers - true_logits) * counts).sum(dtype=torch.float64)
        # Cross-entropy with the uniform distribution.
        uniform = ((log_normalisers - mean_logits) * counts).sum(dtype=torch.float64)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        loss = ((1.0 - smoothing) * nll + smoothing * uniform).to(states.dtype)
        nll = nll.to(states.dtype)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        gradients = (None if gradient is None else gradient * grad_outputs[0] for gradient in ctx.saved_tensors)
        return *gradients, None, None, None, None


def guided_layer(train: TrainConfig, model: ModelConfig) -> int:
    """Return the decoder layer, counted from 0, that contains the guided head.

    Raises:
        ConfigError: If the decoder has no such layer.
    """
    layer, count = train.guided_alignment_layer, model.num_decoder_layers
    if layer is not None and layer >= count:
        raise ConfigError(
            f"train.guided_alignment_layer ({layer}) counts from 0, and model.num_decoder_layers is {count}; give at "
            f"most {count - 1}"
        )
    return max(0, count - 2) if layer is None else layer


def guided_alignment_loss(log_weights: Float[Tensor, "B T S"], links: TokenLinks) -> Float[Tensor, ""]:
    """Return the cross-entropy between links and a head's attention weights, in nats, summed over target tokens.

    Args:
        log_weights: Log attention weights of the head at each decoder input position; position 0 is the start token.
        links: Links of the batch. A target token without links contributes nothing.
    """
    row, target, source = links.places.to(log_weights.device, non_blocking=True).unbind(dim=1)
    shares = links.shares.to(log_weights.device, non_blocking=True)
    # Decoder inputs begin with the start token, so the token predicted at one position is the input of the next.
    return -(log_weights[row, target + 1, source] * shares).sum()
