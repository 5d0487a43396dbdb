"""A stored model has the weights of its module under the same names, shared ones once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from clearhead.config.presets import tiny
from clearhead.model import Transformer
from clearhead.model.stored import StoredModel


@pytest.fixture
def arrays():
    model = Transformer(tiny(vocab_size=37))
    return {name: weight.detach().numpy().copy() for name, weight in model.named_parameters()}


def test_its_module_has_the_same_weights_and_is_made_once(arrays):
    stored = StoredModel(tiny(vocab_size=37), arrays)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with torch.inference_mode():
        model = stored.module
    assert torch.equal(torch.get_rng_state(), before)
    assert stored.module is model
    assert not model.training
    assert model.num_parameters() == stored.num_parameters() == sum(array.size for array in arrays.values())
    for name, weight in model.named_parameters():
        assert np.array_equal(weight.detach().numpy(), arrays[name]), name
        assert not weight.is_inference()  # or it could not be trained
        assert np.shares_memory(stored.arrays[name], weight.detach().numpy())  # held once


def test_stored_model_is_changed_after_its_module_changes(arrays):
    stored = StoredModel(tiny(vocab_size=37), arrays)
    assert not stored.is_changed
    assert stored.module.output_proj.weight.grad is None
    assert not stored.is_changed
    with torch.no_grad():
        stored.module.decoder.layers[1].feed_forward.up_proj.weight.mul_(1.5)
    assert stored.is_changed
    read = pickle.loads(pickle.dumps(stored))  # the weights there are now, without the module
    assert "module" not in vars(read)
    assert not read.is_changed
    assert np.array_equal(read.module.state_dict()["output_proj.weight"], stored["output_proj.weight"])


def test_a_shared_matrix_is_found_by_each_of_its_names(arrays):
    stored = StoredModel(tiny(vocab_size=37), arrays)
    for name in ("source_embedding.weight", "target_embedding.weight", "output_proj.weight"):
        assert stored[name] is arrays["source_embedding.weight"]


def test_a_matrix_that_was_shared_is_the_own_one():
    model = Transformer(tiny(vocab_size=37))
    model.output_proj.weight = torch.nn.Parameter(torch.zeros(37, 128))
    assert not StoredModel.of(model)["output_proj.weight"].any()


def test_stored_model_of_a_stored_model_is_itself(arrays):
    stored = StoredModel(tiny(vocab_size=37), arrays)
    assert StoredModel.of(stored) is stored
