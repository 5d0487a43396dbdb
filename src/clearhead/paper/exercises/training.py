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
from clearhead.paper.exercises.exercise import Answer, Exercise, equals


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
        weight, first, second, found = 1.0, 0.0, 0.0, []
        for step, gradient in enumerate(gradients, start=1):
            weight, first, second = answer(weight, gradient, first, second, step, rate)
            found.append(weight)
        return found

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
    Exercise(
        number=26,
        section="4",
        solution=multiply_adds,
        blank="2 * n * n * d",
        test=equals(_counted_multiply_adds, (3, 5), (6, 2), (1, 4)),
        wrong={
            "n * n * d": "This is the order of growth in Table 1, or one of the two products. Q K^T and the weights "
            "times V each take that many.",
            "4 * n * n * d": "These are operations: a multiply-add is a multiplication and an addition.",
            "2 * n * d * d": "This is a projection's growth: twice n d^2. Equation 1 has n queries times n keys.",
        },
    ),
    Exercise(
        number=27,
        section="4",
        solution=attention_is_cheaper,
        blank="n < d",
        errata={40: lambda answer: answer},
        wrong={
            "n <= d": "With n = d both take as many: n^2 d is n d^2.",
            "d < n": "The other way round: with n words, attention grows with n^2.",
        },
    ),
    Exercise(
        number=28,
        section="4",
        solution=layers_to_connect,
        blank="math.ceil((n - 1) / (k - 1))",
        test=equals(_simulated_layers, (9, 3), (10, 3), (7, 2), (20, 5), (1, 4)),
        wrong={
            "math.ceil(n / k)": "O(n / k) is the order of growth. A layer reaches k - 1 positions further back, and "
            "the first word is n - 1 positions before the last.",
            "1": "That is self-attention: each position reads all others.",
            "n - 1": "That is recurrence: one step for each word.",
            "math.ceil(math.log(n, k))": "That is for dilated convolutions, each of which reaches k times as far as "
            "the one before.",
        },
    ),
    Exercise(
        number=29,
        section="5.3",
        solution=learning_rate,
        blank="min(step**-0.5, step * warmup_steps**-1.5)",
        test=equals(_two_arms, (1, 512, 4000), (4000, 512, 4000), (100_000, 512, 4000), (50, 1024, 100)),
        wrong={
            "max(step**-0.5, step * warmup_steps**-1.5)": "The rate would be highest at the start and grow for ever: "
            "the smaller of the two is taken.",
            "step**-0.5": "The warm-up is missing: this is step^-0.5 from the first step on.",
            "step * warmup_steps**-1.5": "It never falls after the warm-up.",
            "min(step**-0.5, step * warmup_steps**-0.5)": "The two do not meet at the end of the warm-up: the "
            "exponent of warmup_steps is -1.5.",
        },
    ),
    Exercise(
        number=30,
        section="5.3",
        solution=adam_step,
        blank="first / (1 - 0.9**step)",
        test=equals(_adam, ([0.5, -2.0, 1.5, 0.25], 0.01), of=_several_steps),
        wrong={
            "first": "The correction is missing: the first moment is too small at first, as it begins at 0.",
            "first / (1 - 0.9)": "The correction depends on the step: by then 1 - beta_1^step of the weight is on "
            "real gradients.",
            "first / (1 - 0.98**step)": "This is the correction with beta_2; the first moment decays with beta_1.",
            "first / (1 - 0.999**step)": "0.999 is Adam's default for beta_2; the paper's is 0.98, and the first "
            "moment decays with beta_1.",
        },
    ),
    Exercise(
        number=31,
        section="5.4",
        solution=residual_dropout,
        blank="norm(x + dropout(sublayer(x)))",
        test=equals(
            _with_dropout,
            (standard_normal(4, 5, seed=250), lambda x: (2 * x).tanh() + x.roll(1, dims=0), _norm, _dropped),
        ),
        wrong={
            "norm(dropout(x + sublayer(x)))": "This drops parts of x too. Dropout comes before the addition, so that "
            "the residual connection stays whole.",
            "dropout(norm(x + sublayer(x)))": "Dropout comes before the addition and the norm, not after them.",
            "norm(x + sublayer(dropout(x)))": "The output of the sub-layer is dropped, not its input.",
            "norm(x + sublayer(x))": "There is no dropout.",
        },
    ),
    Exercise(
        number=32,
        section="5.4",
        solution=smoothed_target,
        blank="epsilon / vocab_size",
        test=equals(
            plain.smoothed_cross_entropy,
            ([0.5, -1.0, 2.0, 0.0], 2, 0.1),
            ([3.0, 0.0, 1.0], 1, 0.3),
            ([0.0] * 5, 0, 0.1),
            of=_cross_entropy,
        ),
        wrong={
            "epsilon / (vocab_size - 1)": "The share is of all V tokens. (tensor2tensor gives eps / (V - 1) to all but "
            "the right one.)",
            "epsilon": "The probabilities must sum to 1: epsilon is shared among the tokens.",
            "0": "Nothing is spread: the probabilities sum to 1 - epsilon.",
            "1 / vocab_size": "Only epsilon is spread; the right token keeps 1 - epsilon.",
        },
    ),
    Exercise(
        number=33,
        section="5.4",
        solution=perplexity,
        blank="math.exp(-sum(log_probs) / len(log_probs))",
        test=equals(
            lambda log_probs: math.prod(math.exp(each) for each in log_probs) ** (-1 / len(log_probs)),
            ([math.log(0.25)] * 3,),
            ([math.log(0.5), math.log(0.1), math.log(0.9), math.log(0.05)],),
        ),
        wrong={
            "2 ** (-sum(log_probs) / len(log_probs))": "The logarithms are natural, so the base is e.",
            "math.exp(-sum(log_probs))": "This is of the whole text: divide by the number of tokens.",
            "-sum(log_probs) / len(log_probs)": "This is the cross-entropy; the perplexity is e to its power.",
            "sum(math.exp(-each) for each in log_probs) / len(log_probs)": "The logarithms are averaged, not the "
            "reciprocals of the probabilities.",
            "math.exp(sum(log_probs) / len(log_probs))": "The sign: a perplexity is at least 1.",
        },
    ),
)
