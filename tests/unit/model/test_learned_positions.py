"""Learned positions: one trained vector a position on each side, and no more than there are (paper section 3.5)."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.model import Transformer
from clearhead.model.other_positions import LearnedPositions


@pytest.fixture
def positions():
    positions = LearnedPositions(d_model=26, max_positions=11)
    torch.nn.init.normal_(positions.weight)
    return positions


def test_learned_positions_returns_rows_from_the_start_position(positions):
    assert positions(0, 7).equal(positions.weight[:7])
    assert positions(5, 3).equal(positions.weight[5:8])
    assert positions(0, 11).equal(positions.weight)
    assert positions(10, 1).equal(positions.weight[10:])


@pytest.mark.parametrize(("start", "length", "tokens"), [(0, 12, 12), (11, 1, 12), (7, 6, 13)])
def test_one_position_too_many_is_refused(positions, start, length, tokens):
    with pytest.raises(ConfigError) as caught:
        positions(start, length)
    assert str(caught.value) == (
        f"a sequence of {tokens} tokens does not fit this model, whose learned positions end after "
        f"model.max_positions = 11; cut the text into shorter segments"
    )


def test_each_side_has_a_table_of_its_own_whatever_is_tied(make_model):
    model = make_model(positions="learned", max_positions=11)
    tables = {name: tuple(weight.shape) for name, weight in model.named_parameters() if ".positions." in name}
    assert tables == {
        "source_embedding.positions.weight": (11, 26),
        "target_embedding.positions.weight": (11, 26),
    }
    assert model.source_embedding.positions.weight is not model.target_embedding.positions.weight
    assert model.source_embedding.weight is model.target_embedding.weight


def test_positions_are_added_to_scaled_tokens(make_model):
    model = make_model(positions="learned", max_positions=11)
    ids = torch.randint(3, 37, (3, 7))
    for embedding in (model.source_embedding, model.target_embedding):
        expected = embedding.weight[ids] * 26**0.5 + embedding.positions.weight[:7]
        torch.testing.assert_close(embedding(ids), expected)
        torch.testing.assert_close(embedding(ids[:, 4:], start=4), expected[:, 4:])


def test_the_positions_of_a_batch_learn_and_no_others(make_model, make_batch):
    model = make_model(positions="learned", max_positions=13)
    source, target = make_batch(model.config)  # 11 and 7 long
    model(source, target).square().sum().backward()
    for embedding, length in ((model.source_embedding, 11), (model.target_embedding, 7)):
        moved = embedding.positions.weight.grad.abs().amax(-1) > 0
        assert moved.tolist() == [True] * length + [False] * (13 - length)


def test_learned_positions_have_the_initial_distribution_of_embeddings():
    model = Transformer(ModelConfig(vocab_size=37, d_model=58, num_heads=29, positions="learned", max_positions=997))
    for table in (model.source_embedding.positions.weight, model.target_embedding.positions.weight):
        assert table.std().item() == pytest.approx(58**-0.5, rel=0.02)
        assert table.mean().item() == pytest.approx(0, abs=0.003)


def test_max_length_is_max_positions_for_learned_positions_alone():
    assert ModelConfig(positions="learned", max_positions=97).max_length == 97
    for kind in ("sinusoidal", "sinusoidal_halves", "sinusoidal_t2t", "rotary", "none"):
        assert ModelConfig(positions=kind, max_positions=97).max_length is None
