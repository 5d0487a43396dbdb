"""Steps that are not finite are skipped; a run that diverges goes back once, and ends the second time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import plant

from clearhead.bundle import load_bundle
from clearhead.data.prepare import open_prepared
from clearhead.errors import TrainingError
from clearhead.files.tensors import read_weights
from clearhead.training import loop
from clearhead.training.checkpoints import Best, Checkpoints, TrainingState
from clearhead.training.divergence import Divergence
from clearhead.training.log import MetricsLog, read_metrics
from clearhead.training.run import train_from_values
from clearhead.training.step import StepResult
from clearhead.training.steps import PackedBatches, PaddedBatches
from small_runs import assert_same_weights

LONG = {"max_steps": 50, "validate_every": 50, "checkpoint_every": 10, "keep_checkpoints": 10, "schedule": "constant"}


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def state_of(run: Path, step: int) -> dict[str, Any]:
    return json.loads((checkpoint(run, step) / "state.json").read_text(encoding="utf-8"))


def assert_same_checkpoint(found: Path, expected: Path) -> None:
    assert_same_weights(found, expected)
    moments, others = (read_weights(path / "optimizer.safetensors")[0] for path in (found, expected))
    assert moments.keys() == others.keys()
    assert [name for name in others if not torch.equal(moments[name], others[name])] == []


# The decision.


def result(nll: float, *, is_skipped: bool = False) -> StepResult:
    return StepResult(nll + 0.2, nll, 0.7, 11, is_skipped=is_skipped)


def added(divergence: Divergence, *nlls: float | None) -> list[int]:
    """Add steps, a skipped one for None; return the numbers of those, counted from 1, after which the run goes back."""
    results = (result(torch.nan, is_skipped=True) if nll is None else result(nll) for nll in nlls)
    return [number for number, one in enumerate(results, start=1) if divergence.add(one)]


@pytest.mark.parametrize(
    ("nlls", "back"),
    [
        ([None, None, 5.0, None, None, 5.0], []),
        ([5.0, None, None, None], [4]),
        ([4.0] * 24 + [9.0] * 20, []),
        ([4.0, 2.0] * 12 + [3.0] + [4.01] * 19 + [3.99] + [4.01] * 19, []),
        ([4.6] + [3.0] * 24 + [4.5] * 20, []),
        ([4.0, 2.0] * 12 + [3.0] + [4.01] * 20, [45]),
        ([3.0] * 25 + [4.5] * 18 + [None, 4.5], [45]),
        ([9.0 - 0.1 * step for step in range(80)], []),
        ([2.0 + 0.03 * step for step in range(80)], []),
    ],
    ids=[
        "two",
        "three",
        "few before",
        "19 high",
        "not highest",
        "20 high",
        "high and skipped",
        "falling",
        "rising slowly",
    ],
)
def test_a_run_goes_back_after_three_skipped_or_twenty_high_steps(nlls, back):
    assert added(Divergence(), *nlls) == back


@pytest.mark.parametrize("share", [0.7, 0.8])
def test_a_corpus_of_easy_and_hard_batches_does_not_go_back(share):
    random = np.random.default_rng(11)
    hard = random.random(5_000) < share
    assert added(Divergence(), *(0.2 + 3.0 * hard + abs(random.normal(0.0, 0.3, size=hard.size))).tolist()) == []


def test_trouble_of_a_loss_that_exploded_says_what_blind_guessing_costs():
    exploded = StepResult(31.5, 20.25, 0.5, 11, is_skipped=True)
    expected = "the loss exploded to 20.2 nats a token, where blind guessing costs 3.6"
    assert Divergence().trouble(exploded, 37) == expected


def test_divergence_is_restored_from_a_checkpoint_exactly_and_older_checkpoints_have_none():
    whole, first = Divergence(), Divergence()
    nlls = [3.0 + 1 / (7 + step) for step in range(30)]
    added(whole, *nlls, None, *[4.6] * 18)
    added(first, *nlls, None, *[4.6] * 11)
    values = json.loads(json.dumps(TrainingState(step=42, divergence=first).to_dict()))
    second = TrainingState.from_dict(values).divergence
    added(second, *[4.6] * 7)
    assert second == whole
    assert added(second, 4.6) == [1]
    del values["divergence"]
    assert TrainingState.from_dict(values).divergence == Divergence()


def test_good_before_is_the_newest_regular_or_best_checkpoint_that_is_whole(tmp_path):
    checkpoints = Checkpoints(tmp_path, pytest.fail)
    best, deleted = Best(13, 1.0, 2.0, 3.0, "0"), Best(15, 1.0, 2.0, 3.0, "0")
    for step, then in {0: None, 10: None, 13: best, 17: best, 20: deleted, 30: best}.items():
        checkpoints.save(TrainingState(step=step, best=then), {"w": torch.ones(3)}, {})
    assert checkpoints.good_before(29, best, multiple_of=10) == (20, False)
    assert checkpoints.good_before(19, best, multiple_of=10) == (13, True)
    assert checkpoints.good_before(19, None, multiple_of=10) == (10, True)
    assert checkpoints.good_before(9, best, multiple_of=10) is None
    (tmp_path / "step-00000020" / "state.json").write_text("{}")
    assert Checkpoints(tmp_path, pytest.fail).good_before(29, best, multiple_of=10) == (13, True)


# Runs.


@pytest.mark.parametrize("optimizer", ["muon", "adam"])
@pytest.mark.parametrize("bad", [{4}, {4, 5}])
def test_skipped_steps_change_neither_weights_nor_moments(settings, monkeypatch, capsys, bad, optimizer):
    plant(bad, put=monkeypatch.setattr)
    steps = {"max_steps": 25, "validate_every": 25, "checkpoint_every": 1, "keep_checkpoints": 25}
    run = train_from_values(settings(train={**steps, "optimizer": optimizer})).run
    last = max(bad) + 1
    assert_same_checkpoint(checkpoint(run, last), checkpoint(run, 4))
    with pytest.raises(AssertionError):
        assert_same_weights(checkpoint(run, last + 1), checkpoint(run, last))
    assert state_of(run, 25)["divergence"]["skipped"] == len(bad)
    told = capsys.readouterr().err
    assert told.count("is skipped: the loss is nan and the gradient's norm nan") == len(bad)
    assert ("1 step was skipped: " if len(bad) == 1 else "2 steps were skipped: ") in (run / "verdict.txt").read_text()
    [record] = [record for record in read_metrics(run / "metrics.jsonl") if record["split"] == "train"]
    assert record["skipped_steps"] == len(bad)
    assert "rate_factor" not in record


def follow(monkeypatch, *, back_to: int, first: int, count: int) -> None:
    """Let a run use other batches from a step on, and half the rate after an earlier one, as if it had gone back."""
    rate = loop.learning_rate
    for kind in (PaddedBatches, PackedBatches):
        of_step = kind.of_step
        monkeypatch.setattr(
            kind, "of_step", lambda own, step, of=of_step: of(own, step + (count if step + 1 >= first else 0))
        )
    monkeypatch.setattr(
        loop, "learning_rate", lambda number, *parts, **more: rate(number, *parts, **more) / (1 + (number > back_to))
    )


@pytest.mark.parametrize("form", ["padded", "packed"])
def test_three_steps_that_are_not_finite_go_back_and_leave_out_their_batches(
    settings, monkeypatch, capsys, tmp_path, request, form
):
    if form == "packed":
        request.getfixturevalue("packed_runs")
    with monkeypatch.context() as patch:
        plant({39, 40, 41}, put=patch.setattr)
        run = train_from_values(settings(train=LONG)).run
    told = capsys.readouterr().err
    follow(monkeypatch, back_to=10, first=40, count=3)
    expected = train_from_values(settings(out=str(tmp_path / "expected"), train=LONG)).run
    assert_same_checkpoint(checkpoint(run, 50), checkpoint(expected, 50))

    assert state_of(run, 50)["divergence"]["went_back"] == {"step": 10, "first": 40, "last": 42}
    said = [line for line in told.splitlines() if "diverged at step 42: the loss is nan" in line]
    assert len(said) == 1
    assert "goes back to step 10, continues at 0.5 times the learning rate" in said[0]
    rows = [json.loads(line) for line in (run / "skipped.jsonl").read_text(encoding="utf-8").splitlines()]
    data = open_prepared(run / "data")
    order = data.order(loop.Config.load(run / "config.toml").train)
    assert [(row["step"], row["pair"]) for row in rows] == [
        (step, pair) for step in (40, 41, 42) for pair in order.rows(step - 1)
    ]
    texts = [(data.train.source(row["pair"]), data.train.target(row["pair"])) for row in rows]
    assert [(row["source"], row["target"]) for row in rows] == texts
    assert "it went back to step 10" in (run / "report.html").read_text(encoding="utf-8")
    found, others = (read_metrics(path / "metrics.jsonl") for path in (run, expected))
    assert [(one["split"], one["step"]) for one in found] == [(one["split"], one["step"]) for one in others]
    for one, other in zip(found, others, strict=True):
        assert one.get("rate_factor") == (0.5 if one["split"] == "train" else None)
        names = [name for name in other if name not in ("elapsed", "tokens_per_second")]
        assert {name: one[name] for name in names} == {name: other[name] for name in names}


def test_a_loss_that_stays_high_goes_back_to_before_it_rose(settings, monkeypatch, capsys):
    plant(range(60, 80), with_labels=True, put=monkeypatch.setattr)
    train = {**LONG, "max_steps": 85, "checkpoint_every": 20, "learning_rate": 0.02}
    model = {"d_model": 32, "d_ff": 64, "num_heads": 2, "dropout": 0.0}
    run = train_from_values(settings(train=train, model=model)).run
    # The checkpoint of step 60 has the rise of the loss at step 61 ahead of it, and that of step 40 may have its cause.
    assert state_of(run, 80)["divergence"]["went_back"] == {"step": 20, "first": 61, "last": 80}
    assert "for 20 steps the loss is high" in capsys.readouterr().err


def test_a_second_divergence_ends_with_what_to_change(settings, monkeypatch):
    plant({39, 40, 41, 50, 51, 52}, put=monkeypatch.setattr)
    for _ in range(2):  # the same command comes to the same end
        with pytest.raises(TrainingError) as caught:
            train_from_values(settings(train=LONG))
        message = str(caught.value)
        assert message.startswith("training stopped at step 50: the loss is nan and the gradient's norm nan; it went ")
        assert "went back from step 42 to step 10 before, which did not help" in message
        assert "lower train.learning_rate (its peak is 0.0015 now), more train.warmup_steps" in message
        assert "skipped.jsonl" in message


class Killed(Exception):
    """In place of a signal that ends the process."""


@pytest.mark.parametrize("place", ["before the checkpoint is written again", "after it"])
def test_a_run_killed_while_it_goes_back_resumes_exactly(settings, monkeypatch, tmp_path, place):
    plant({35, 39, 40, 41}, put=monkeypatch.setattr)
    values = {name: settings(out=str(tmp_path / name), train=LONG) for name in ("run", "whole")}
    whole = train_from_values(values["whole"]).run

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(*((loop, "write_skipped") if place.startswith("before") else (MetricsLog, "go_back")), kill)
        with pytest.raises(Killed):
            train_from_values(values["run"])
    run = train_from_values(values["run"]).run
    assert_same_checkpoint(checkpoint(run, 50), checkpoint(whole, 50))
    states, logs = [], []
    for path in (run, whole):
        states.append(state_of(path, 50))
        del states[-1]["elapsed"], states[-1]["window"]["seconds"]
        logs.append(read_metrics(path / "metrics.jsonl"))
        for record in logs[-1]:
            del record["elapsed"]
            record.pop("tokens_per_second", None)
    assert states[0] == states[1]
    assert logs[0] == logs[1]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == sorted(
        path.name for path in (whole / "checkpoints").iterdir()
    )
    assert (run / "skipped.jsonl").read_bytes() == (whole / "skipped.jsonl").read_bytes()


def test_the_best_is_chosen_anew_where_its_checkpoint_was_deleted(settings, monkeypatch, capsys):
    """At step 20 the best was of step 15, whose checkpoint was deleted when step 30 was better."""
    plant({49, 50, 51}, put=monkeypatch.setattr)
    better = iter([True, True, False, False, False])  # of steps 30, 45, and again 30, 45, 60
    monkeypatch.setattr(loop, "is_better", lambda *_: next(better))
    monkeypatch.setattr(loop, "FEWEST_DECIDING", 0)
    train = {**LONG, "max_steps": 60, "validate_every": 15, "average_last": 1}
    run = train_from_values(settings(train=train)).run
    assert state_of(run, 60)["best"]["step"] == state_of(run, 20)["best"]["step"] == 20
    assert load_bundle(run).info["weights"] == "step 20"
    told = capsys.readouterr().err
    assert "is damaged" not in told
    steps = [one["step"] for one in read_metrics(run / "metrics.jsonl") if one["split"] == "valid"]
    assert steps == [15, 20, 30, 45, 60]
