"""Which changes of its settings a run accepts when it resumes, and what it keeps."""

from __future__ import annotations

import pytest

from clearhead.config import Config
from clearhead.config.nested import merge
from clearhead.errors import CheckpointError, ConfigError
from clearhead.training.checkpoints import TrainingState
from clearhead.training.layers import Layers, completed
from clearhead.training.resume import allowed_changes, with_saved


def complete(values) -> Config:
    layers = Layers().with_("file", values).with_preset("tiny").with_("fixed", {"model": {"vocab_size": 997}})
    return completed(layers.config, batches_per_epoch=101)


BASE = {"data": {"pairs": ["a.tsv"]}, "train": {"max_steps": 40}, "out": "run"}


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"train": {"batch_tokens": 333}}, r"train.batch_tokens: \d+ -> 333"),
        ({"data": {"max_ratio": 3.0}}, "data.max_ratio: 6.0 -> 3.0"),
        ({"tokenizer": {"kind": "unigram"}}, "tokenizer.kind: 'bpe' -> 'unigram'"),
        ({"tokenizer": {"language_tags": ["de"]}}, r"tokenizer.language_tags: \[\] -> \['de'\]"),
        ({"model": {"d_ff": 77}}, r"model.d_ff: \d+ -> 77"),
        ({"train": {"seed": 7}}, "train.seed: 1 -> 7"),
        ({"train": {"precision": "bf16"}}, "train.precision: 'auto' -> 'bf16'"),
    ],
)
def test_a_change_that_makes_it_another_run_is_refused_and_shown(change, difference):
    with pytest.raises(CheckpointError, match=difference) as caught:
        allowed_changes(complete(BASE), complete(merge(BASE, change)), TrainingState())
    assert "--fresh" in str(caught.value)


def test_every_refused_change_is_listed():
    changed = merge(BASE, {"train": {"seed": 7, "max_steps": 60}, "tokenizer": {"kind": "unigram"}})
    with pytest.raises(CheckpointError) as caught:
        allowed_changes(complete(BASE), complete(changed), TrainingState())
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == ["tokenizer.kind", "train.seed"]


def test_allowed_changes_rejects_protect_numbers_without_placeholder_tokens():
    numbers = merge(BASE, {"decode": {"protect_numbers": True}})
    with pytest.raises(ConfigError, match=r"decode.protect_numbers needs .* and that of this run has none"):
        allowed_changes(complete(BASE), complete(numbers), TrainingState())


def test_changes_that_only_lengthen_or_observe_are_allowed_and_named():
    change = {
        "out": "elsewhere",
        "data": {"pairs": ["moved/a.tsv"]},
        "device": "cpu",
        "train": {"max_steps": 60, "max_minutes": 5.0, "patience": 3, "validate_every": 7, "keep_checkpoints": 2},
        "decode": {"beam_size": 7},
    }
    lines = allowed_changes(complete(BASE), complete(merge(BASE, change)), TrainingState())
    assert lines == [
        "data.pairs: ['a.tsv'] -> ['moved/a.tsv']",
        "decode.beam_size: 4 -> 7",
        "device: 'auto' -> 'cpu'",
        "train.keep_checkpoints: 5 -> 2",
        "train.max_minutes: None -> 5.0",
        "train.max_steps: 40 -> 60",
        "train.patience: 10 -> 3",
        "train.validate_every: 500 -> 7",
    ]


def test_the_same_settings_after_a_round_trip_through_toml_are_no_change(tmp_path):
    config = complete(BASE)
    (tmp_path / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    assert allowed_changes(Config.load(tmp_path / "config.toml"), config, TrainingState()) == []


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        (
            {"max_steps": 99},
            "has made 120 steps, and --max-steps 99 counts them too; --max-steps 219 makes so many more",
        ),
        (
            {"max_minutes": 4.0},
            r"has made 20\.25 minutes, and --max-minutes 4 counts them too; --max-minutes 24\.25 makes",
        ),
    ],
)
def test_a_run_is_not_ended_by_asking_for_less_than_it_has_made(asked, advice):
    made = TrainingState(step=120, elapsed=60 * 20.25)
    saved = complete(merge(BASE, {"train": {"max_steps": 500, "max_minutes": 30.0}}))
    now = saved.model_copy(update={"train": saved.train.model_copy(update=asked)})
    with pytest.raises(CheckpointError, match=f"{advice}.*--max-steps 120 ends the run here"):
        allowed_changes(saved, now, made)
    assert allowed_changes(now, now, made) == []  # it was stopped just before its own end
    ends = saved.model_copy(update={"train": saved.train.model_copy(update={"max_steps": 120})})
    assert allowed_changes(saved, ends, made) == ["train.max_steps: 500 -> 120"]


def test_allowed_changes_names_limits_as_the_options_accept_them():
    saved = complete(merge(BASE, {"train": {"max_steps": 5_000_000}}))

    def refusal(made, **asked):
        with pytest.raises(CheckpointError) as caught:
            allowed_changes(saved, saved.model_copy(update={"train": saved.train.model_copy(update=asked)}), made)
        return str(caught.value)

    long = refusal(TrainingState(step=1_234_567), max_steps=1_200_345)
    assert "has made 1,234,567 steps, and --max-steps 1200345 counts them too; --max-steps 2434912 makes" in long
    assert "--max-steps" not in refusal(TrainingState(elapsed=90.0), max_minutes=1.0)  # 0 cannot be asked for


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        ({"max_minutes": 5.0}, (None, 5.0)),
        ({"max_steps": 700}, (700, None)),
        ({"max_steps": 700, "max_minutes": 5.0}, (700, 5.0)),
        ({"patience": 3}, (500, 30.0)),
    ],
)
def test_new_limit_replaces_both_limits_of_a_saved_run(tmp_path, asked, limits):
    saved = complete(merge(BASE, {"train": {"max_steps": 500, "max_minutes": 30.0}}))
    (tmp_path / "config.toml").write_text(saved.to_toml(), encoding="utf-8")
    given = with_saved(Layers().with_("file", {"out": str(tmp_path), "train": asked}), fresh=False)[0].given
    assert (given["train.max_steps"], given["train.max_minutes"]) == limits
