"""Label-smoothed cross-entropy (paper section 5.4), summed over tokens.

The true token has probability 1 - eps, and eps is spread evenly over the vocabulary (Szegedy et al. 2016, section 7).

Shapes: N target tokens without padding, D d_model, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

__all__ = ["chunked_cross_entropy", "label_smoothed_cross_entropy"]

# Rows of logits held at once: few enough to stay in the processor's cache, many enough for fast matrix products.
_CHUNK = 256


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "N V"], target: Int[Tensor, " N"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the smoothed loss and the plain negative log-likelihood, both summed over the tokens, in nats.

    Args:
        logits: Scores of the vocabulary at each target token.
        target: The true tokens.
        smoothing: Probability mass eps spread over the vocabulary.
    """
    # bfloat16 has 8 significant bits; a sum over the vocabulary needs float32.
    log_probs = logits.float().log_softmax(dim=-1)
    nll = -log_probs.gather(-1, target[:, None]).sum()
    return (1.0 - smoothing) * nll - smoothing * log_probs.mean(dim=-1).sum(), nll.detach()


def chunked_cross_entropy(
    states: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    target: Int[Tensor, " N"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return what `label_smoothed_cross_entropy` does of `states @ weight.T + bias`, without ever holding all logits.

    The logits of a few rows at a time become their loss and, in place, their gradient, and are dropped.

    Args:
        states: Decoder states.
        weight: Output projection, in the paper the shared embedding.
        bias: Of the output projection; None if it has none, as in the paper.
        target: The true tokens.
        smoothing: Probability mass eps spread over the vocabulary.
    """
    loss, nll = _ChunkedCrossEntropy.apply(states, weight, bias, target, smoothing)  # type: ignore[no-untyped-call]
    return loss, nll


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        vocab_size = weight.size(0)
        grad_states = torch.empty_like(states)
        grad_weight = torch.zeros_like(weight)
        grad_bias = None if bias is None else torch.zeros_like(bias)
        nll = states.new_zeros((), dtype=torch.float64)
        uniform = states.new_zeros((), dtype=torch.float64)  # cross-entropy with the uniform distribution
        for start in range(0, states.size(0), _CHUNK):
            part = slice(start, start + _CHUNK)
            logits = functional.linear(states[part], weight, bias)  # (n, V)
            normaliser = logits.logsumexp(dim=-1)  # (n,)
            nll += (normaliser - logits.gather(-1, target[part, None])[:, 0]).sum()
            uniform += (normaliser - logits.mean(dim=-1)).sum()
            # The gradient of the loss by the logits is softmax - (1 - eps) * one-hot - eps / V.
            grad = logits.sub_(normaliser[:, None]).exp_().sub_(smoothing / vocab_size)
            grad[torch.arange(grad.size(0), device=grad.device), target[part]] -= 1.0 - smoothing
            torch.mm(grad, weight, out=grad_states[part])
            grad_weight.addmm_(grad.t(), states[part])
            if grad_bias is not None:
                grad_bias += grad.sum(dim=0)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        loss = ((1.0 - smoothing) * nll + smoothing * uniform).to(states.dtype)
        nll = nll.to(states.dtype)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        grad_states, grad_weight, grad_bias = ctx.saved_tensors
        scale = grad_outputs[0]
        return grad_states * scale, grad_weight * scale, None if grad_bias is None else grad_bias * scale, None, None
