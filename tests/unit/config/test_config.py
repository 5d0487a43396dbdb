"""Settings: one default each, impossible values refused with the exact place and a value that works."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

import clearhead
from clearhead.config import (
    Config,
    DataConfig,
    DecodeChanges,
    DecodeConfig,
    ModelConfig,
    Sampling,
    TokenizerConfig,
    TrainConfig,
)
from clearhead.errors import ConfigError

SECTIONS = (Config, DataConfig, TokenizerConfig, ModelConfig, TrainConfig, DecodeConfig)


def refusal(values, **kwargs):
    with pytest.raises(ConfigError) as caught:
        Config.from_dict(values, **kwargs)
    return str(caught.value)


@pytest.fixture(scope="module")
def attributes_read():
    """The names behind a dot in any file of the package."""
    files = Path(clearhead.__file__).parent.rglob("*.py")
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_bytes())))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_defaults_are_the_paper():
    config = Config()
    model, train, decode = config.model, config.train, config.decode
    assert (model.d_model, model.d_ff, model.num_heads, model.key_dim) == (512, 2048, 8, 64)
    assert (model.num_encoder_layers, model.num_decoder_layers, model.dropout, model.norm) == (6, 6, 0.1, "post")
    assert (train.optimizer, train.adam_betas, train.adam_eps) == ("adam", (0.9, 0.98), 1e-9)
    assert (train.schedule, train.warmup_steps, train.label_smoothing, train.batch_tokens) == (
        "noam",
        4000,
        0.1,
        25_000,
    )
    assert (decode.beam_size, decode.length_penalty, decode.extra_length) == (4, 0.6, 50)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_described(section):
    plain = {"data", "tokenizer", "model", "train", "decode"} if section is Config else set()
    assert set(section.model_fields) - section.descriptions().keys() == plain
    assert all(section.descriptions().values())


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_read_somewhere(section, attributes_read):
    assert not section.model_fields.keys() - attributes_read


def test_decode_changes_have_the_names_and_types_of_the_settings_of_decode():
    types = get_type_hints(DecodeConfig)
    assert get_type_hints(DecodeChanges) == {name: types[name] | None for name in DecodeConfig.model_fields}


@pytest.mark.parametrize("section", SECTIONS)
def test_settings_cannot_be_changed_in_place(section):
    with pytest.raises(ValidationError, match="frozen"):
        setattr(section(), next(iter(section.model_fields)), None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trian": {}}, "unknown setting 'trian'; did you mean 'train'?"),
        ({"train": {"warmup_step": 3}}, "unknown setting 'train.warmup_step'; did you mean 'train.warmup_steps'?"),
        ({"model": {"dmodel": 512}}, "unknown setting 'model.dmodel'; did you mean 'model.d_model'?"),
        (
            {"tokenizer": {"xyz": 1}},
            "unknown setting 'tokenizer.xyz'; known names: kind, language_tags, placeholders, split_digits, vocab_size",
        ),
        ({"train": {"max_steps": 0}}, "train.max_steps = 0: Input should be greater than 0"),
        ({"train": {"max_steps": True}}, "train.max_steps = True: Input should be a number"),
        ({"train": {"seed": -1}}, "train.seed = -1: Input should be greater than or equal to 0"),
        ({"train": {"seed": 2**32}}, "train.seed = 4294967296: Input should be less than 4294967296"),
        ({"train": {"label_smoothing": 1.0}}, "train.label_smoothing = 1.0: Input should be less than 1"),
        ({"train": {"max_minutes": float("inf")}}, "train.max_minutes = inf: Input should be a finite number"),
        ({"train": {"max_memory": "6,5GB"}}, "train.max_memory = '6,5GB': must be a number and a unit, such as 6GB"),
        ({"train": {"max_memory": "6"}}, "train.max_memory = '6': must be a number and a unit, such as 6GB"),
        (
            {"train": {"max_memory": "6GB now"}},
            "train.max_memory = '6GB now': must be a number and a unit, such as 6GB",
        ),
        ({"train": {"max_memory": "-6GB"}}, "train.max_memory = '-6GB': must be a number and a unit, such as 6GB"),
        ({"train": {"max_memory": "6XB"}}, "train.max_memory = '6XB': must be a number and a unit, such as 6GB"),
        ({"train": {"max_memory": 0}}, "train.max_memory = 0: Input should be greater than or equal to 10000000"),
        ({"train": {"max_memory": True}}, "train.max_memory = True: must be a number and a unit, such as 6GB"),
        (
            {"train": {"max_memory": "9kB"}},
            "train.max_memory = '9kB': Input should be greater than or equal to 10000000",
        ),
        ({"train": {"learning_rate": 0}}, "train.learning_rate = 0: Input should be greater than 0"),
        ({"train": {"adam_betas": [0.9, 1.5]}}, "train.adam_betas.1 = 1.5: Input should be less than 1"),
        (
            {"train": {"schedule": "lin"}},
            "train.schedule = 'lin': Input should be 'noam', 'linear', 'cosine' or 'constant'",
        ),
        ({"model": {"norm": "both"}}, "model.norm = 'both': Input should be 'post' or 'pre'"),
        ({"model": {"dropout": -0.1}}, "model.dropout = -0.1: Input should be greater than or equal to 0"),
        ({"decode": {"beam_size": 0}}, "decode.beam_size = 0: Input should be greater than 0"),
        (
            {"train": {"seed": 1.5}},
            "train.seed = 1.5: Input should be a valid integer, got a number with a fractional part",
        ),
        ({"data": {"source": ["a", 3]}}, "data.source.1 = 3: Input should be a valid string"),
        (
            {"data": {"from_lang": "englich"}},
            "data.from_lang = 'englich' must be the code of a language, such as de, yue or pt-BR",
        ),
    ],
)
def test_unknown_settings_and_impossible_values_are_refused_with_their_place_and_rule(values, message):
    assert refusal(values) == f"configuration: {message}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model": {"d_model": 6, "num_heads": 8}},
            "model.d_model (6) must be a multiple of model.num_heads (8); nearest that fit: 8",
        ),
        (
            {"model": {"pad_id": 2}},
            "model.pad_id and model.eos_id must differ, both are 2",
        ),
        (
            {"model": {"vocab_size": 2}},
            "model.pad_id, bos_id, eos_id (0, 1, 2) must lie below model.vocab_size (2)",
        ),
        (
            {"model": {"positions": "learned", "first_position": 2}},
            "model.first_position (2) is for sinusoids; with model.positions = 'learned' it must be 0",
        ),
        (
            {"model": {"num_encoder_layers": 0, "source_vocab_size": 41, "tying": "decoder"}},
            "a decoder alone (model.num_encoder_layers = 0) has no source, so there can be no model.source_vocab_size "
            "and no model.num_segments",
        ),
        (
            {"model": {"num_encoder_layers": 0, "num_segments": 2}},
            "has no source, so there can be no model.source_vocab_size and no model.num_segments",
        ),
        (
            {"train": {"schedule": "cosine"}},
            "train.schedule = 'cosine' falls to zero at the end of training, so it needs train.max_steps or "
            "train.max_minutes; schedules without an end: 'noam', 'constant'",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values, message):
    assert refusal(values).endswith(message)


@pytest.mark.parametrize(("pad", "start", "end"), [(58_100, 58_100, 0), (1, 2, 2), (0, 50_256, 50_256), (0, 0, 1)])
def test_a_target_may_start_with_padding_or_end_as_in_published_models(pad, start, end):
    config = ModelConfig(vocab_size=58_101, pad_id=pad, bos_id=start, eos_id=end)
    assert (config.pad_id, config.bos_id, config.eos_id) == (pad, start, end)


def test_an_encoder_alone_has_a_source_vocabulary_and_nothing_to_tie():
    assert ModelConfig(num_decoder_layers=0, source_vocab_size=41).source_vocab_size == 41


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 5, 8])
def test_every_width_that_an_error_suggests_works(num_heads):
    for d_model in range(1, 23):
        try:
            ModelConfig(d_model=d_model, num_heads=num_heads)
        except ConfigError as error:
            suggested = [int(number) for number in str(error).rpartition("nearest that fit: ")[2].split(", ")]
            assert suggested
            for width in suggested:
                assert ModelConfig(d_model=width, num_heads=num_heads).d_model == width


def test_a_schedule_that_ends_takes_either_end():
    for end in ({"max_steps": 7}, {"max_minutes": 0.5}):
        for schedule in ("linear", "cosine"):
            assert Config.from_dict({"train": {"schedule": schedule, **end}}).train.schedule == schedule


def test_all_problems_are_reported_at_once_with_their_origin():
    values = {"train": {"sead": 1, "patience": 0}, "decode": {"beam_size": "many"}, "modle": {}}
    message = refusal(values, origin="run.toml")
    assert message.startswith("run.toml: ")
    for part in (
        "unknown setting 'train.sead'; did you mean 'train.seed'?",
        "train.patience = 0: Input should be greater than 0",
        "decode.beam_size = 'many': Input should be a valid integer",
        "unknown setting 'modle'; did you mean 'model'?",
    ):
        assert part in message


def test_contradictions_are_reported_with_the_other_problems():
    message = refusal({"model": {"d_model": 10, "num_heads": 4}, "train": {"sead": 1}}, origin="run.toml")
    assert message.startswith("run.toml: ")
    assert "model.d_model (10) must be a multiple of model.num_heads (4)" in message
    assert "unknown setting 'train.sead'; did you mean 'train.seed'?" in message


def test_load_reads_toml_and_names_the_file_in_errors(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('preset = "tiny"\n[train]\nbatch_tokens = 4_096\n[data]\nsource = ["a.de", "b.de"]\n')
    config = Config.load(path)
    assert (config.preset, config.train.batch_tokens, config.data.source) == ("tiny", 4096, ("a.de", "b.de"))

    path.write_text("[train]\nbatch_token = 4_096\n")
    with pytest.raises(ConfigError) as caught:
        Config.load(str(path))
    assert str(caught.value) == f"{path}: unknown setting 'train.batch_token'; did you mean 'train.batch_tokens'?"


def test_load_refuses_what_it_cannot_read(tmp_path):
    with pytest.raises(ConfigError) as caught:
        Config.load(tmp_path / "absent.toml")
    assert str(caught.value) == f"cannot read the configuration {tmp_path / 'absent.toml'}: No such file or directory"
    with pytest.raises(ConfigError, match="Is a directory"):
        Config.load(tmp_path)
    path = tmp_path / "config.toml"
    for content in (b"[train\n", b"a = \n", b"\xff\xfe = 1\n"):
        path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            Config.load(path)
        assert str(caught.value).startswith(f"{path} is not valid TOML: ")


def test_the_default_configuration_survives_toml():
    config = Config()
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


names = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=3).map(tuple)
some = st.integers(1, 10**9)
rates = st.floats(0, 1, exclude_max=True)


@settings(max_examples=40)
@given(
    data=st.fixed_dictionaries({}, optional={"source": names, "exclude": names, "max_ratio": st.floats(1e-300, 1e9)}),
    train=st.fixed_dictionaries(
        {"max_steps": some, "schedule": st.sampled_from(["noam", "linear", "cosine", "constant"])},
        optional={
            "adam_betas": st.tuples(rates, rates),
            "learning_rate": st.floats(1e-300, 1.0),
            "compile": st.booleans(),
        },
    ),
    model=st.fixed_dictionaries({}, optional={"dropout": rates, "vocab_size": st.integers(3, 10**6)}),
    top=st.fixed_dictionaries({}, optional={"preset": st.sampled_from(["tiny", "small"])}),
)
def test_every_configuration_survives_toml(data, train, model, top):
    config = Config.from_dict({**top, "data": data, "train": train, "model": model})
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


# Bounds


def numbers(section: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from ((f"{name}.{inner}", found) for inner, found in numbers(field.annotation))
        elif any(number in str(field.annotation) for number in ("int", "float")):
            yield name, field


@pytest.mark.parametrize("section", [Config, Sampling])
def test_every_number_has_an_end_on_both_sides(section):
    found = [name for name, _ in numbers(section)]
    assert len(found) > (40 if section is Config else 3)
    for name in found:
        # Any temperature can be computed with, down to the most probable token and up to all tokens alike.
        for value in (-1, float("nan"), float("inf"), *([] if name == "temperature" else [10**15])):
            inner: Any = value
            for key in reversed(name.split(".")):
                inner = {key: [inner, 0.5] if key == "adam_betas" else inner}
            with pytest.raises(ConfigError, match=name.rpartition(".")[2]):
                section(**inner)


@pytest.mark.parametrize(
    "values",
    [3, None, ["train"], {3: {}}, {b"train": {}}, {"train": {b"seed": 3}}, {"train": {3: 4}}, {"preset": []}]
    + [{"decode": {"beam_size": value}} for value in ([], {}, b"x", object(), 10**5_000, {1: {}})]
    + [{"decode": {"precision": value}} for value in ([], {}, b"fp32", 3)]
    + [{"decode": {"target_lang": value}} for value in ([], {}, 3)],
    ids=lambda values: f"{values!s:.40}" if not isinstance(values, dict) else None,
)
def test_settings_of_other_types_are_one_clear_error(values):
    with pytest.raises(ConfigError) as caught:
        Config.from_dict(values)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_value_nested_too_deep_is_one_clear_error(tmp_path):
    deep: Any = {}
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ConfigError, match=r"decode.beam_size = a value of type list"):
        Config.from_dict({"decode": {"beam_size": deep}})
    path = tmp_path / "deep.toml"
    path.write_text("x = " + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"deep.toml is not valid TOML: it is nested too deep"):
        Config.load(path)


@pytest.mark.parametrize("path", [None, 0, b"x.toml", ["x.toml"]])
def test_a_path_of_another_type_is_one_clear_error(path):
    with pytest.raises(ConfigError, match="the path of a configuration must be text, not "):
        Config.load(path)


def test_config_load_reads_a_pipe(tmp_path):
    read, write = os.pipe()
    os.write(write, b"[train]\nseed = 7\n")
    os.close(write)
    assert Config.load(f"/dev/fd/{read}").train.seed == 7
    os.close(read)


@pytest.mark.parametrize("given", ["", "3,", "3,x", "-1", "1.", "nan", "1e3"])
def test_weights_that_are_no_numbers_are_refused(given):
    with pytest.raises(
        ConfigError, match=r"weights .*: give a number above 0 for each file of pairs, such as 3,1 or 0\.5,1"
    ):
        Config.from_dict({"data": {"pairs": ["a.tsv"], "weights": given}})


def test_weights_are_read_as_they_are_typed():
    assert Config.from_dict({"data": {"pairs": ["a.tsv", "b.tsv"], "weights": "3, 1"}}).data.weights == (3, 1)
    config = Config.from_dict({"data": {"pairs": ["a.tsv", "b.tsv"], "weights": "0.5, 2.0"}})
    assert config.data.weights == (0.5, 2)
    assert "0.5,\n    2,\n" in config.to_toml()
    assert not config.data.has_equal_epochs


@pytest.mark.parametrize("given", [{"weights": [0.0001]}, {"weights": [float("nan")]}, {"weights": [1e4]}])
def test_impossible_mixtures_are_refused(given):
    with pytest.raises(ConfigError, match=r"data\.weights"):
        Config.from_dict({"data": {"pairs": ["a.tsv"], **given}})
    for temperature in (0.5, 0, -1, 101, float("inf"), float("nan"), "hot"):
        with pytest.raises(ConfigError, match=r"data\.temperature"):
            Config.from_dict({"data": {"temperature": temperature}})
    for alone in ({"pairs": ["a.tsv"]}, {"source": ["a.de"], "target": ["a.en"]}):
        with pytest.raises(
            ConfigError,
            match=r"data\.temperature mixes several files or .* is only one; .* a file for each, such as grep",
        ):
            Config.from_dict({"data": {**alone, "temperature": 2.0}})
    Config.from_dict({"data": {"pairs": ["b.tsv"], "source": ["a.de"], "target": ["a.en"], "temperature": 2.0}})


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ("2,1", (2, 1)),
        ("english, german", ("english", "german")),
        ('3, "sentence, in German"', (3, "sentence, in German")),
        ([2, 1], (2, 1)),
        (["2", "1"], ("2", "1")),  # names: in TOML a number has no quotation marks
        (["en", 2], ("en", 2)),
        (None, None),
    ],
)
def test_columns_are_numbers_or_names(given, columns):
    config = Config.from_dict({"data": {"columns": given}})
    assert config.data.columns == columns
    assert Config.from_dict(tomllib.loads(config.to_toml())).data.columns == columns


@pytest.mark.parametrize(
    "given", ["1,1", "1", "1,2,3", "", ",", "0,1", "a,", [1], [1, -2], [1, 2.5], [True, 2], 7, {}, [1, 10**9], "a\rb,c"]
)
def test_columns_that_are_not_two_are_refused(given):
    with pytest.raises(ConfigError, match=r"columns .*: name two different ones, source and target, .* such as 2,1"):
        Config.from_dict({"data": {"columns": given}})


def test_every_file_of_pairs_has_a_weight_or_none_has():
    data = {"pairs": ["a.tsv", "b.tsv"], "weights": ["3", "1"]}
    assert Config.from_dict({"data": data}).data.weights == (3, 1)
    with pytest.raises(ConfigError, match=r"data\.weights has 1 numbers, and data\.pairs names 2; give one for each"):
        Config.from_dict({"data": {**data, "weights": [3]}})
    with pytest.raises(ConfigError, match=r"data\.weights"):
        Config.from_dict({"data": {**data, "weights": [0, 1]}})


@pytest.mark.parametrize(
    ("text", "size"), [("6GB", 6 * 10**9), ("1.5 gib", 3 * 2**29), ("80MB", 80_000_000), (10**8, 10**8)]
)
def test_a_size_is_given_in_units_and_saved_in_bytes(text, size):
    config = Config.from_dict({"train": {"max_memory": text}})
    assert config.train.max_memory == size
    assert f"\nmax_memory = {size}\n" in config.to_toml()
