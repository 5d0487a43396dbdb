"""Corrections as training text: beside the text that the model knows, without the translations they correct."""

from __future__ import annotations

from shutil import copytree

import pytest

from clearhead.config import Config
from clearhead.data.prepare import open_prepared
from clearhead.errors import ConfigError, DataError
from clearhead.training.run import train_from_values
from clearhead.translation.memory_file import write_memory
from small_runs import assert_same_weights, numbers, settings_from, write_tsv

NEW = [(f"neu {number} Wort", f"new {number} word") for number in range(30)]
CORRECTED = [(source, f"corrected {place}") for place, (source, _) in enumerate(numbers()[:9])]


@pytest.fixture
def corrected(tmp_path, finished_run, settle):
    """Return a function from changes to a run with corrections, before its first step or as another one starts it."""
    write_memory(str(tmp_path / "m.sqlite"), [(*pair, None) for pair in [*NEW, *CORRECTED]], ("de", "en"))

    def run(*changes, start=settle):
        data = {"pairs": [], "corrections": [str(tmp_path / "m.sqlite")], "valid_size": 3, "augment": False}
        return start(settings_from(finished_run, tmp_path, {"data": data, "train": {"seed": 3}}, *changes))

    return run


def test_corrections_are_learned_beside_the_text_of_the_models_run(corrected, tmp_path, finished_run):
    run = corrected()
    data = open_prepared(run / "data")
    assert data.report["roles"]["corrections"] == [str(tmp_path / "m.sqlite")]
    assert data.report["roles"]["general_pairs"] == [str(finished_run / "data" / "train.arrow")]
    assert Config.load(run / "config.toml").data.pairs == ()
    assert len(data.valid) == 3
    learned = {data.train.target(row) for row in range(data.report["rounds"]["num_new"])}
    held_out = {data.valid.target(row) for row in range(3)}
    assert held_out.isdisjoint(learned)
    assert held_out | learned == {target for _, target in [*NEW, *CORRECTED]}
    rounds = data.report["rounds"]
    assert data.report["general"]["kept"] == rounds["epochs"] * rounds["num_new"]  # half of each epoch


@pytest.mark.parametrize(("limits", "passes"), [({"max_minutes": 90.0}, 10), ({}, 10), ({"max_steps": 7}, None)])
def test_a_few_corrections_are_learned_in_ten_passes(corrected, limits, passes):
    run = corrected({"train": {"max_steps": None, **limits}})
    config = Config.load(run / "config.toml")
    per_epoch = open_prepared(run / "data").order(config.train).batches_per_epoch
    assert config.train.max_steps == (7 if passes is None else passes * per_epoch)


def test_text_that_is_named_takes_the_place_of_that_of_the_run(corrected, tmp_path):
    other = write_tsv(
        tmp_path / "other.tsv", [(f"anderer {number} Satz", f"other {number} text") for number in range(50)]
    )
    roles = open_prepared(corrected({"data": {"pairs": [str(other)]}}) / "data").report["roles"]
    assert (roles["pairs"], roles["general_pairs"]) == ([str(other)], [])


def test_corrections_of_a_model_without_its_text_are_learned_alone_and_this_is_said(
    corrected, tmp_path, finished_run, capsys
):
    copytree(finished_run / "model", tmp_path / "alone")
    run = corrected({"from_model": str(tmp_path / "alone")}, start=lambda values: train_from_values(values).run)
    assert open_prepared(run / "data").general is None
    assert "is not known, so it learns the corrections alone" in capsys.readouterr().err


def test_general_pairs_with_a_corrected_source_are_left_out(corrected, tmp_path):
    """The model must not learn what was corrected again, though the pair differs from the correction."""
    old = write_tsv(tmp_path / "old.tsv", numbers())
    data = open_prepared(corrected({"data": {"general_pairs": [str(old)], "general_share": 0.9}}) / "data")
    pairs = {(data.train.source(row), data.train.target(row)) for row in range(len(data.train))}
    kept = {*numbers()} & pairs
    assert len(kept) > 100
    assert not kept & {*numbers()[:9]}


def test_a_run_with_corrections_resumes_exactly_by_its_own_command(corrected, tmp_path):
    def run(name, **train):
        changes = {"out": str(tmp_path / name), "train": {"schedule": "constant", "checkpoint_every": 2, **train}}
        return corrected(changes, start=lambda values: train_from_values(values).run)

    run("parts", max_steps=2)
    last, expected = (run(name) / "checkpoints" / "step-00000004" for name in ("parts", "whole"))
    assert_same_weights(last, expected)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"from_model": None}, ConfigError, "data.corrections fine-tunes a trained model, so from_model must name one"),
        (
            {"data": {"pairs": ["a.tsv"], "weights": [2]}},
            ConfigError,
            "data.weights applies to training text, but beside data.corrections all other text is general",
        ),
        (
            {"data": {"pairs": ["a.tsv"], "temperature": 2.0}},
            ConfigError,
            "data.temperature applies to training text, but beside data.corrections all other text is general",
        ),
        ({"data": {"corrections": ["{}/none.tsv"]}}, DataError, "there is no such file: .*none.tsv"),
        ({"data": {"corrections": ["{}/empty.tsv"]}}, DataError, "empty corpus: there is no line in .*empty.tsv"),
        (
            {"data": {"corrections": ["{}/few.tsv"]}},
            DataError,
            "has 2 usable pairs, and 10 are needed to hold some out",
        ),
        ({"data": {"corrections": ["{}/damaged.sqlite"]}}, DataError, "damaged.sqlite is damaged"),
        ({"data": {"to_lang": "fr"}}, ConfigError, "m.sqlite is a memory for de to en, and fr is asked for"),
    ],
)
def test_corrections_that_cannot_be_used_are_refused(corrected, tmp_path, changes, error, message):
    (tmp_path / "empty.tsv").touch()
    write_tsv(tmp_path / "few.tsv", NEW[:2])
    (tmp_path / "damaged.sqlite").write_bytes((tmp_path / "m.sqlite").read_bytes()[:3_000])
    for name in changes.get("data", {}).get("corrections", []):
        changes = {"data": {"corrections": [name.format(tmp_path)]}}
    with pytest.raises(error, match=message):
        corrected(changes, start=train_from_values)
