"""Every equation holds in our code, and a wrong version of the code would be caught."""

from __future__ import annotations

import importlib
import math

import pytest
import torch

from clearhead.model.positions import sinusoidal_positions
from clearhead.paper import equations
from clearhead.paper.equations import EQUATIONS
from clearhead.paper.formulas import formulas
from clearhead.training.loss import label_smoothed_cross_entropy


@pytest.mark.parametrize("equation", EQUATIONS, ids=lambda equation: f"{equation.place}: {equation.formula[:30]}")
def test_our_code_computes_the_equation(equation):
    assert equation.difference() <= equation.tolerance


@pytest.mark.parametrize("code", sorted({equation.code for equation in EQUATIONS}))
def test_the_code_that_is_named_exists(code):
    module, _, name = code.partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_every_numbered_equation_is_there():
    places = " ".join(equation.place for equation in EQUATIONS)
    for wanted in ("equation 1", "equation 2", "equation 3", "footnote 4", "3.2.2", "3.4", "3.5", "5.3", "5.4", "6.1"):
        assert wanted in places


def unscaled(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


def over_queries(q, k, v, mask=None):
    weights = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).softmax(dim=-2)
    return weights @ v, weights


def softly_masked(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -30.0)
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


class WithoutScale(equations.Embedding):
    def __init__(self, **options):
        super().__init__(**options, scale=False)


class WithGelu(equations.FeedForward):
    def __init__(self, **options):
        super().__init__(**options, activation="gelu")


class PreNorm(equations.Residual):
    def __init__(self, norm, **options):
        super().__init__(norm, **options, is_pre=True)


class WithBias(equations.MultiHeadAttention):
    def __init__(self, **options):
        super().__init__(**options, bias=True)


def plain_adam(model, config):
    return torch.optim.Adam(model.parameters(), betas=(0.9, 0.999), eps=1e-9)


WRONG = {
    "attention without its scale": ("scaled_dot_product_attention", unscaled, "equation 1"),
    "no scale, variance of d_k": ("scaled_dot_product_attention", unscaled, "footnote 4"),
    "softmax over queries": ("scaled_dot_product_attention", over_queries, "equation 1"),
    "a mask that leaks a little": ("scaled_dot_product_attention", softly_masked, "3.2.3"),
    "biases in attention": ("MultiHeadAttention", WithBias, "3.2.2"),
    "norm before the sum": ("Residual", PreNorm, "section 3.1"),
    "BERT's activation": ("FeedForward", WithGelu, "equation 2"),
    "embeddings as they are": ("Embedding", WithoutScale, "3.4"),
    "sines before cosines": (
        "sinusoidal_positions",
        lambda length, d_model: sinusoidal_positions(length, d_model, "sinusoidal_halves"),
        "3.5",
    ),
    "another warm-up": ("noam_rate", lambda step, *, d_model, warmup_steps: d_model**-0.5 * step**-0.5, "equation 3"),
    "Adam's usual betas": ("build_optimizer", plain_adam, "section 5.3"),
    "no smoothing": (
        "label_smoothed_cross_entropy",
        lambda logits, target, smoothing: label_smoothed_cross_entropy(logits, target, 0.0),
        "5.4",
    ),
    "fairseq's length penalty": ("length_penalty", lambda length, alpha: float(length**alpha), "6.1"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_version_is_caught(monkeypatch, mistake):
    name, wrong, place = WRONG[mistake]
    monkeypatch.setattr(equations, name, wrong)
    differences = [
        (equation.difference(), equation.tolerance) for equation in EQUATIONS if equation.place.find(place) >= 0
    ]
    assert any(difference > 1e3 * tolerance for difference, tolerance in differences)


def test_a_failing_equation_is_a_failure_of_the_part(monkeypatch):
    assert formulas().failures == []
    monkeypatch.setattr(equations, "length_penalty", lambda length, alpha: float(length**alpha))
    part = formulas()
    assert len(part.failures) == 1
    assert part.failures[0].startswith("section 6.1 (length_penalty): largest difference ")
    assert part.text.count("FAILED") == 1


def test_the_part_names_every_equation_and_where_it_is():
    part = formulas()
    for equation in EQUATIONS:
        assert equation.formula in part.text
        assert equation.code in part.text
    assert len(part.data["equations"]) == len(EQUATIONS)
