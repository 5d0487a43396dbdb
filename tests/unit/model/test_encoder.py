"""The encoder: padding is invisible, and asking for weights changes nothing."""

from __future__ import annotations

import pytest
import torch

from clearhead.model import AttentionWeights, Recorder

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


@both_norms
def test_padding_positions_do_not_change_real_ones(make_model, make_batch, norm):
    model = make_model(norm=norm)
    source, _ = make_batch(model.config)
    mask = source != 0
    x = model.source_embedding(source)
    before = model.encoder(x, mask)
    disturbed = torch.where(mask[..., None], x, 1e3 * torch.randn_like(x))
    after = model.encoder(disturbed, mask)
    torch.testing.assert_close(after[mask], before[mask], rtol=0, atol=1e-6)
    assert (after - before)[~mask].abs().max() > 1e-3


@both_norms
def test_every_visible_position_reaches_every_position_within_one_layer(make_model, make_batch, norm):
    model = make_model(norm=norm, num_encoder_layers=1).double()
    source, _ = make_batch(model.config)
    mask = source != 0
    x = model.source_embedding(source).detach().requires_grad_()
    memory = model.encoder(x, mask)
    for row in range(3):
        for position in mask[row].nonzero().flatten():
            (gradient,) = torch.autograd.grad(memory[row, position].square().sum(), x, retain_graph=True)
            assert (gradient.abs().amax(-1) > 0).equal(mask & (torch.arange(3)[:, None] == row))


@both_norms
def test_recorded_encoder_weights_are_one_tensor_per_layer_and_keep_the_memory(make_model, make_batch, norm):
    model = make_model(norm=norm)
    source, _ = make_batch(model.config)
    mask = source != 0
    fused = model.encoder(model.source_embedding(source), mask)
    weights = AttentionWeights()
    explicit = model.encoder(model.source_embedding(source), mask, Recorder(weights))
    assert [tuple(layer.shape) for layer in weights.encoder] == [(3, 13, 11, 11)] * 3
    assert weights.decoder == weights.cross == []
    torch.testing.assert_close(explicit, fused, rtol=1e-5, atol=1e-5)


@both_norms
def test_order_of_words_matters_only_through_the_positions(make_model, norm):
    model = make_model(norm=norm).double()
    x, order = torch.randn(3, 7, 26).double(), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    mask = torch.arange(7).expand(3, 7) < torch.tensor([[7], [5], [2]])
    memory = model.encoder(x, mask)
    shuffled = model.encoder(x[:, order], mask[:, order])
    torch.testing.assert_close(shuffled, memory[:, order])
