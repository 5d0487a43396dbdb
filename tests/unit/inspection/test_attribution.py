"""Integrated gradients are complete, and occlusion is what the model says of a source with a word less."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from clearhead.decoding.step import token_log_probs
from clearhead.errors import DataError
from clearhead.inspection.attribution import integrated_gradients, num_products, occlusion
from clearhead.inspection.explain import explain, with_attribution

TEXT, TARGET = "Ein kleiner Hund rennt.", "A small dog."

# Smooth, so that a few points integrate it well; the source embedding is its own, so that a test can empty it.
SMOOTH = {"activation": "gelu", "tying": "decoder", "scale": 1.5, "norm": "post", "embedding_scale": False}


@pytest.fixture(scope="module")
def explained(make_translator):
    return explain(make_translator(**SMOOTH), TEXT, TARGET, search=False)


def test_a_row_sums_to_what_the_source_did(explained):
    gradients, whole = integrated_gradients(explained.model_pass, num_points=64)
    assert gradients.shape == (len(explained.target_tokens), len(explained.source_tokens))
    np.testing.assert_allclose(gradients.sum(axis=-1), whole, atol=2e-3)
    assert np.abs(whole).max() > 0.1


def test_whole_attribution_is_the_difference_to_a_source_of_zeros(make_translator, explained):
    _, whole = integrated_gradients(explained.model_pass, num_points=2)
    model, ids = explained.model_pass.model, explained.model_pass.source.tolist()
    target = [list(explained.model_pass.target_ids)]
    empty = make_translator(**SMOOTH).bundle.model
    with torch.no_grad():
        empty.source_embedding.weight.zero_()
        expected = token_log_probs(model, ids, target)[0] - token_log_probs(empty, ids, target)[0]
    np.testing.assert_allclose(whole, expected.numpy(), atol=1e-4)


def test_occlusion_is_the_loss_without_a_word(explained):
    found = occlusion(explained.model_pass, explained.source_words)
    assert found.shape == (len(explained.target_tokens), 5)  # Ein kleiner Hund rennt .
    ids, target = explained.model_pass.source[0], list(explained.model_pass.target_ids)
    place = explained.source_words[2].tokens
    without = torch.cat([ids[: place[0]], ids[place[-1] + 1 :]])
    shifted = explained.model_pass.target
    with torch.inference_mode():
        rows = [explained.model_pass.model(some[None], shifted)[0].log_softmax(dim=-1) for some in (ids, without)]
    expected = [(rows[0] - rows[1])[step, token].item() for step, token in enumerate(target)]
    np.testing.assert_allclose(found[:, 2], expected, atol=1e-4)


def test_with_attribution_leaves_no_gradients_in_inference_mode(explained):
    steps = []
    with torch.inference_mode():
        found = with_attribution(explained, steps.append).attribution
    assert steps == [1] * len(explained.target_tokens)
    assert found.gap < 0.01
    assert all(parameter.grad is None for parameter in explained.model_pass.model.parameters())


def test_attribution_of_a_decoder_only_model_is_rejected(make_translator):
    alone = explain(make_translator(num_encoder_layers=0, tying="decoder"), TEXT, TARGET, search=False)
    with pytest.raises(DataError, match="only the translation of an encoder-decoder"):
        with_attribution(alone)


def test_num_products_counts_weights_times_points_tokens_and_target_tokens():
    stacks = SimpleNamespace(encoder=torch.nn.Linear(3, 4), decoder=torch.nn.Linear(2, 5))  # 16 and 15 weights
    ran = SimpleNamespace(model=stacks, source=torch.zeros(1, 7), target_ids=[5, 6, 2])
    assert num_products(ran) == 31 * (32 + 2) * (7 + 3) * 3  # 32 points, and the two ends
