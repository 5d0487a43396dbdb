"""Presets build, go with a valid recipe, and are chosen by the size of the corpus."""

from __future__ import annotations

import pytest

from clearhead.config import Config, ModelConfig, merge
from clearhead.errors import ConfigError
from clearhead.presets import PRESETS, RECIPES, choose_preset, paper_base, paper_big, recipe


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_with_the_vocabulary_asked_for(name):
    config = PRESETS[name](vocab_size=997)
    assert isinstance(config, ModelConfig)
    assert config.vocab_size == 997
    assert PRESETS[name]().vocab_size > 997


@pytest.mark.parametrize("name", PRESETS)
def test_every_recipe_is_a_valid_configuration(name):
    config = Config.from_dict(merge({"train": {"max_steps": 7}}, recipe(name)))
    assert config.preset == name
    assert config.model == PRESETS[name](vocab_size=config.model.vocab_size)
    for key, value in RECIPES[name].items():
        assert getattr(config.train, key) == value


def test_every_preset_has_a_recipe():
    assert list(RECIPES) == list(PRESETS)


def test_recipes_leave_the_vocabulary_to_the_tokenizer():
    for name in PRESETS:
        assert "vocab_size" not in recipe(name)["model"]


def test_a_recipe_may_be_changed_without_changing_the_next():
    recipe("tiny")["train"]["warmup_steps"] = 1
    recipe("tiny")["model"]["d_model"] = 2
    assert recipe("tiny")["train"]["warmup_steps"] == RECIPES["tiny"]["warmup_steps"] != 1
    assert recipe("tiny")["model"]["d_model"] == PRESETS["tiny"]().d_model != 2


def test_paper_presets_are_table_3():
    base, big = paper_base(), paper_big()
    assert base == ModelConfig()
    assert (big.d_model, big.d_ff, big.num_heads, big.head_dim, big.dropout) == (1024, 4096, 16, 64, 0.3)
    assert (big.num_encoder_layers, big.num_decoder_layers, big.norm, big.vocab_size) == (6, 6, "post", 37_000)
    assert RECIPES["paper-base"]["average_last"] == 5
    assert RECIPES["paper-big"]["average_last"] == 20  # section 6.1
    assert RECIPES["paper-big"]["keep_checkpoints"] >= 20


def test_an_average_never_asks_for_more_checkpoints_than_are_kept():
    for name in PRESETS:
        train = Config.from_dict(merge({"train": {"max_steps": 7}}, recipe(name))).train
        assert train.average_last <= train.keep_checkpoints, name


def test_unknown_presets_are_refused_with_the_nearest_name():
    with pytest.raises(ConfigError) as caught:
        recipe("paper_base")
    assert str(caught.value) == "unknown preset 'paper_base'; did you mean 'paper-base'?"
    with pytest.raises(ConfigError) as caught:
        recipe("")
    assert str(caught.value).startswith("unknown preset ''; known names: paper-base, paper-big, ")


@pytest.mark.parametrize(
    ("num_pairs", "name"),
    [
        (1, "tiny"),
        (99_999, "tiny"),
        (100_000, "small"),
        (999_999, "small"),
        (1_000_000, "paper-base"),
        (36_000_000, "paper-base"),
    ],
)
def test_the_preset_follows_the_corpus_size(num_pairs, name):
    assert choose_preset(num_pairs) == name
    assert name in PRESETS
