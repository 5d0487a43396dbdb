"""Embeddings: scaled by sqrt(d_model), positions added (paper section 3.4)."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.model.embeddings import Embedding
from clearhead.model.positions import SinusoidalPositions, sinusoidal_positions


@pytest.fixture
def embedding():
    embedding = Embedding(vocab_size=37, d_model=26, dropout=0.0, positions=SinusoidalPositions(d_model=26))
    torch.nn.init.normal_(embedding.weight)
    return embedding


def test_tokens_are_scaled_by_the_root_of_d_model_and_positions_added(embedding):
    ids = torch.randint(0, 37, (3, 7))
    expected = embedding.weight[ids] * math.sqrt(26) + sinusoidal_positions(7, 26)
    torch.testing.assert_close(embedding(ids), expected)


def test_start_moves_the_positions_on(embedding):
    ids = torch.randint(0, 37, (3, 11))
    torch.testing.assert_close(embedding(ids[:, 4:], start=4), embedding(ids)[:, 4:])


def test_the_matrix_is_the_only_parameter(embedding):
    assert [(name, tuple(weight.shape)) for name, weight in embedding.named_parameters()] == [("weight", (37, 26))]
