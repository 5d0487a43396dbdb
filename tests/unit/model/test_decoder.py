"""The decoder: no view of the future or of padding, and the same result in steps as at once."""

from __future__ import annotations

import pytest
import torch

from clearhead.model import AttentionWeights, Recorder

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


@both_norms
@pytest.mark.parametrize("position", range(6))
def test_changing_tokens_after_a_position_leaves_logits_up_to_it_bitwise_equal(make_model, make_batch, norm, position):
    model = make_model(norm=norm)
    source, target = make_batch(model.config, target=(7, 7, 4))
    before = model(source, target)
    target[:, position + 1 :] = 3 + (target[:, position + 1 :] + 5) % 29
    after = model(source, target)
    assert after[:, : position + 1].equal(before[:, : position + 1])
    assert (after - before)[:, position + 1 :].abs().amax(-1).gt(1e-4).all()


@both_norms
def test_hidden_memory_does_not_change_the_states(encoded, norm):
    model, target, memory, mask = encoded(norm=norm)
    before, _ = model.decode(target, memory, mask)
    disturbed = torch.where(mask[..., None], memory, torch.full_like(memory, 1e4))
    after, _ = model.decode(target, disturbed, mask)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


@both_norms
def test_every_visible_memory_position_reaches_every_target_position(encoded, norm):
    model, target, memory, mask = encoded(norm=norm)
    memory = memory.detach().requires_grad_()
    logits, _ = model.decode(target, memory, mask)
    for row in range(3):
        for position in range(7):
            (gradient,) = torch.autograd.grad(logits[row, position].square().sum(), memory, retain_graph=True)
            assert (gradient.abs().amax(-1) > 0).equal(mask & (torch.arange(3)[:, None] == row))


@both_norms
def test_recorded_decoder_weights_are_one_tensor_per_layer_and_change_no_state(encoded, norm):
    model, target, memory, mask = encoded(norm=norm)
    x = model.target_embedding(target)
    fused = model.decoder(x, memory, mask)
    weights = AttentionWeights()
    explicit = model.decoder(x, memory, mask, recorder=Recorder(weights))
    torch.testing.assert_close(explicit, fused, rtol=1e-5, atol=1e-5)
    assert [tuple(layer.shape) for layer in weights.decoder] == [(3, 13, 7, 7)] * 2
    assert [tuple(layer.shape) for layer in weights.cross] == [(3, 13, 7, 11)] * 2
