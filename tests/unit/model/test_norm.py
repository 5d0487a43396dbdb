"""Norms equal their formulas, with the epsilon inside the root and statistics over the features alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.model.sublayers import make_norm

both_kinds = pytest.mark.parametrize("kind", ["layer", "rms"])


def norm_of(kind, eps=1e-5):
    return make_norm(ModelConfig(d_model=26, num_heads=1, norm_kind=kind, norm_eps=eps))


def shaken(kind, eps=1e-5):
    norm = norm_of(kind, eps).double()
    with torch.no_grad():
        for weight in norm.parameters():
            weight.normal_()
    return norm


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_layer_norm_equals_its_formula(eps):
    norm, x = shaken("layer", eps), torch.randn(3, 7, 26).double() * 5 + 2
    mean = x.sum(-1, keepdim=True) / 26
    variance = (x - mean).square().sum(-1, keepdim=True) / 26  # of these 26 values, not an estimate from a sample
    expected = (x - mean) / (variance + eps).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(norm(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_rms_norm_equals_its_formula(eps):
    norm, x = shaken("rms", eps), torch.randn(3, 7, 26).double() * 5 + 2
    expected = x / (x.square().sum(-1, keepdim=True) / 26 + eps).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "names"), [("layer", ["bias", "weight"]), ("rms", ["weight"])])
def test_rms_norm_has_a_gain_alone(kind, names):
    assert sorted(name for name, _ in norm_of(kind).named_parameters()) == names


def test_layer_norm_takes_the_mean_off_and_rms_norm_does_not():
    x = torch.randn(3, 7, 26).double()
    for kind, is_shifted in (("layer", False), ("rms", True)):
        norm = shaken(kind)
        moved = (norm(x + 3) - norm(x)).abs().max()
        assert moved > 1e-1 if is_shifted else moved < 1e-9, kind


@both_kinds
def test_norm_does_not_depend_on_the_scale_of_its_input(kind):
    norm, x = shaken(kind, 1e-12), torch.randn(3, 7, 26).double()
    torch.testing.assert_close(norm(x * 1000), norm(x), rtol=1e-9, atol=1e-9)


@both_kinds
def test_a_vector_of_zeros_stays_finite(kind):
    norm, x = norm_of(kind), torch.zeros(3, 7, 26, requires_grad=True)
    norm(x).sum().backward()
    assert norm(x).eq(0).all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(("kind", "expected"), [("layer", nn.LayerNorm), ("rms", nn.RMSNorm)])
def test_every_norm_of_a_model_has_the_chosen_kind_and_epsilon(make_model, kind, expected):
    model = make_model(norm_kind=kind, norm_eps=1e-3, norm="pre", embedding_norm=True)
    norms = {name: module for name, module in model.named_modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)}
    # Two a layer in the encoder, three in the decoder, one at the end of each, one over each embedding.
    assert len(norms) == 3 * 2 + 2 * 3 + 2 + 2
    assert all(type(norm) is expected and norm.eps == 1e-3 for norm in norms.values())


@pytest.mark.parametrize(
    ("norm", "final_norm", "is_there"),
    [
        ("post", None, False),
        ("post", True, True),
        ("post", False, False),
        ("pre", None, True),
        ("pre", True, True),
        ("pre", False, False),
    ],
)
def test_a_final_norm_is_there_with_pre_norm_or_where_it_is_asked_for(make_model, norm, final_norm, is_there):
    names = dict(make_model(norm=norm, final_norm=final_norm).named_parameters())
    for stack in ("encoder", "decoder"):
        assert (f"{stack}.final_norm.weight" in names) == is_there
