"""Several workers make the steps of one: bit for bit where they compute the same parts, and end together."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from planted import lack_memory, plant
from torch import nn
from torch.distributed import HashStore, TCPStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from clearhead.cli.main import run as run_command
from clearhead.config.nested import merge
from clearhead.errors import ConfigError, DeviceError, TrainingError
from clearhead.training import distributed, shards, worker_store
from clearhead.training import launch as launching
from clearhead.training import liveness as watching
from clearhead.training.distributed import Workers, crowding, require_workers
from clearhead.training.liveness import Activity, Heartbeats, Watch
from clearhead.training.log import read_metrics
from clearhead.training.run import train_from_values
from clearhead.training.shards import is_sharded, read_tensors
from clearhead.training.step import Stepper
from clearhead.training.worker_store import LostWorkerError
from commands import clearhead
from every_run import slow
from processes import SECONDS, call, finish, signal_after_first_record, start, wait_until
from small_runs import train_arguments

posix = pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
TRAIN = {
    "accumulate": 2,
    "micro_batch_tokens": 128,
    "precision": "fp32",
    "max_steps": 20,
    "validate_every": 10,
    "checkpoint_every": 5,
}


def become_worker(rank: int, count: int, port: int, silence: float = SECONDS, stillness: float = SECONDS) -> None:
    """Set what `torchrun` sets, in a process that was just started."""
    # A busy machine may leave a worker without time.
    distributed.Watch = partial(Watch, silence=silence, stillness=stillness)
    own = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    own |= {"TORCHELASTIC_USE_AGENT_STORE": True}
    os.environ.update({name: str(value) for name, value in own.items()})


def become_worker_and(rank: int, count: int, port: int, then: Callable[[], None], **how: float) -> None:
    become_worker(rank, count, port, **how)
    then()


def before_step(number: int, act: Callable[[], None]) -> None:
    """Let this process do that when it begins that step."""
    step = Stepper.step

    def act_and_step(stepper: Stepper, *args: Any, **kwargs: Any) -> Any:
        if kwargs["number"] == number and stepper.workers.count > 1:  # and not when steps are timed
            act()
        return step(stepper, *args, **kwargs)

    Stepper.step = act_and_step


def miss_soon() -> None:
    """Let this process look for heartbeats of the others more often, to see sooner who is gone after a failed sum."""
    watching._SECONDS_BETWEEN_HEARTBEATS, watching._SECONDS_TO_MISS = 0.1, 0.25


def die_in_share(number: int) -> None:
    """Let this process be killed between the two files of its share of a checkpoint, counted from 1."""
    write, seen = shards.write_weights, []

    def write_or_die(path: Path, *rest: Any) -> None:
        seen.extend([path] if path.name.startswith("optimizer") else [])
        if len(seen) == number:
            die()
        write(path, *rest)

    shards.write_weights = write_or_die


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(SECONDS)


def leave_only_after(path: Path) -> None:
    """End with status 9 if this process leaves the others before there is such a path."""
    disconnect = Workers._disconnect

    def look_and_disconnect(workers: Workers) -> None:
        if not path.exists():
            os._exit(9)
        disconnect(workers)

    Workers._disconnect = look_and_disconnect


class Crew:
    """The workers of a run, with a store of their launcher; each prints into a file of its own."""

    def __init__(
        self, directory: Path, settings: Mapping[str, Any], *others: Mapping[str, Any], silence: float = SECONDS
    ) -> None:
        self.store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.given = [settings, *(others or [settings])]
        self.logs = [directory / f"worker-{rank}.txt" for rank in range(len(self.given))]
        for log in self.logs:
            log.unlink(missing_ok=True)  # output of an earlier group does not show that this one has connected
        self.processes = [
            start(
                train_arguments(values),
                self.logs[rank],
                partial(become_worker, rank, len(self.given), self.store.port, silence),
            )
            for rank, values in enumerate(self.given)
        ]

    def codes(self) -> list[int | None]:
        return [finish(process) for process in self.processes]

    def lines(self, rank: int) -> list[str]:
        return self.logs[rank].read_text(encoding="utf-8").splitlines() if self.logs[rank].exists() else []


@pytest.fixture
def crew(tmp_path, settings) -> Iterator[Callable[..., Crew]]:
    """Return a function that starts a crew of two on `tmp_path/NAME`."""
    crews = []

    def begin(name: str, *, second: Mapping[str, Any] | None = None, silence: float = SECONDS, **changes: Any) -> Crew:
        values = settings(out=str(tmp_path / name), **{"train": TRAIN, **changes})
        crews.append(Crew(tmp_path, values, *([{**values, **second}] if second else []), silence=silence))
        return crews[-1]

    yield begin
    while crews:  # the store ends with the crew
        for process in crews.pop().processes:
            process.kill()
            process.join()


def weights(run: Path, step: int = 20) -> dict[str, torch.Tensor]:
    return read_tensors(run / "checkpoints" / f"step-{step:08d}", "model")


def assert_same_weights(run: Path, other: Path, step: int = 20) -> None:
    found, wanted = weights(run, step), weights(other, step)
    assert [name for name in wanted if not found[name].equal(wanted[name])] == []


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """Return a run of one process that cuts every step in two."""
    from small_runs import tiny_settings, write_numbers

    directory = tmp_path_factory.mktemp("alone")
    write_numbers(directory / "numbers.tsv")
    torch.set_num_threads(1)
    return train_from_values(tiny_settings(directory, {"train": TRAIN})).run


@pytest.mark.slow
def test_two_workers_make_the_steps_of_one_bit_for_bit_with_dropout(crew, alone, tmp_path):
    both = crew("run")
    assert both.codes() == [0, 0], both.lines(0)
    assert_same_weights(tmp_path / "run", alone)
    assert both.lines(1) == []
    assert sum("finished by max_steps" in line for line in both.lines(0)) == 1
    for name in ("metrics.jsonl", "report.html", "model/config.json"):
        assert (tmp_path / "run" / name).is_file()


@pytest.mark.parametrize("ends", [((5, 1), (10, 2)), slow(((5, 1), (10, 2), (15, 1)))])
def test_the_number_of_workers_may_change_at_every_resume(crew, settings, tmp_path, ends):
    for steps, count in ends:
        train = {**TRAIN, "max_steps": steps, "schedule": "constant"}
        if count == 1:
            train_from_values(settings(train=train))
        else:
            both = crew("run", train=train)
            assert both.codes() == [0, 0], both.lines(0)
            assert both.lines(1) == []
            assert sum("finished by max_steps" in line for line in both.lines(0)) == 1
    constant = train_from_values(settings(out=str(tmp_path / "constant"), train={**train, "max_steps": steps})).run
    assert_same_weights(tmp_path / "run", constant, steps)


@pytest.mark.parametrize("optimizer", ["muon", slow("adam")])
def test_sharded_run_equals_unsharded_bit_for_bit_and_resumes_unsharded(crew, settings, tmp_path, optimizer):
    train = {**TRAIN, "optimizer": optimizer, "learning_rate": 1e-3}
    # Of shares that fill whole vectors: the odd end of one is rounded otherwise by Adam's fused update.
    model = {"d_model": 32, "d_ff": 64, "num_heads": 2}
    sharded = crew("run", train={**train, "max_steps": 5, "shard": True}, model=model)
    assert sharded.codes() == [0, 0], sharded.lines(0)
    train_from_values(settings(out=str(tmp_path / "one"), train={**train, "max_steps": 5}, model=model))
    assert_same_weights(tmp_path / "run", tmp_path / "one", 5)
    assert is_sharded(tmp_path / "run" / "checkpoints" / "step-00000005")
    shutil.copytree(tmp_path / "run", tmp_path / "both")
    for name in ("run", "one"):  # whose schedule is linear, but for the same steps from here on
        last = {**train, "shard": False, "max_steps": 10}
        train_from_values(settings(out=str(tmp_path / name), train=last, model=model))
    assert_same_weights(tmp_path / "run", tmp_path / "one", 10)
    resumed = crew("both", train={**train, "max_steps": 10, "shard": True}, model=model)
    assert resumed.codes() == [0, 0], resumed.lines(0)
    assert_same_weights(tmp_path / "both", tmp_path / "one", 10)
    moments = (read_tensors(tmp_path / name / "checkpoints" / "step-00000010", "optimizer") for name in ("both", "one"))
    torch.testing.assert_close(*moments, rtol=0, atol=0)


def tell_bytes_read() -> None:
    """Let this process print how many bytes of a checkpoint it reads."""
    read = shards.read_weights

    def read_and_tell(path: Path, **options: Any) -> Any:
        found, metadata = read(path, **options)
        print(f"reads {path.name.partition('-')[0].partition('.')[0]}:", sum(one.nbytes for one in found.values()))
        return found, metadata

    shards.read_weights = read_and_tell


@pytest.mark.parametrize("was_sharded", [True, slow(False)])
def test_each_of_three_sharded_workers_reads_its_rows_alone(settings, tmp_path, was_sharded):
    train = {**TRAIN, "optimizer": "adam", "learning_rate": 1e-3, "schedule": "constant", "validate_every": 99}
    train |= {"max_steps": 5, "shard": was_sharded, "average_last": 1}
    values = settings(train=train, model={"d_model": 32, "d_ff": 64, "num_heads": 2})
    assert trained_by(values, miss_soon, miss_soon)[0] == [0, 0]
    path = tmp_path / "run" / "checkpoints" / "step-00000005"
    assert is_sharded(path) == was_sharded
    states, of_model = read_tensors(path, "optimizer"), sum(one.nbytes for one in read_tensors(path, "model").values())
    shutil.copytree(tmp_path / "run", tmp_path / "one")
    longer = {"max_steps": 10, "accumulate": 3, "shard": True}
    codes, lines = trained_by(merge(values, {"train": longer}), *[tell_bytes_read] * 3)
    assert codes == [0, 0, 0], lines
    read = [line.split(": ") for line in lines if line.startswith("reads ")]
    sizes = {name: [int(size) for told, size in read if told == f"reads {name}"] for name in ("model", "optimizer")}
    assert sum(sizes["model"]) == 2 * of_model  # to resume, and to publish the best
    steps = sum(one.nbytes for one in states.values() if not one.dim())  # which have no rows: every worker reads them
    assert sum(sizes["optimizer"]) == sum(one.nbytes for one in states.values()) + 2 * steps
    assert max(sizes["model"]) < 0.4 * of_model
    alone = train_from_values(merge(values, {"out": str(tmp_path / "one"), "train": {**longer, "shard": False}})).run
    found, wanted = weights(tmp_path / "run", 10), weights(alone, 10)
    assert max((found[name] - wanted[name]).abs().max() for name in wanted) < 1e-6


def test_sharded_workers_with_unequal_parts_stay_in_step(crew, settings, tmp_path):
    train = {**TRAIN, "accumulate": 3, "max_steps": 5, "optimizer": "adam", "learning_rate": 1e-3}
    both = crew("run", train={**train, "shard": True})
    assert both.codes() == [0, 0], both.lines(0)
    found, wanted = (
        weights(tmp_path / "run", 5),
        weights(train_from_values(settings(out=str(tmp_path / "one"), train=train)).run, 5),
    )
    assert max((found[name] - wanted[name]).abs().max() for name in wanted) < 1e-6


@posix
@pytest.mark.parametrize("victim", [slow(0), 1])
def test_killed_worker_ends_the_others_and_the_same_command_resumes(crew, alone, settings, tmp_path, victim):
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    logs = [tmp_path / "0.txt", tmp_path / "1.txt"]
    thens = [miss_soon, miss_soon]
    thens[victim] = partial(before_step, 8, die)
    firsts = [partial(become_worker_and, rank, 2, store.port, then) for rank, then in enumerate(thens)]
    arguments = train_arguments(settings(train=TRAIN))
    processes = [start(arguments, log, first) for log, first in zip(logs, firsts, strict=True)]
    codes = [finish(process) for process in processes]
    assert (codes[victim], codes[1 - victim]) == (-signal.SIGKILL, 1)
    said = logs[1 - victim].read_text(encoding="utf-8").splitlines()
    assert [line for line in said if line.startswith("clearhead: ")] == [
        f"clearhead: worker {victim} ended or does not answer any more, so the training stopped; the same command "
        f"continues from the last checkpoint"
    ]
    if victim:
        train_from_values(settings(train=TRAIN))
    else:
        assert crew("run").codes() == [0, 0]
    assert_same_weights(tmp_path / "run", alone)


@posix
@pytest.mark.parametrize("victim", [slow(0), 1])
def test_worker_killed_within_its_share_leaves_the_checkpoint_before(settings, tmp_path, victim):
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    logs = [tmp_path / "0.txt", tmp_path / "1.txt"]
    thens = [miss_soon, miss_soon]
    thens[victim] = partial(die_in_share, 2)
    firsts = [partial(become_worker_and, rank, 2, store.port, then) for rank, then in enumerate(thens)]
    model = {"d_model": 32, "d_ff": 64, "num_heads": 2}
    train = {**TRAIN, "validate_every": 20, "optimizer": "adam", "learning_rate": 1e-3}
    arguments = train_arguments(settings(train={**train, "shard": True}, model=model))
    processes = [start(arguments, log, first) for log, first in zip(logs, firsts, strict=True)]
    codes = [finish(process) for process in processes]
    assert (codes[victim], codes[1 - victim]) == (-signal.SIGKILL, 1)
    assert f"worker {victim} ended or does not answer" in logs[1 - victim].read_text(encoding="utf-8")
    steps = [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")]
    assert steps == ["step-00000005"]
    whole, resumed = (
        train_from_values(settings(out=str(tmp_path / name), train=train, model=model)).run for name in ("one", "run")
    )
    assert_same_weights(resumed, whole)
    assert [path.name for path in (resumed / "checkpoints").iterdir() if not path.name.startswith("step-")] == []


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_hung_worker_ends_all_and_the_same_command_resumes(crew, alone, settings, tmp_path, victim):
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    logs = [tmp_path / "0.txt", tmp_path / "1.txt"]
    firsts = [partial(become_worker, rank, 2, store.port, stillness=15.0) for rank in range(2)]
    firsts[victim] = partial(become_worker_and, victim, 2, store.port, partial(before_step, 8, hang), stillness=15.0)
    arguments = train_arguments(settings(train=TRAIN))
    processes = [start(arguments, log, first) for log, first in zip(logs, firsts, strict=True)]
    assert [finish(process) for process in processes] == [1, 1]
    said = [line for log in logs for line in log.read_text(encoding="utf-8").splitlines() if "clearhead: " in line]
    assert len(said) == 1
    assert re.fullmatch(
        rf"clearhead: worker {victim} hangs in a step: there was no progress for \d+ s, so the training stopped; "
        rf"the same command continues from the last checkpoint",
        said[0],
    )
    assert crew("run").codes() == [0, 0]
    assert_same_weights(tmp_path / "run", alone)


@posix
def test_two_workers_of_which_one_has_a_loss_that_is_not_finite_go_back_together(settings, tmp_path, monkeypatch):
    train = {**TRAIN, "max_steps": 45, "validate_every": 45, "keep_checkpoints": 9, "schedule": "constant"}
    bad = {7, 39, 40, 41}
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    logs = [tmp_path / "0.txt", tmp_path / "1.txt"]
    thens = [miss_soon, partial(plant, bad)]
    firsts = [partial(become_worker_and, rank, 2, store.port, then) for rank, then in enumerate(thens)]
    arguments = train_arguments(settings(train=train))
    processes = [start(arguments, log, first) for log, first in zip(logs, firsts, strict=True)]
    assert [finish(process) for process in processes] == [0, 0], logs[0].read_text()
    plant(bad, put=monkeypatch.setattr)
    alone = train_from_values(settings(out=str(tmp_path / "alone"), train=train)).run
    assert_same_weights(tmp_path / "run", alone, 45)
    told = logs[0].read_text(encoding="utf-8")
    assert "step 8 is skipped: the loss is nan" in told
    assert "the run diverged at step 42" in told


def trained_by(settings: Mapping[str, Any], *thens: Callable[[], None]) -> tuple[list[int | None], list[str]]:
    """Return the exit codes of workers, each of which does something first, and the lines of all."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    logs = [Path(f"{settings['out']}-{rank}.txt") for rank in range(len(thens))]
    firsts = [partial(become_worker_and, rank, len(thens), store.port, then) for rank, then in enumerate(thens)]
    processes = [start(train_arguments(settings), log, first) for log, first in zip(logs, firsts, strict=True)]
    return [finish(process) for process in processes], "".join(log.read_text("utf-8") for log in logs).splitlines()


@pytest.mark.parametrize(
    ("places", "who"),
    [
        ({1: ("backward", 2, 1)}, "worker 1"),
        ({1: ("copy", 2, 0)}, "worker 1"),
        slow({1: ("backward", 2, 0)}, "worker 1"),
        slow({1: ("encoder", 1, 1)}, "worker 1"),
        slow({0: ("encoder", 0, 0)}, "worker 0"),
        slow({0: ("loss", 2, 1), 1: ("backward", 2, 0)}, "worker 0, worker 1"),
    ],
)
def test_workers_repeat_a_step_that_one_has_no_memory_for(settings, tmp_path, places, who):
    train = {**TRAIN, "micro_batch_tokens": 32, "max_steps": 6, "validate_every": 6, "checkpoint_every": 3}
    train |= {"schedule": "constant", "optimizer": "adam", "learning_rate": 1e-3}
    thens = [partial(lack_memory, *places.get(rank, ("nowhere", 0))) for rank in range(2)]
    codes, lines = trained_by(settings(train=train), *thens)
    step = next(iter(places.values()))[1] + 1
    assert codes == [0, 0], lines
    said = f"{who} ran out of memory at step {step}; from here on at most 16 target tokens are computed at once"
    assert sum(said in line for line in lines) == 1
    alone = train_from_values(settings(out=str(tmp_path / "alone"), train=train)).run
    found, expected = weights(tmp_path / "run", 6), weights(alone, 6)
    assert max((found[name] - expected[name]).abs().max() for name in expected) < 2e-5  # a step moves weights by 1e-3
    state = json.loads((tmp_path / "run" / "checkpoints" / "step-00000003" / "state.json").read_text())
    assert state["micro_batch_tokens"] == 16


@pytest.mark.slow
def test_workers_that_resume_keep_the_parts_that_they_cut(settings, tmp_path):
    train = {**TRAIN, "max_steps": 10, "schedule": "constant"}
    thens = partial(lack_memory, "encoder", 2), partial(lack_memory, "nowhere", 2)
    assert trained_by(settings(out=str(tmp_path / "whole"), train=train), *thens)[0] == [0, 0]
    assert trained_by(settings(train={**train, "max_steps": 5}), *thens)[0] == [0, 0]
    codes, lines = trained_by(settings(train=train), miss_soon, miss_soon)
    assert codes == [0, 0]
    assert_same_weights(tmp_path / "run", tmp_path / "whole", 10)
    assert sum("ran out of memory" in line for line in lines) == 1  # of the first command


@pytest.mark.parametrize("where", ["encoder", slow("backward")])
def test_sharded_workers_end_if_one_lacks_memory_with_what_to_set(settings, where):
    values = settings(train={**TRAIN, "shard": True}, model={"d_model": 32, "d_ff": 64, "num_heads": 2})
    codes, lines = trained_by(values, miss_soon, partial(lack_memory, where, 6))
    assert codes == [1, 1]
    assert [line for line in lines if "clearhead: " in line and "resum" not in line][-1] == (
        "clearhead: worker 1 ran out of memory at step 7; with train.shard a step is not repeated: set "
        "train.micro_batch_tokens = 32, and run the command again"
    )


@posix
def test_a_signal_to_one_worker_saves_once_and_ends_all(settings, tmp_path, alone):
    values = settings(train=TRAIN)
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    logs = [tmp_path / "0.txt", tmp_path / "1.txt"]
    stop = partial(signal_after_first_record, signal.SIGTERM)
    arguments = train_arguments(values)
    stay = partial(leave_only_after, tmp_path / "run" / "model")  # while the first one publishes
    firsts = [partial(become_worker_and, rank, 2, store.port, then) for rank, then in enumerate((stop, stay))]
    processes = [start(arguments, log, first) for log, first in zip(logs, firsts, strict=True)]
    assert [finish(process) for process in processes] == [143, 143], logs[0].read_text()
    assert logs[1].read_text() == ""
    assert len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) in (1, 2)
    train_from_values(values)
    assert_same_weights(tmp_path / "run", alone)


@pytest.mark.slow
def test_settings_that_differ_between_workers_are_one_error_line(crew, tmp_path):
    both = crew("run", second={"preset": "small"})
    assert both.codes() == [1, 1]
    said = [line for rank in range(2) for line in both.lines(rank)]
    assert said == [
        "clearhead: all workers must be given the same, but preset is 'tiny' for worker 0 and 'small' for worker 1"
    ]
    assert not (tmp_path / "run").exists()


def test_missing_pairs_file_is_reported_by_worker_0_alone(crew, tmp_path):
    both = crew("run", data={"pairs": [str(tmp_path / "missing.tsv")], "valid_size": 11})
    assert both.codes() == [1, 1]
    assert [len(both.lines(rank)) for rank in range(2)] == [1, 0]
    assert "missing.tsv" in both.lines(0)[0]


def test_more_workers_than_pairs_in_a_step_change_nothing(crew, alone, settings, tmp_path):
    train = {**TRAIN, "accumulate": 1, "batch_tokens": 8, "micro_batch_tokens": 8, "max_steps": 5}
    assert crew("run", train=train).codes() == [0, 0]
    train_from_values(settings(out=str(tmp_path / "one"), train={**train, "accumulate": 2}))
    assert_same_weights(tmp_path / "run", tmp_path / "one", 5)


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_two_hundred_steps_of_one_two_and_one_worker_end_at_the_loss_of_one(crew, settings, tmp_path, shard):
    train = {**TRAIN, "schedule": "constant", "validate_every": 100, "optimizer": "adam", "learning_rate": 1e-3}
    model = {"d_model": 32, "d_ff": 64, "num_heads": 2, "dropout": 0.0}
    for run, ends in (("run", ((60, 1), (160, 2), (200, 1))), ("one", ((200, 1),))):
        for steps, count in ends:
            own = {**train, "max_steps": steps, "shard": shard}
            if count == 1:
                train_from_values(settings(out=str(tmp_path / run), train=own, model=model))
            else:
                assert crew(run, train=own, model=model).codes() == [0, 0]
    losses = [
        [
            (one["step"], one["loss"])
            for one in read_metrics(tmp_path / run / "metrics.jsonl")
            if one["split"] == "train"
        ]
        for run in ("run", "one")
    ]
    assert losses[0][-1][0] == 200
    assert losses[0] == [(step, pytest.approx(loss, rel=1e-5)) for step, loss in losses[1]]
    found, wanted = (weights(tmp_path / run, 200) for run in ("run", "one"))
    assert max((found[name] - wanted[name]).abs().max() for name in wanted) < 1e-6


@pytest.mark.slow
@posix
@pytest.mark.parametrize("seed", range(2))
def test_ten_kills_of_a_random_worker_change_nothing(crew, alone, tmp_path, seed):
    choose, kills = random.Random(seed), 0
    while kills < 10:
        both = crew("run", silence=5.0)
        wait_until(lambda both=both: both.lines(0), both.processes[0])  # they have met
        both.processes[0].join(choose.uniform(0.0, 1.5))
        both.processes[choose.randrange(2)].kill()
        codes = both.codes()
        assert set(codes) <= {0, 1, -signal.SIGKILL}
        kills += codes != [0, 0]
        if kills % 3 == 0:  # a run that is never left in peace never ends
            assert crew("run").codes() == [0, 0]
            assert_same_weights(tmp_path / "run", alone)
            shutil.rmtree(tmp_path / "run")
    assert crew("run").codes() == [0, 0]
    assert_same_weights(tmp_path / "run", alone)


# What needs no processes.


def in_threads(work: Callable[[int], None], ranks: Iterable[int]) -> None:
    """Let each rank work in a thread of its own, started in this order, and wait for all."""
    threads = [Thread(target=work, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)


def together(*steps: Callable[[Workers], object]) -> list[object]:
    """Let as many workers do something at once, in threads with a store of their own; return what came of it."""
    store, found = HashStore(), [None] * len(steps)

    def work(rank: int) -> None:
        try:
            found[rank] = steps[rank](Workers(rank, len(steps), store))
        except TrainingError as error:
            found[rank] = error

    in_threads(work, range(len(steps)))
    return found


def connect_and_disconnect(times: int) -> None:
    sys.setswitchinterval(10)  # Python is not given to another thread unasked
    for _ in range(times):
        torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        workers = Workers(0, 2)
        module = workers.parallel(nn.Linear(1, 1))
        workers.sums(1.0)
        workers._disconnect()
        del workers, module


@pytest.mark.parametrize("times", [10, slow(100)])
def test_no_worker_waits_for_ever_for_a_thread_that_waits_for_python(times):
    assert call(partial(connect_and_disconnect, times)) == 0


def test_every_worker_learns_what_the_first_one_says():
    said = together(*(partial(Workers.tell, key="x", text="yes" if rank == 0 else None) for rank in range(3)))
    assert said == ["yes"] * 3


def test_may_speak_is_true_for_one_of_several_workers():
    spoken = together(*(lambda own: worker_store.may_speak(own._store, own.rank, "the disk is full") for _ in range(4)))
    assert sorted(spoken) == [False, False, False, True]


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(distributed, "Watch", lambda *_: None)
    found = together(
        *(
            partial(Workers.greet, greeting={"PyTorch": version, "train.seed": date(1979, 5, 27)}, say=print)
            for version in ("2.13.0", "2.5.1")
        )
    )
    assert str(found[0]) == (
        "all workers must be given the same, but PyTorch is '2.13.0' for worker 0 and '2.5.1' for worker 1"
    )


def test_greet_names_the_worker_that_does_not_connect(monkeypatch):
    monkeypatch.setattr(worker_store, "_SECONDS_TO_COME", 0.2)
    with pytest.raises(TrainingError, match="worker 1 did not come within"):
        Workers(0, 2, HashStore()).greet({}, print)


def test_tell_raises_lost_worker_error_if_another_worker_failed():
    store = HashStore()
    assert worker_store.may_speak(store, 0, "the disk is full")
    with pytest.raises(LostWorkerError):
        Workers(1, 2, store).tell("prepared", None)


@pytest.mark.parametrize(("count", "items"), [(1, 5), (2, 5), (3, 5), (7, 5), (4, 0)])
def test_items_are_dealt_out_once_each_and_evenly(count, items):
    own = [list(Workers(rank, count).own(range(items))) for rank in range(count)]
    assert [item for some in own for item in some] == list(range(items))
    assert max(map(len, own)) - min(map(len, own)) <= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": ""}, "need RANK in the environment, a number, not ''"),
        ({"MASTER_PORT": "x"}, "need MASTER_PORT in the environment, a number, not 'x'"),
        ({"MASTER_ADDR": ""}, "need MASTER_ADDR in the environment"),
    ],
)
def test_incomplete_rank_and_world_size_variables_are_rejected(monkeypatch, changes, message):
    said = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", **changes}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message), Workers.met():
        pass


def test_a_port_in_use_is_one_clear_error(monkeypatch):
    taken = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    said = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(taken.port)}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(TrainingError, match=f"worker 0 cannot meet the others at localhost:{taken.port}: "),
        Workers.met(),
    ):
        pass


def test_fewer_gpus_than_workers_are_refused(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(DeviceError, match="this machine has 1 GPUs, too few for its workers"):
        Workers(1, 2, HashStore()).device(torch.device("cuda"))
    with pytest.raises(DeviceError, match="'cuda:0' is one GPU; 2 workers need --device cuda"):
        Workers(1, 2, HashStore()).device(torch.device("cuda:0"))


def test_workers_that_contradict_torchrun_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    require_workers(None)
    require_workers(2)
    with pytest.raises(ConfigError, match="--workers 3: torchrun started 2 already"):
        require_workers(3)


LOST = (
    "worker 0 ended or does not answer any more, so the training stopped; the same command continues from the last "
    "checkpoint\n"
)


class Ended(SystemExit):
    """In the place of the end of this process."""


@pytest.mark.parametrize(
    ("answers", "said"), [(True, LOST), (False, "asked to save\nalone: " + LOST)], ids=["a silent worker", "no answer"]
)
def test_watch_ends_the_process_after_the_seconds_of_silence(monkeypatch, answers, said):
    """The loop that counts them, without a clock; in a process of its own, with threads: the slow test below."""
    heard = []

    def end(code: int) -> None:
        raise Ended(code)

    def tick(_: float) -> bool:
        if answers:
            watch._heartbeats.exchange()
        return False

    os_of_the_watch = SimpleNamespace(_exit=end, kill=lambda *_: heard.append("asked to save\n"), getpid=os.getpid)
    monkeypatch.setattr(watching, "os", os_of_the_watch)
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    say, report_locally = (lambda text, who=who: heard.append(f"{who}{text}\n") for who in ("", "alone: "))
    watch = Watch(HashStore(), 1, 2, say, report_locally, silence=4.5)
    watch._done = SimpleNamespace(wait=tick)
    with pytest.raises(Ended) as ended:
        watch._end_after_silence()
    assert (ended.value.code, "".join(heard)) == (1, said)
    assert watch._heartbeats.silent(4.5) == ([0] if answers else [0, 1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "silence", "said"),
    [("HashStore()", 4.5, LOST), pytest.param("Hanging()", 1.5, "asked to save\nalone: " + LOST, marks=posix)],
    ids=["a silent worker", "a store that does not answer"],
)
def test_silent_worker_or_store_ends_a_process_with_one_line(store, silence, said):
    code = (
        "import signal, time\n"
        "from torch.distributed import HashStore\n"
        "from clearhead.training.liveness import Watch\n"
        "class Hanging:\n"
        "    def set(self, key, value):\n"
        "        time.sleep(600)\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('asked to save', flush=True))\n"
        "say, report_locally = (lambda text, who=who: print(who + text, flush=True) for who in ('', 'alone: '))\n"
        f"Watch({store}, 1, 2, say, report_locally, silence={silence})\n"
        "time.sleep(600)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS)
    assert (ended.returncode, ended.stdout) == (1, said), ended.stderr


def test_silent_lists_workers_without_heartbeats_for_the_seconds_given():
    store = HashStore()
    heartbeats, alive = Heartbeats(store, 1, 3), Heartbeats(store, 2, 3)
    for _ in range(4):
        heartbeats.tick()
        alive.exchange()
        heartbeats.exchange()
    assert heartbeats.silent(3.0) == [0]
    assert heartbeats.silent(4.0) == []
    for _ in range(5):  # the store does not answer
        heartbeats.tick()
    assert heartbeats.silent(4.0) == [0, 1, 2]


def ticks(heartbeats: list[Heartbeats], seconds: int, *, going_on: bool) -> None:
    for _ in range(seconds):
        for one in heartbeats:
            if going_on:
                one.own = one.own._replace(turn=one.own.turn + 1)
            one.exchange()
        for one in heartbeats:
            one.tick()


@pytest.mark.parametrize(
    ("waiting", "who"), [({0, 2}, "worker 1 hangs"), ({1}, "workers 0, 2 hang"), ({0, 1, 2}, "the workers hang")]
)
def test_stuck_names_the_workers_that_are_not_waiting(waiting, who):
    store = HashStore()
    heartbeats = [Heartbeats(store, rank, 3) for rank in range(3)]
    for one in heartbeats:
        one.own = Activity(work="a step")
    ticks(heartbeats, 10, going_on=True)
    for rank, one in enumerate(heartbeats):
        one.own = one.own._replace(turn=99, waits=rank in waiting)
    ticks(heartbeats, 44, going_on=False)
    assert [one.stuck(45.0) for one in heartbeats] == [None] * 3
    ticks(heartbeats, 3, going_on=False)
    for one in heartbeats:
        assert one.stuck(45.0).startswith(f"{who} in a step: there was no progress for 4")


def test_stuck_allows_ten_times_the_longest_time_or_half_an_hour_at_first():
    heartbeats = [Heartbeats(HashStore(), 0, 1)]
    heartbeats[0].own = Activity(work="a checkpoint")
    ticks(heartbeats, 1_795, going_on=False)
    assert heartbeats[0].stuck(45.0) is None
    ticks(heartbeats, 10, going_on=False)
    assert "hangs in a checkpoint" in heartbeats[0].stuck(45.0)

    heartbeats[0].own = Activity(turn=1, work="a step")
    ticks(heartbeats, 20, going_on=False)
    heartbeats[0].own = Activity(turn=2, work="a step")  # so a step takes 20 seconds
    ticks(heartbeats, 195, going_on=False)
    assert heartbeats[0].stuck(45.0) is None
    ticks(heartbeats, 20, going_on=False)
    assert "worker 0 hangs in a step" in heartbeats[0].stuck(45.0)
    heartbeats[0].own = Activity(turn=3)  # what the first worker does alone
    ticks(heartbeats, 5_000, going_on=False)
    assert heartbeats[0].stuck(45.0) is None


def test_work_that_was_done_between_two_heartbeats_is_no_first_work():
    watch = Watch(HashStore(), 0, 1, print, print, silence=SECONDS)
    watch.stop()  # the heartbeats below are the first
    heartbeats = watch._heartbeats
    watch.note(work="a step")
    assert not heartbeats.own.is_repeated
    for _ in range(3):
        watch.note(waits=True)
        watch.note(work="a step")
    ticks([heartbeats], 44, going_on=False)
    assert heartbeats.stuck(45.0) is None
    ticks([heartbeats], 3, going_on=False)
    assert "hangs in a step" in heartbeats.stuck(45.0)


def test_training_tells_workers_which_work_begins(settings):
    notes = []

    class Notes(Workers):
        def begin(self, work: str) -> None:
            notes.append(work)

    train_from_values(settings(train={**TRAIN, "max_steps": 5, "validate_every": 5}), workers=Notes())
    assert notes[:5] == ["a step"] * 5
    assert notes[5:] == ["a validation", "a checkpoint", "", ""]


def test_watch_lost_names_the_silent_worker_after_a_failed_sum(monkeypatch):
    monkeypatch.setattr(watching, "_SECONDS_BETWEEN_HEARTBEATS", 0.02)
    monkeypatch.setattr(watching, "_SECONDS_TO_MISS", 0.05)
    watch = Watch(HashStore(), 1, 2, print, print, silence=SECONDS)
    try:
        assert watch.lost() == [0]
    finally:
        watch.stop()


@pytest.mark.parametrize(
    ("lost", "kind", "message"),
    [
        ([1], LostWorkerError, "worker 1 ended or does not answer"),
        ([], TrainingError, "worker 0 does not reach the others: gloo: no interface eth7$"),
    ],
)
def test_a_failed_sum_of_workers_that_are_all_there_says_its_cause(lost, kind, message):
    workers = Workers(0, 2, HashStore(), _watch=SimpleNamespace(lost=lambda: lost, note=lambda **_: None))
    with pytest.raises(TrainingError, match=message) as caught, workers.together():
        raise RuntimeError("gloo: no interface eth7\nand where in the code")
    assert caught.type is kind


@posix
def test_workers_that_lost_their_launcher_save_and_stop(monkeypatch):
    monkeypatch.setattr(watching, "_SECONDS_BETWEEN_HEARTBEATS", 0.02)

    class Gone:
        def set(self, key: str, value: str) -> None:
            raise RuntimeError("Connection reset by peer")

    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        watch = Watch(Gone(), 0, 2, print, print)
        for thread in watch._threads:
            thread.join(SECONDS)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


@posix
def test_launch_names_the_killed_worker_not_the_first_to_fail(monkeypatch):
    failures = {0: ProcessFailure(0, 11, 1, ""), 1: ProcessFailure(1, 12, -signal.SIGKILL, "")}
    failures[0].timestamp, failures[1].timestamp = 1, 2

    def fail(*_: object) -> None:
        raise ChildFailedError("clearhead", failures)

    monkeypatch.setattr(launching, "elastic_launch", lambda *_: fail)
    with pytest.raises(TrainingError, match="worker 1 was ended by SIGKILL"):
        launching.launch(["train"], 2)
    del failures[1]
    with pytest.raises(SystemExit) as ended:
        launching.launch(["train"], 2)
    assert ended.value.code == 1


def test_settings_that_sharding_cannot_have_are_refused(settings, capsys):
    clearhead(*train_arguments(settings(train={"shard": True, "compile": True})))
    assert "train.shard and train.compile do not go together" in capsys.readouterr().err


def environment() -> dict[str, str]:
    """Return that of this process, without what tells a worker that it is one."""
    return {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}


def test_the_command_asks_the_launcher_for_its_workers(settings, monkeypatch):
    started = []

    def launch(config, entry):
        def run(*arguments):
            started.append((config.nproc_per_node, entry, arguments, os.environ[distributed.SPEAKS]))

        return run

    monkeypatch.setattr(launching, "elastic_launch", launch)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    arguments = [*train_arguments(settings(train=TRAIN)), "--workers", "2"]
    with suppress(SystemExit):
        run_command(arguments)
    [(count, entry, given, speaks)] = started
    assert (count, entry, given[:2], speaks) == (2, sys.executable, ("-m", "clearhead"), "1")
    assert list(given[2:]) == arguments
    assert distributed.SPEAKS not in os.environ


@pytest.mark.slow
def test_the_command_starts_its_workers_itself(settings, alone, tmp_path):
    command = [sys.executable, "-m", "clearhead", *train_arguments(settings(train=TRAIN)), "--workers", "2"]
    (temporary := tmp_path / "temporary").mkdir()
    own = {**environment(), "TMPDIR": str(temporary)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=own)
    assert ended.returncode == 0, ended.stderr
    assert not list(temporary.glob("*elastic*")) + list(temporary.glob("clearhead-*"))
    assert ended.stderr.endswith(f"model:  {tmp_path / 'run' / 'model'}\nreport: {tmp_path / 'run' / 'report.html'}\n")
    assert ended.stderr.count("model:  ") == 1
    assert "Warning" not in ended.stderr
    assert_same_weights(tmp_path / "run", alone)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs all of 127.0.0.0/8 to be this machine")
def test_two_machines_train_and_resume(settings, alone, tmp_path):
    for steps in (10, 20):
        train = {**TRAIN, "max_steps": steps, "schedule": "constant"}
        arguments = train_arguments(settings(train=train))
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        machines = []
        for node in range(2):
            options = ["--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(node), "--master-addr", "127.0.0.1"]
            options += ["--master-port", str(port), "--local-addr", f"127.0.0.{node + 1}"]
            command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "clearhead", *arguments]
            with (tmp_path / f"machine-{node}-{steps}.txt").open("w") as log:
                machines.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment()))
        assert [machine.wait(SECONDS) for machine in machines] == [0, 0]
    wanted = train_from_values(settings(out=str(tmp_path / "one"), train={**TRAIN, "schedule": "constant"})).run
    assert_same_weights(tmp_path / "run", wanted)


def test_restarted_workers_do_not_read_keys_of_earlier_workers():
    store = HashStore()
    earlier = together_in(store, 2)
    earlier[0].set("prepared", "old")
    Workers(0, 2, earlier[0], store).note_afresh()
    now = together_in(store, 2)
    assert not now[1].check(["prepared"])
    now[0].set("prepared", "new")
    assert now[1].get("prepared") == b"new"
    assert Workers(0, 2, now[0], store).began_afresh
    assert not Workers(0, 2, now[0], HashStore()).began_afresh


def together_in(launcher: HashStore, count: int) -> list[Any]:
    """Let workers meet in a store of their launcher, the first one last, and return their own stores."""
    found: dict[int, Any] = {}

    def meet(rank: int) -> None:
        found[rank] = worker_store.own_store(launcher, rank, count)

    in_threads(meet, reversed(range(count)))
    return [found[rank] for rank in range(count)]


def test_crowding_warns_of_more_local_workers_than_cpus(monkeypatch):
    monkeypatch.setattr(distributed, "usable_cpus", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert crowding(torch.device("cpu")) == "3 workers share 2 CPUs: they will wait for each other"
    assert crowding(torch.device("cuda")) is None
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert crowding(torch.device("cpu")) is None
