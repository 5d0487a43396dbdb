"""The paper's equations: formula, code that computes it, and that code's difference from plain Python arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig, TrainConfig
from clearhead.decoding.rules import length_penalty
from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.embeddings import Embedding
from clearhead.model.feed_forward import FeedForward
from clearhead.model.positions import sinusoidal_positions
from clearhead.model.residual import Residual
from clearhead.model.transformer import Transformer
from clearhead.paper import places, plain
from clearhead.paper.schedule import equation_3
from clearhead.training.loss import label_smoothed_cross_entropy
from clearhead.training.optimizer import build_optimizer
from clearhead.training.schedule import noam_rate

_EXACT = 1e-12
"""Tolerance in float64, which has 16 digits; sums of dozens of terms lose two or three of them."""
_SINGLE = 1e-6
"""Tolerance in float32, which has 7 digits."""


@dataclass(frozen=True)
class Equation:
    """A formula of the paper and the code that computes it."""

    place: str
    """Equation number or section in the paper."""
    formula: str
    code: str
    """`module:name` of the function or class that computes it."""
    difference: Callable[[], float]
    """Runs the package's code and plain arithmetic on the same numbers, and returns the largest difference."""
    tolerance: float


def _random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _randomised(module: nn.Module, seed: int) -> nn.Module:
    """Fill every weight with random float64 numbers, including biases and norms, which training starts at 0 and 1."""
    module.double().eval().requires_grad_(requires_grad=False)
    for place, weight in enumerate(module.parameters()):
        weight.copy_(_random(*weight.shape, seed=seed + place) * 0.5)
    return module


def _largest(ours: Tensor, expected: plain.Matrix | list[float]) -> float:
    return float((ours - torch.tensor(expected, dtype=torch.float64)).abs().max())


def _attention() -> float:
    q, k, v = _random(5, 7, seed=1), _random(11, 7, seed=2), _random(11, 3, seed=3)
    output, weights = scaled_dot_product_attention(q, k, v)
    expected_output, expected_weights = plain.attention(q.tolist(), k.tolist(), v.tolist())
    return max(_largest(output, expected_output), _largest(weights, expected_weights))


def _masked_attention() -> float:
    q, k, v = _random(5, 7, seed=4), _random(5, 7, seed=5), _random(5, 3, seed=6)
    allowed = [[key <= query for key in range(5)] for query in range(5)]
    output, weights = scaled_dot_product_attention(q, k, v, torch.tensor(allowed))
    if any(weights[query, key] != 0 for query, key in product(range(5), range(5)) if not allowed[query][key]):
        return math.inf  # even a weight of nearly 0 would leak the future
    return _largest(output, plain.attention(q.tolist(), k.tolist(), v.tolist(), allowed)[0])


def _multi_head() -> float:
    d_model, heads, d_k, d_v = 10, 3, 5, 2
    layer = MultiHeadAttention(d_model=d_model, num_heads=heads, d_k=d_k, d_v=d_v)
    _randomised(layer, seed=7)
    query, memory = _random(4, d_model, seed=12), _random(6, d_model, seed=13)
    w_q, w_k, w_v = (
        [block.T.tolist() for block in projection.weight.split(width)]
        for projection, width in ((layer.q_proj, d_k), (layer.k_proj, d_k), (layer.v_proj, d_v))
    )
    expected = plain.multi_head(query.tolist(), memory.tolist(), w_q, w_k, w_v, layer.out_proj.weight.T.tolist())
    return _largest(layer(query[None], memory[None])[0], expected)


def _scores_have_unit_variance() -> float:
    # All vectors of +-1 of length d_k: their components have mean 0 and variance 1 exactly, so no sampling is needed.
    d_k = 4
    vectors = torch.tensor(list(product((-1.0, 1.0), repeat=d_k)), dtype=torch.float64)
    _, weights = scaled_dot_product_attention(vectors, vectors, vectors)
    # Each query's scores have mean 0, so they can be recovered from the logarithm of its weights.
    scores = weights.log() - weights.log().mean(dim=-1, keepdim=True)
    variance_of_products = float((vectors @ vectors.T).square().mean())
    return max(abs(variance_of_products - d_k), abs(float(scores.square().mean()) - 1.0))


def _residual() -> float:
    norm = nn.LayerNorm(9)
    layer = Residual(norm, dropout=0.1)
    _randomised(layer, seed=14)
    x, update = _random(4, 9, seed=16), _random(4, 9, seed=17)
    expected = plain.layer_norm((x + update).tolist(), norm.weight.tolist(), norm.bias.tolist(), norm.eps)
    return _largest(layer.add_and_norm(x[None], lambda x: update[None])[0], expected)


def _feed_forward() -> float:
    layer = FeedForward(d_model=6, d_ff=11)
    _randomised(layer, seed=18)
    x = _random(5, 6, seed=22)
    up, down = layer.up_proj, layer.down_proj
    expected = plain.feed_forward(
        x.tolist(), up.weight.T.tolist(), up.bias.tolist(), down.weight.T.tolist(), down.bias.tolist()
    )
    return _largest(layer(x[None])[0], expected)


def _scaled_embedding() -> float:
    embedding = Embedding(vocab_size=13, d_model=6, dropout=0.1, positions=None)
    _randomised(embedding, seed=23)
    ids = [3, 12, 3, 0]
    expected = [[math.sqrt(6) * value for value in embedding.weight[token].tolist()] for token in ids]
    return _largest(embedding(torch.tensor([ids]))[0], expected)


def _small_model() -> Transformer:
    config = ModelConfig(
        vocab_size=17, d_model=6, d_ff=10, num_heads=3, num_encoder_layers=2, num_decoder_layers=1, dropout=0.0
    )
    model = Transformer(config)
    _randomised(model, seed=24)
    return model


def _tied_output() -> float:
    model = _small_model()
    source, target = torch.tensor([[5, 9, 2]]), torch.tensor([[1, 7, 11, 4]])
    states = model.states(target, *model.encode(source))[0]
    shared = model.source_embedding.weight
    if model.target_embedding.weight is not shared:
        return math.inf
    return _largest(model(source, target)[0], plain.matmul(states.tolist(), shared.T.tolist()))


def _causality() -> float:
    model = _small_model()
    source = torch.tensor([[5, 9, 2]])
    before = model(source, torch.tensor([[1, 7, 11, 4, 9]]))
    after = model(source, torch.tensor([[1, 7, 11, 8, 3]]))
    return float((before - after)[:, :3].abs().max())


def _positions() -> float:
    expected = [[plain.position_encoding(position, column, 10) for column in range(10)] for position in range(37)]
    return _largest(sinusoidal_positions(37, 10).double(), expected)


def _learning_rate() -> float:
    def relative(step: int) -> float:
        expected = equation_3(step, 512, 4_000)
        return abs(noam_rate(step, d_model=512, warmup_steps=4_000) - expected) / expected

    return max(map(relative, (1, 17, 3_999, 4_000, 4_001, 100_000)))


def _adam() -> float:
    layer = nn.Linear(3, 2, dtype=torch.float64)
    optimizer = build_optimizer(layer, TrainConfig())
    for group in optimizer.param_groups:
        group["lr"] = 7e-4
    starts = {name: weight.detach().flatten().tolist() for name, weight in layer.named_parameters()}
    gradients = {name: _random(3, weight.numel(), seed=29 + weight.dim()) for name, weight in layer.named_parameters()}
    for step in range(3):
        for name, weight in layer.named_parameters():
            weight.grad = gradients[name][step].view_as(weight).clone()
        optimizer.step()
    return max(
        abs(ours - plain.adam(start, gradients[name][:, place].tolist(), rate=7e-4))
        for name, weight in layer.named_parameters()
        for place, (ours, start) in enumerate(zip(weight.detach().flatten().tolist(), starts[name], strict=True))
    )


def _label_smoothing() -> float:
    logits, targets = _random(5, 13, seed=32).float(), [0, 12, 3, 3, 7]
    loss, _ = label_smoothed_cross_entropy(logits, torch.tensor(targets), 0.1)
    rows = zip(logits.tolist(), targets, strict=True)
    expected = sum(plain.smoothed_cross_entropy(row, target, 0.1) for row, target in rows)
    return abs(float(loss) - expected) / expected


def _length_penalty() -> float:
    return max(
        abs(length_penalty(length, alpha) - plain.length_penalty(length, alpha))
        for length, alpha in product((1, 5, 27, 101), (0.0, 0.6, 1.0))
    )


_DIFFERENCES: Mapping[str, Callable[[], float]] = {
    "attention": _attention,
    "unit_variance": _scores_have_unit_variance,
    "masked_attention": _masked_attention,
    "causality": _causality,
    "multi_head": _multi_head,
    "residual": _residual,
    "feed_forward": _feed_forward,
    "scaled_embedding": _scaled_embedding,
    "tied_output": _tied_output,
    "positions": _positions,
    "learning_rate": _learning_rate,
    "adam": _adam,
    "label_smoothing": _label_smoothing,
    "length_penalty": _length_penalty,
}
"""Name of an equation -> what compares it."""
_TOLERANCES = {"causality": 0.0, "positions": _SINGLE, "label_smoothing": _SINGLE}
"""Name of an equation -> the largest difference that is allowed, where it is not `_EXACT`."""

EQUATIONS = tuple(
    Equation(
        row["place"], row["formula"], f"clearhead.{row['code']}", _DIFFERENCES[name], _TOLERANCES.get(name, _EXACT)
    )
    for name, row in places.EQUATIONS.items()
)
"""All equations, in the order of the paper."""
