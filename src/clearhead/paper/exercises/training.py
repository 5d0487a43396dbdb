"""Exercises on the costs of a layer and on training (sections 4 and 5).

Shapes: n length, d width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.paper import plain
from clearhead.paper.errata.materials import standard_normal
from clearhead.paper.exercises.exercise import Answer, equals, exercise_of


def multiply_adds(n: int, d: int) -> int:
    """Return how many multiply-adds equation 1 takes for n queries and n keys and values of width d.

    Count both matrix products; the softmax and the scale do not count.
    """
    return 2 * n * n * d


def attention_is_cheaper(n: int, d: int) -> bool:
    """Return whether self-attention takes fewer operations than recurrence, for n words of width d.

    Compare n^2 d with n d^2 (Table 1).
    """
    return n < d


def layers_to_connect(n: int, k: int) -> int:
    """Return how many convolutions of kernel size k it takes until the last of n words depends on the first.

    In each layer a position reads itself and the k - 1 positions before it; nothing is skipped.
    """
    return math.ceil((n - 1) / (k - 1))


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """Return the learning rate of equation 3; `step` counts from 1.

    Fill in the factor that first grows with the step and then falls.
    """
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def adam_step(
    weight: float, gradient: float, first: float, second: float, step: int, rate: float
) -> tuple[float, float, float]:
    """Return the weight and both moments after a step of Adam (section 5.3); `step` counts from 1.

    The moments begin at 0. Fill in the correction of the first one for that.
    """
    first = 0.9 * first + (1 - 0.9) * gradient
    second = 0.98 * second + (1 - 0.98) * gradient**2
    mean = first / (1 - 0.9**step)
    root = math.sqrt(second / (1 - 0.98**step))
    return weight - rate * mean / (root + 1e-9), first, second


def residual_dropout(
    x: Tensor,
    sublayer: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor],
    dropout: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the output [n, d] of a sub-layer in training, with the residual dropout of section 5.4.

    All three functions take and return tensors like x [n, d].
    """
    return norm(x + dropout(sublayer(x)))


def smoothed_target(token: int, vocab_size: int, epsilon: float) -> Tensor:
    """Return the probabilities [V] that a model is trained towards at a position, with label smoothing.

    Fill in the share of `epsilon` that every token of the vocabulary gets, the right one too.
    """
    target = torch.zeros(vocab_size)
    target[token] = 1 - epsilon
    return target + epsilon / vocab_size


def perplexity(log_probs: Sequence[float]) -> float:
    """Return the perplexity of a text, from the natural logarithm of the probability of each of its tokens.

    It is the number of equally probable tokens that would be as hard to predict.
    """
    return math.exp(-sum(log_probs) / len(log_probs))


def _counted_multiply_adds(n: int, d: int) -> int:
    """Count the multiply-adds of Q K^T and of the weights times V, one by one."""
    scores = sum(1 for _query in range(n) for _key in range(n) for _component in range(d))
    outputs = sum(1 for _query in range(n) for _component in range(d) for _value in range(n))
    return scores + outputs


def _simulated_layers(n: int, k: int) -> int:
    earliest, layers = n - 1, 0
    while earliest > 0:
        earliest -= k - 1
        layers += 1
    return layers


def _two_arms(step: int, d_model: int, warmup_steps: int) -> float:
    """Return a line up to the peak, then the inverse root."""
    peak = 1 / math.sqrt(d_model * warmup_steps)
    return peak * step / warmup_steps if step < warmup_steps else peak * math.sqrt(warmup_steps / step)


def _several_steps(answer: Answer) -> Answer:
    """Return a weight after some steps, each of an answer."""

    def weights(gradients: Sequence[float], rate: float) -> list[float]:
        weight, first, second, history = 1.0, 0.0, 0.0, []
        for step, gradient in enumerate(gradients, start=1):
            weight, first, second = answer(weight, gradient, first, second, step, rate)
            history.append(weight)
        return history

    return weights


def _adam(gradients: Sequence[float], rate: float) -> list[float]:
    return [plain.adam(1.0, gradients[:steps], rate=rate) for steps in range(1, len(gradients) + 1)]


def _norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


def _dropped(x: Tensor) -> Tensor:
    """Return x with every third number 0 and the others larger, as dropout does with a probability of 1/3."""
    kept = torch.arange(x.numel()).view(x.shape) % 3 > 0
    return x * kept * 1.5


def _with_dropout(x: Tensor, sublayer: Answer, norm: Answer, dropout: Answer) -> plain.Matrix:
    added = [
        [a + b * 1.5 * ((row * x.size(1) + column) % 3 > 0) for column, (a, b) in enumerate(zip(*rows, strict=True))]
        for row, rows in enumerate(zip(x.tolist(), sublayer(x).tolist(), strict=True))
    ]
    return plain.layer_norm(added, [1.0] * x.size(1), [0.0] * x.size(1), eps=1e-5)


def _cross_entropy(answer: Answer) -> Answer:
    """Return the loss of logits whose target is that of an answer."""

    def loss(logits: list[float], token: int, epsilon: float) -> float:
        log_probs = torch.tensor(logits).log_softmax(dim=-1)
        return -(answer(token, len(logits), epsilon) * log_probs).sum().item()

    return loss


TRAINING_EXERCISES = (
    exercise_of(multiply_adds, test=equals(_counted_multiply_adds, (3, 5), (6, 2), (1, 4))),
    exercise_of(attention_is_cheaper, errata={40: lambda answer: answer}),
    exercise_of(layers_to_connect, test=equals(_simulated_layers, (9, 3), (10, 3), (7, 2), (20, 5), (1, 4))),
    exercise_of(
        learning_rate, test=equals(_two_arms, (1, 512, 4000), (4000, 512, 4000), (100_000, 512, 4000), (50, 1024, 100))
    ),
    exercise_of(adam_step, test=equals(_adam, ([0.5, -2.0, 1.5, 0.25], 0.01), of=_several_steps)),
    exercise_of(
        residual_dropout,
        test=equals(
            _with_dropout,
            (standard_normal(4, 5, seed=250), lambda x: (2 * x).tanh() + x.roll(1, dims=0), _norm, _dropped),
        ),
    ),
    exercise_of(
        smoothed_target,
        test=equals(
            plain.smoothed_cross_entropy,
            ([0.5, -1.0, 2.0, 0.0], 2, 0.1),
            ([3.0, 0.0, 1.0], 1, 0.3),
            ([0.0] * 5, 0, 0.1),
            of=_cross_entropy,
        ),
    ),
    exercise_of(
        perplexity,
        test=equals(
            lambda log_probs: math.prod(math.exp(each) for each in log_probs) ** (-1 / len(log_probs)),
            ([math.log(0.25)] * 3,),
            ([math.log(0.5), math.log(0.1), math.log(0.9), math.log(0.05)],),
        ),
    ),
)
