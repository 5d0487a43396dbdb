"""Presets build, go with a valid recipe, and are chosen by the size of the corpus."""

from __future__ import annotations

import pytest

from clearhead.config import Config, ModelConfig
from clearhead.config.nested import merge
from clearhead.config.presets import (
    PRESETS,
    RECIPES,
    TABLE3,
    bert_base,
    bert_large,
    choose_preset,
    paper_base,
    paper_big,
    recipe,
    table3_row,
)
from clearhead.errors import ConfigError

ENCODERS = {"bert-base": bert_base, "bert-large": bert_large}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_with_the_vocabulary_asked_for(name):
    config = PRESETS[name](vocab_size=997)
    assert isinstance(config, ModelConfig)
    assert config.vocab_size == 997
    assert PRESETS[name]().vocab_size > 997


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_valid_configuration(name):
    config = Config.from_dict(merge({"train": {"max_steps": 7}}, recipe(name)))
    assert config.preset == name
    assert config.model == PRESETS[name](vocab_size=config.model.vocab_size)
    for key, value in RECIPES[name].items():
        assert getattr(config.train, key) == value


def test_every_preset_with_a_decoder_has_a_recipe():
    assert list(RECIPES) == [name for name in PRESETS if PRESETS[name]().num_decoder_layers]
    assert [name for name in PRESETS if name not in RECIPES] == list(ENCODERS)


def test_recipes_leave_the_vocabulary_to_the_tokenizer():
    for name in RECIPES:
        assert "vocab_size" not in recipe(name)["model"]


def test_a_recipe_may_be_changed_without_changing_the_next():
    recipe("tiny")["train"]["warmup_steps"] = 1
    recipe("tiny")["model"]["d_model"] = 2
    assert recipe("tiny")["train"]["warmup_steps"] == RECIPES["tiny"]["warmup_steps"] != 1
    assert recipe("tiny")["model"]["d_model"] == PRESETS["tiny"]().d_model != 2


def test_paper_presets_are_table_3():
    base, big = paper_base(), paper_big()
    assert base == ModelConfig()
    assert (big.d_model, big.d_ff, big.num_heads, big.key_dim, big.dropout) == (1024, 4096, 16, 64, 0.3)
    assert (big.num_encoder_layers, big.num_decoder_layers, big.norm, big.vocab_size) == (6, 6, "post", 37_000)
    assert RECIPES["paper-base"]["average_last"] == 5
    assert RECIPES["paper-big"]["average_last"] == 20  # section 6.1
    assert RECIPES["paper-big"]["keep_checkpoints"] >= 20
    assert RECIPES["paper-big"]["max_steps"] == 300_000


TABLE_3_WIDTHS = {
    # As printed: h, d_k, d_v.
    "table3-a-1-head": (1, 512, 512),
    "table3-a-4-heads": (4, 128, 128),
    "table3-a-16-heads": (16, 32, 32),
    "table3-a-32-heads": (32, 16, 16),
    "table3-b-dk-16": (8, 16, 64),
    "table3-b-dk-32": (8, 32, 64),
    "table3-c-width-256": (8, 32, 32),
    "table3-c-width-1024": (8, 128, 128),
    "paper-big": (16, 64, 64),
}


@pytest.mark.parametrize("name", TABLE3)
def test_rows_of_table_3_have_the_printed_heads(name):
    config = PRESETS[name]()
    assert (config.num_heads, config.key_dim, config.value_dim) == TABLE_3_WIDTHS.get(name, (8, 64, 64))


TABLE_3_CHANGES = {
    "table3-a-1-head": {"model": {"num_heads": 1}},
    "table3-a-4-heads": {"model": {"num_heads": 4}},
    "table3-a-16-heads": {"model": {"num_heads": 16}},
    "table3-a-32-heads": {"model": {"num_heads": 32}},
    "table3-b-dk-16": {"model": {"d_k": 16}},
    "table3-b-dk-32": {"model": {"d_k": 32}},
    "table3-c-2-layers": {"model": {"num_encoder_layers": 2, "num_decoder_layers": 2}},
    "table3-c-4-layers": {"model": {"num_encoder_layers": 4, "num_decoder_layers": 4}},
    "table3-c-8-layers": {"model": {"num_encoder_layers": 8, "num_decoder_layers": 8}},
    "table3-c-width-256": {"model": {"d_model": 256}},
    "table3-c-width-1024": {"model": {"d_model": 1024}},
    "table3-c-ff-1024": {"model": {"d_ff": 1024}},
    "table3-c-ff-4096": {"model": {"d_ff": 4096}},
    "table3-d-dropout-0.0": {"model": {"dropout": 0.0}},
    "table3-d-dropout-0.2": {"model": {"dropout": 0.2}},
    "table3-d-smoothing-0.0": {"train": {"label_smoothing": 0.0}},
    "table3-d-smoothing-0.2": {"train": {"label_smoothing": 0.2}},
    "table3-e-learned": {"model": {"positions": "learned"}},
}


@pytest.mark.parametrize("name", [name for name in TABLE3 if name.startswith("table3-")])
def test_a_row_of_table_3_changes_what_it_names_and_nothing_else(name):
    run = {"preset": name, "train": {"average_last": 1, "max_steps": 100_000}}
    expected = merge(recipe("paper-base"), run, TABLE_3_CHANGES[name])
    assert Config.from_dict(recipe(name)) == Config.from_dict(expected)


def test_an_unknown_row_of_table_3_is_refused():
    with pytest.raises(ConfigError, match="no row 'table3-b-dk-17' of Table 3; did you mean 'table3-b-dk-16'"):
        table3_row("table3-b-dk-17")


def test_rows_d_train_with_the_smoothing_they_name():
    for name, smoothing in (("table3-d-smoothing-0.0", 0.0), ("table3-d-smoothing-0.2", 0.2), ("paper-base", 0.1)):
        assert Config.from_dict(recipe(name)).train.label_smoothing == smoothing


@pytest.mark.parametrize(("name", "shape"), [("bert-base", (12, 768, 12, 3072)), ("bert-large", (24, 1024, 16, 4096))])
def test_bert_presets_are_encoders_of_the_published_shape(name, shape):
    config = PRESETS[name]()
    assert (config.num_encoder_layers, config.d_model, config.num_heads, config.d_ff) == shape
    assert (config.num_decoder_layers, config.activation, config.vocab_size, config.key_dim) == (0, "gelu", 30_522, 64)


@pytest.mark.parametrize("name", ENCODERS)
def test_recipe_rejects_encoder_only_presets(name):
    with pytest.raises(ConfigError) as caught:
        recipe(name)
    assert str(caught.value) == (
        f"preset {name!r} is an encoder without a decoder, so it cannot learn to translate; build it in Python: "
        f"clearhead.Transformer(clearhead.config.presets.{ENCODERS[name].__name__}())"
    )


def test_an_average_never_asks_for_more_checkpoints_than_are_kept():
    for name in RECIPES:
        train = Config.from_dict(merge({"train": {"max_steps": 7}}, recipe(name))).train
        assert train.average_last <= train.keep_checkpoints, name


def test_unknown_presets_are_refused_with_the_nearest_name():
    with pytest.raises(ConfigError) as caught:
        recipe("paper_base")
    assert str(caught.value) == "unknown preset 'paper_base'; did you mean 'paper-base'?"
    with pytest.raises(ConfigError) as caught:
        recipe("")
    assert str(caught.value).startswith("unknown preset ''; known names: fast, paper-base, ")


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


def test_the_fast_preset_has_its_layers_where_they_run_once():
    tiny, fast = PRESETS["tiny"](), PRESETS["fast"]()
    assert (fast.num_encoder_layers, fast.num_decoder_layers) == (6, 1)
    layers = {"num_encoder_layers": 4, "num_decoder_layers": 4}
    assert fast.model_copy(update=layers) == tiny
