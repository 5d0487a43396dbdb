"""The feed-forward network's other forms: activations, a gate, no biases (Shazeer 2020)."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.model.feed_forward import ACTIVATIONS, FeedForward

# x, and what each activation makes of it; by the normal distribution's table and e^x.
VALUES = {
    "relu": {-2.0: 0.0, 0.0: 0.0, 1.0: 1.0, 3.0: 3.0},
    "gelu": {-2.0: -0.04550026, 0.0: 0.0, 1.0: 0.84134475, 3.0: 2.99595030},
    "gelu_tanh": {-2.0: -0.04540230, 0.0: 0.0, 1.0: 0.84119199, 3.0: 2.99636261},
    "silu": {-2.0: -0.23840584, 0.0: 0.0, 1.0: 0.73105858, 3.0: 2.85772238},
}
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)


def test_activations_have_the_values_of_their_definitions():
    assert VALUES.keys() == ACTIVATIONS.keys()
    for name, points in VALUES.items():
        found = ACTIVATIONS[name](torch.tensor(list(points), dtype=torch.float64))
        assert found.tolist() == pytest.approx(list(points.values()), abs=1e-7), name
    assert VALUES["gelu"][1.0] == pytest.approx(0.5 * (1 + math.erf(1 / math.sqrt(2))), abs=1e-8)
    assert VALUES["silu"][3.0] == pytest.approx(3 / (1 + math.exp(-3)), abs=1e-8)


@every_activation
@pytest.mark.parametrize("bias", [True, False])
def test_a_gate_multiplies_the_hidden_layer(activation, bias):
    network = FeedForward(d_model=26, d_ff=19, activation=activation, gated=True, bias=bias).double()
    x = torch.randn(3, 7, 26, dtype=torch.float64)
    w1, w_gate, w2 = (part.weight.T for part in (network.up_proj, network.gate_proj, network.down_proj))
    assert (w1.shape, w_gate.shape, w2.shape) == ((26, 19), (26, 19), (19, 26))
    up, gate = x @ w1, x @ w_gate
    if bias:
        up, gate = up + network.up_proj.bias, gate + network.gate_proj.bias
    expected = (ACTIVATIONS[activation](gate) * up) @ w2  # the activation is the gate's, never of what it lets through
    torch.testing.assert_close(network(x), expected + network.down_proj.bias if bias else expected)


@every_activation
def test_without_a_gate_the_activation_is_that_of_the_hidden_layer(activation):
    network = FeedForward(d_model=26, d_ff=19, activation=activation).double()
    x = torch.randn(3, 7, 26, dtype=torch.float64)
    hidden = ACTIVATIONS[activation](x @ network.up_proj.weight.T + network.up_proj.bias)
    torch.testing.assert_close(network(x), hidden @ network.down_proj.weight.T + network.down_proj.bias)


@pytest.mark.parametrize(
    ("gated", "bias", "names"),
    [
        (False, True, ["down_proj.bias", "down_proj.weight", "up_proj.bias", "up_proj.weight"]),
        (False, False, ["down_proj.weight", "up_proj.weight"]),
        (True, False, ["down_proj.weight", "gate_proj.weight", "up_proj.weight"]),
    ],
)
def test_a_gate_costs_half_as_many_weights_again_and_biases_may_be_left_out(gated, bias, names):
    network = FeedForward(d_model=26, d_ff=19, gated=gated, bias=bias)
    assert sorted(name for name, _ in network.named_parameters()) == names
    matrices = sum(weight.numel() for weight in network.parameters() if weight.dim() == 2)
    assert matrices == (3 if gated else 2) * 26 * 19


@pytest.mark.parametrize("gated", [False, True])
def test_dropout_falls_on_the_hidden_layer(gated):
    network = FeedForward(d_model=26, d_ff=509, gated=gated, activation="silu", dropout=0.25).train()
    seen = []
    network.down_proj.register_forward_hook(lambda _, args, __: seen.append(args[0]))
    x = torch.randn(3, 7, 26)
    network(x)
    hidden = network.activation((network.gate_proj if gated else network.up_proj)(x))
    hidden = hidden * network.up_proj(x) if gated else hidden
    dropped = seen[0] == 0
    assert dropped.double().mean().item() == pytest.approx(0.25, abs=0.02)
    torch.testing.assert_close(seen[0][~dropped], (hidden / 0.75)[~dropped])
    network.eval()(x)
    torch.testing.assert_close(seen[1], hidden)


def test_every_feed_forward_network_of_a_model_has_the_chosen_form(make_model):
    model = make_model(gated=True, activation="silu", feed_forward_bias=False, feed_forward_dropout=0.3)
    networks = [module for module in model.modules() if isinstance(module, FeedForward)]
    assert len(networks) == 3 + 2
    assert all(network.activation is ACTIVATIONS["silu"] for network in networks)
    assert all(network.gate_proj is not None for network in networks)
    assert not [name for name, _ in model.named_parameters() if "feed_forward." in name and name.endswith("bias")]
    assert {network.dropout.rate for network in networks} == {0.3}
