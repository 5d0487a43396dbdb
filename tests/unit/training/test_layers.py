"""From the user's settings to complete ones, and which changes a run accepts."""

from __future__ import annotations

import pytest

from clearhead.config import Config
from clearhead.config.nested import flat
from clearhead.config.presets import PRESETS, RECIPES
from clearhead.errors import ConfigError
from clearhead.training.layers import LAYERS, Layers, completed, origins
from clearhead.training.resume import gather
from clearhead.training.schedule import learning_rate

TOKENIZER = {"vocab_size": 997, "pad_id": 0, "bos_id": 1, "eos_id": 2}


def merged(values, preset="tiny", tokenizer=TOKENIZER) -> Config:
    return Layers().with_("file", values).with_preset(preset).with_("fixed", {"model": tokenizer}).config


def complete(values=None, preset="tiny", batches_per_epoch=101) -> Config:
    return completed(merged(values or {}, preset), batches_per_epoch)


def draft(values) -> Config:
    return gather(Layers().with_("file", {"out": "run", **values}))[0].config


@pytest.mark.parametrize("preset", RECIPES)
def test_a_preset_brings_its_model_and_its_recipe(preset):
    config = complete(preset=preset)
    assert config.model == PRESETS[preset](vocab_size=997)
    assert config.preset == preset
    for name, value in RECIPES[preset].items():
        assert getattr(config.train, name) == value


def test_the_users_settings_win_over_the_preset():
    values = {"model": {"d_ff": 77}, "train": {"batch_tokens": 13, "patience": 3}, "preset": "small"}
    config = complete(values)
    assert (config.model.d_ff, config.train.batch_tokens, config.train.patience) == (77, 13, 3)
    assert config.model.d_model == PRESETS["tiny"]().d_model
    assert config.preset == "tiny"  # what was chosen for the run


def test_the_tokenizer_decides_the_rows_of_the_embedding():
    assert complete({"model": {"vocab_size": 5}}).model.vocab_size == 997


@pytest.mark.parametrize(
    ("train", "max_steps"),
    [
        ({}, 30 * 101),
        ({"max_steps": 7}, 7),
        ({"max_minutes": 3.0}, None),
        ({"max_steps": 7, "max_minutes": 3.0}, 7),
        ({"max_steps": None}, 30 * 101),
    ],
)
def test_without_an_end_a_run_has_thirty_epochs(train, max_steps):
    assert complete({"train": train}).train.max_steps == max_steps


def test_max_steps_defaults_to_at_most_100_000():
    assert complete(batches_per_epoch=1_000_003).train.max_steps == 100_000


def test_draft_rejects_invalid_settings():
    with pytest.raises(ConfigError, match=r"d_model .* must be a multiple of model.num_heads \(7\)"):
        draft({"model": {"num_heads": 7}})
    with pytest.raises(ConfigError, match=r"unknown setting 'train.warmup_step'; did you mean 'train.warmup_steps'"):
        draft({"train": {"warmup_step": 3}})
    with pytest.raises(ConfigError, match="unknown preset 'tinny'; did you mean 'tiny'"):
        draft({"preset": "tinny"})


def test_one_message_names_every_problem():
    values = {"golden": "g\udcff", "model": {"pad_id": 5, "d_ff": 0}, "train": {"warmup_step": 3}}
    with pytest.raises(ConfigError) as caught:
        draft(values)
    assert [line.split(" = ")[0] for line in str(caught.value).splitlines()] == [
        "golden",
        "model.pad_id",
        "settings: model.d_ff",
    ]
    assert "unknown setting 'train.warmup_step'" in str(caught.value)
    with pytest.raises(ConfigError, match=r"(?s)decode.target_lang .*\n.*num_segments must be 0"):
        draft({"decode": {"target_lang": "de"}, "model": {"num_segments": 2}})
    with pytest.raises(ConfigError, match=r"(?s)preset = 3.*\ntrain = 4"):
        draft({"train": 4, "preset": 3})
    with pytest.raises(ConfigError, match=r"train = 4.*\nunknown setting 'data\.swap': leave out the quotes"):
        draft({"train": 4, "data.swap": True})  # a key in quotes


def test_each_layer_overrides_those_below():
    layers = Layers()
    for number, name in reversed([*enumerate(LAYERS[1:], start=1)]):  # in whatever order they come
        layers = layers.with_(name, {"train": {"seed": number}}).with_preset("small")
        assert layers.config.train.seed == len(LAYERS) - 1
    for number, name in enumerate(LAYERS[1:], start=1):
        layers = Layers().with_("plan", {"train.seed": 0}).with_(name, {"train": {"seed": number}}).with_preset("small")
        assert (layers.config.train.seed, layers.origin("train.seed")) == (number, name)
    assert layers.origin("train.batch_tokens") == "preset small"
    assert layers.origin("train.patience") == "default"


def test_origins_of_a_saved_run():
    plan = {"model.dropout": 0.3, "train.optimizer": "muon", "train.planned": ["model.dropout", "train.optimizer"]}
    layers = Layers().with_preset("tiny").with_("--set", {"train.seed": 7}).with_("plan", plan)
    saved = completed(layers.with_("fixed", {"model": TOKENIZER}).config, batches_per_epoch=101)
    found = origins(saved)
    assert found.keys() == flat(saved.model_dump()).keys()
    expected = {"model.dropout": "plan", "train.optimizer": "plan", "train.seed": "saved", "train.max_steps": "saved"}
    expected |= {"model.d_model": "preset tiny", "model.vocab_size": "fixed", "train.patience": "default"}
    assert expected.items() <= found.items()
    started = origins(saved.model_copy(update={"from_model": "runs/first", "from_sha256": "0" * 64}))
    assert {started[name] for name in ("model.d_model", "tokenizer.kind", "from_sha256")} == {"fixed"}
    assert (started["model.dropout"], started["model.attention_dropout"]) == ("plan", "preset tiny")
    assert origins(saved.model_copy(update={"preset": None}))["model.d_model"] == "saved"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "tiny"}, r"model = 'tiny': this is a section, .*; did you mean preset = 'tiny'"),
        ({"train": 3}, r"train = 3: this is a section, set train.KEY = VALUE"),
        ({"preset": {"name": "tiny"}}, r"preset = .*: must be text in quotes"),
        ({"decode": {"shortlist": True}}, "decode.shortlist cannot be set for training"),
        ({"decode": {"target_lang": "de"}}, r"decode.target_lang = 'de' is not in tokenizer.language_tags = \[\]"),
    ],
)
def test_draft_rejects_misshapen_and_contradicting_settings(values, message):
    with pytest.raises(ConfigError, match=message):
        draft(values)


def test_settings_that_fit_some_preset_pass_while_the_preset_is_open():
    heads = PRESETS["small"]().d_model
    assert heads > PRESETS["tiny"]().d_model
    assert draft({"model": {"num_heads": heads}}).model.num_heads == heads
    with pytest.raises(ConfigError, match=r"must be a multiple of model.num_heads"):
        draft({"model": {"num_heads": heads}, "preset": "tiny"})


def test_draft_has_final_data_tokenizer_and_seed():
    values = {"data": {"pairs": ["a.tsv"], "max_length": 77}, "tokenizer": {"kind": "unigram"}, "train": {"seed": 5}}
    early, late = draft(values), merged(values, "small")
    assert (early.data, early.tokenizer, early.train.seed) == (late.data, late.tokenizer, late.train.seed)


BASE = {"data": {"pairs": ["a.tsv"]}, "train": {"max_steps": 40}, "out": "run"}


UNSET_MEANS_NONE = {
    "from_model",
    "from_sha256",
    "out",  # named by every run
    "golden",  # made of the vocabulary
    "data.columns",
    "data.from_lang",
    "data.to_lang",
    "decode.memory_weight",  # by the similarity of the pairs
    "data.hold_out",  # chosen for the text when it is prepared
    "model.source_vocab_size",
    "model.d_k",
    "model.d_v",
    "model.final_norm",
    "train.max_minutes",
    "train.max_memory",
    "train.track",
    "train.guided_alignment_layer",
    "decode.target_lang",
    "decode.source_lang",
}
"""Settings for which nothing is chosen when a run starts: their docstrings say what it means that they are not set."""


@pytest.mark.parametrize(
    ("data", "decode", "language"),
    [
        ({"source": ["a/train.de.gz", "more.de"], "target": ["x", "y"]}, {}, "de"),
        ({"source": ["train.de"], "target": ["train.en"]}, {"source_lang": "nl"}, "nl"),
        ({"source": ["train.de", "train.nl"], "target": ["x", "y"]}, {}, None),
        ({"source": ["train.de"], "target": ["train.en"], "swap": True}, {}, "en"),
        ({"source": ["train.txt"], "target": ["train.en"]}, {}, None),
        ({"source": ["train.de"], "target": ["train.en"], "pairs": ["p.tsv"]}, {}, None),
        ({"pairs": ["p.de.tsv"]}, {}, None),
        ({"pairs": ["p.tmx"], "from_lang": "de-AT", "to_lang": "en"}, {}, "de-AT"),
        ({"pairs": ["p.tmx"], "from_lang": "de-AT", "to_lang": "en", "swap": True}, {}, "en"),
        ({"pairs": ["p.tmx"], "from_lang": "de"}, {"source_lang": "nl"}, "nl"),
    ],
)
def test_source_lang_comes_from_settings_or_source_file_names(data, decode, language):
    config = completed(complete({"data": data, "decode": decode}), batches_per_epoch=7)
    assert config.decode.source_lang == language
    assert completed(config, batches_per_epoch=7) == config


def test_completed_config_leaves_only_unset_means_none_unset():
    config = complete(preset="paper-base")
    nested = config.model_dump()
    unset = {name for name, value in nested.items() if value is None}
    sections = {name: values for name, values in nested.items() if isinstance(values, dict)}
    unset |= {f"{name}.{key}" for name, values in sections.items() for key, value in values.items() if value is None}
    assert unset == UNSET_MEANS_NONE
    assert config.tokenizer.vocab_size == 997
    assert config.train.learning_rate == pytest.approx((512 * 4_000) ** -0.5)
    assert completed(config, batches_per_epoch=7) == config


@pytest.mark.parametrize("schedule", ["noam", "constant"])
def test_a_resolved_peak_rate_gives_every_step_the_same_rate(schedule):
    config = merged({"train": {"schedule": schedule, "warmup_steps": 37}}, "paper-base")
    chosen = completed(config, batches_per_epoch=101)
    assert (config.train.learning_rate, config.train.max_steps) == (None, None)
    for step in (1, 5, 37, 38, 1_001):
        rates = {learning_rate(step, c.train, d_model=512, progress=0.5) for c in (config, chosen)}
        assert len(rates) == 1


@pytest.mark.parametrize("ids", [{"pad_id": 5}, {"bos_id": 0}, {"eos_id": 7}, {"eos_id": "x"}])
def test_special_ids_cannot_be_set_for_training(ids):
    with pytest.raises(ConfigError, match=rf"^model.{next(iter(ids))} = .* cannot be set for training: the tokenizer"):
        draft({"model": ids})


def test_draft_accepts_the_special_ids_of_a_resolved_configuration():
    assert draft({"model": {"pad_id": 0, "bos_id": 1, "eos_id": 2}}).model.eos_id == 2


def test_the_tokenizer_decides_the_special_ids():
    ids = {"pad_id": 11, "bos_id": 7, "eos_id": 5}
    model = merged({}, "tiny", {"vocab_size": 997, **ids}).model
    assert {name: getattr(model, name) for name in ids} == ids


@pytest.mark.parametrize("values", [{"model": ["tiny"]}, {"train": {}, "model": {3}}, {"preset": ["tiny"]}])
def test_sections_and_names_of_other_types_are_refused(values):
    with pytest.raises(ConfigError, match=r"this is a section|must be text in quotes"):
        draft(values)


@pytest.mark.parametrize("values", [{"out": "run\udcff"}, {"data": {"pairs": ["a.tsv", "b\udcff.tsv"]}}])
def test_names_that_the_saved_settings_cannot_hold_are_refused(values):
    with pytest.raises(ConfigError, match=r"it is not UTF-8, and config\.toml cannot hold it"):
        draft(values)


def test_a_vocabulary_that_the_tokenizer_would_overrule_is_refused():
    with pytest.raises(ConfigError, match=r"model\.vocab_size = 997 cannot .* set tokenizer\.vocab_size = 997$"):
        draft({"model": {"vocab_size": 997}})
    with pytest.raises(ConfigError, match=r"set tokenizer\.vocab_size = 997$"):
        draft({"model": {"vocab_size": 997}, "tokenizer": {"vocab_size": 1_009}})
    draft({"model": {"vocab_size": 997}, "tokenizer": {"vocab_size": 997}})
    draft(complete(BASE).model_dump())


def test_the_presets_of_the_paper_learn_from_text_as_it_is():
    assert not draft({"preset": "paper-base"}).data.augment
    assert not draft({"preset": "table3-b-dk-16"}).data.augment
    assert draft({"preset": "paper-big", "data": {"augment": True}}).data.augment
    assert draft({"preset": "tiny"}).data.augment
    assert draft({}).data.augment
