"""Which of the three matrices are one: the same parameter, counted once, learning from all its uses (section 3.4)."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from clearhead.config import ModelConfig
from clearhead.model import Transformer

MATRICES = ("source_embedding", "target_embedding", "output_proj")

# The matrices that are one, and the names that are left.
TYINGS = {
    "three-way": ([MATRICES], {"source_embedding.weight"}),
    "decoder": (
        [("source_embedding",), ("target_embedding", "output_proj")],
        {"source_embedding.weight", "target_embedding.weight"},
    ),
    "embeddings": (
        [("source_embedding", "target_embedding"), ("output_proj",)],
        {"source_embedding.weight", "output_proj.weight"},
    ),
    "none": ([(name,) for name in MATRICES], {f"{name}.weight" for name in MATRICES}),
}
every_tying = pytest.mark.parametrize("tying", TYINGS)


def matrix_names(model):
    return {name for name, _ in model.named_parameters() if name in {f"{matrix}.weight" for matrix in MATRICES}}


@every_tying
def test_tied_matrices_are_one_parameter_under_the_first_of_their_names(make_model, tying):
    model = make_model(tying=tying)
    groups, names = TYINGS[tying]
    group_of = {name: number for number, group in enumerate(groups) for name in group}
    for first in MATRICES:
        for second in MATRICES:
            is_one = getattr(model, first).weight is getattr(model, second).weight
            assert is_one == (group_of[first] == group_of[second]), (first, second)
    assert matrix_names(model) == names


@every_tying
def test_a_shared_matrix_counts_once(make_model, tying):
    assert (
        make_model(tying=tying).num_parameters() - make_model().num_parameters()
        == (len(TYINGS[tying][0]) - 1) * 37 * 26
    )


@every_tying
def test_each_matrix_learns_from_all_its_uses_and_no_other(make_model, make_batch, tying):
    """The gradients of the untied matrices, added up group by group, are those of the tied ones."""
    tied, untied = make_model(tying=tying).double(), make_model(tying="none").double()
    with torch.no_grad():
        theirs = dict(tied.named_parameters())
        for name, weight in untied.named_parameters():
            if name.removesuffix(".weight") in MATRICES:
                weight.copy_(getattr(tied, name.removesuffix(".weight")).weight)
            else:
                weight.copy_(theirs[name])
    source, target = make_batch(tied.config)
    labels = torch.randint(3, 37, target.shape)
    for model in (tied, untied):
        functional.cross_entropy(model(source, target).flatten(0, 1), labels.flatten()).backward()
    for group in TYINGS[tying][0]:
        parts = [getattr(untied, name).weight.grad for name in group]
        assert all(part.abs().max() > 1e-6 for part in parts)
        torch.testing.assert_close(getattr(tied, group[0]).weight.grad, sum(parts))


@pytest.mark.parametrize("tying", ["decoder", "none"])
@pytest.mark.parametrize("source_vocab_size", [29, 61])
def test_two_vocabularies_may_differ_in_size(make_model, tying, source_vocab_size):
    model = make_model(tying=tying, source_vocab_size=source_vocab_size)
    assert model.source_embedding.weight.shape == (source_vocab_size, 26)
    assert model.target_embedding.weight.shape == model.output_proj.weight.shape == (37, 26)
    logits = model(torch.full((2, 5), source_vocab_size - 1), torch.full((2, 3), 36))
    assert logits.shape == (2, 3, 37)


@pytest.mark.parametrize(
    ("tying", "names"),
    [
        ("three-way", {"target_embedding.weight"}),
        ("decoder", {"target_embedding.weight"}),
        ("embeddings", {"target_embedding.weight", "output_proj.weight"}),
        ("none", {"target_embedding.weight", "output_proj.weight"}),
    ],
)
def test_a_decoder_alone_ties_what_it_has(make_model, tying, names):
    model = make_model(num_encoder_layers=0, tying=tying)
    assert matrix_names(model) == names
    assert (model.target_embedding.weight is model.output_proj.weight) == (len(names) == 1)


@every_tying
def test_an_encoder_alone_has_one_matrix(make_model, tying):
    assert matrix_names(make_model(num_decoder_layers=0, tying=tying)) == {"source_embedding.weight"}


@every_tying
def test_only_a_matrix_of_no_embedding_starts_xavier_uniform(tying):
    model = Transformer(ModelConfig(vocab_size=997, d_model=58, d_ff=19, num_heads=29, tying=tying, output_bias=True))
    groups, _ = TYINGS[tying]
    for group in groups:
        weight = getattr(model, group[0]).weight
        if group == ("output_proj",):
            bound = (6 / (997 + 58)) ** 0.5
            assert 0.98 * bound < weight.abs().max().item() <= bound
            assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
        else:
            assert weight.std().item() == pytest.approx(58**-0.5, rel=0.02)
            assert weight.abs().max().item() > 3 * 58**-0.5  # normal, not uniform
    assert model.output_proj.bias.eq(0).all()


def test_the_output_bias_is_added_to_the_logits_alone(make_model, make_batch):
    model = make_model(output_bias=True)
    source, target = make_batch(model.config)
    states = model.states(target, *model.encode(source))
    expected = states @ model.source_embedding.weight.T + model.output_proj.bias
    torch.testing.assert_close(model(source, target), expected, rtol=1e-5, atol=1e-5)
    assert model.output_proj.bias.shape == (37,)
    assert "output_proj.bias" not in dict(make_model().named_parameters())
