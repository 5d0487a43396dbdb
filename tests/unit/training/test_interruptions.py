"""Runs that are killed, stopped, or started twice: the same command finishes them, bit for bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.bundle import load_bundle
from clearhead.files import writing
from clearhead.files.tensors import read_weights
from clearhead.training.log import read_metrics
from commands import clearhead
from every_run import slow
from processes import FileOperations, finish, signal_after_first_record, start, wait_until
from small_runs import train_arguments

PARTS = ("model", "optimizer")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def log_without_clock(run: Path) -> list[dict[str, object]]:
    records = read_metrics(run / "metrics.jsonl")
    return [{k: v for k, v in record.items() if k not in ("elapsed", "tokens_per_second")} for record in records]


def state_without_clock(run: Path) -> dict[str, object]:
    state = json.loads((newest(run) / "state.json").read_text())
    del state["elapsed"], state["window"]["seconds"]
    return state


def assert_same_run(run: Path, expected: Path) -> None:
    """Compare all that a run leaves behind, except for clocks."""
    assert newest(run).name == newest(expected).name
    for name in ("model/model.safetensors", *(f"{newest(run).relative_to(run)}/{n}.safetensors" for n in PARTS)):
        found, wanted = read_weights(run / name)[0], read_weights(expected / name)[0]
        assert found.keys() == wanted.keys()
        assert [n for n in wanted if not torch.equal(found[n], wanted[n])] == []
    assert state_without_clock(run) == state_without_clock(expected)
    log = log_without_clock(run)
    assert log == log_without_clock(expected)
    assert len({(record["split"], record["step"]) for record in log}) == len(log)
    assert (run / "attention.jsonl").read_bytes() == (expected / "attention.jsonl").read_bytes()
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == sorted(
        path.name for path in (expected / "checkpoints").iterdir()
    )
    assert load_bundle(run).info["weights"] == load_bundle(expected).info["weights"]
    assert (run / "report.html").read_text(encoding="utf-8").endswith("</html>\n")


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


class Runs:
    """Runs of the same settings in directories of their own, the first of them uninterrupted."""

    def __init__(self, directory: Path, settings: Callable[..., dict[str, Any]], **changes: object) -> None:
        self.directory = directory
        self.log = directory / "log.txt"
        self.settings = settings
        self.changes = changes
        operations = FileOperations()
        self.expected = directory / "expected"
        assert finish(self.start("expected", operations.until(None))) == 0, self.log.read_text()
        self.file_operations = operations.done

    def start(self, name: str, first: Callable[[], None] | None = None) -> ForkServerProcess:
        values = self.settings(**self.changes, out=str(self.directory / name))
        return start(train_arguments(values), self.log, first)

    def finish(self, name: str) -> None:
        assert finish(self.start(name)) == 0, self.log.read_text()
        assert_same_run(self.directory / name, self.expected)


def kill_and_finish(runs: Runs, kills: int, kill_once: Callable[[], int | None]) -> None:
    """Kill runs again and again, let them finish, and compare them with the uninterrupted one."""
    done = 0
    while done < kills:
        for _ in range(min(7, kills - done)):  # a run that is never left in peace never ends
            code = kill_once()
            assert code in (0, -signal.SIGKILL), runs.log.read_text()
            if code == 0:
                break
            done += 1
        runs.finish("run")
        shutil.rmtree(runs.directory / "run")


@pytest.mark.parametrize("kills", [1, slow(20)])
def test_a_run_killed_before_any_of_its_file_operations_ends_with_the_same_bits(tmp_path, settings, kills):
    # From the preparation of the data to the report. Between two of them it writes into files that are open, and
    # trains; the slow test below kills it there too.
    runs = Runs(tmp_path, settings, train={"max_steps": 15, "validate_every": 7, "checkpoint_every": 5})
    choose = random.Random(1)

    def kill_once() -> int | None:
        return finish(runs.start("run", FileOperations().until(choose.randint(1, runs.file_operations))))

    kill_and_finish(runs, kills, kill_once)


@pytest.mark.parametrize("kills", [2, slow(20)])
def test_a_killed_start_over_leaves_the_earlier_run_whole(tmp_path, settings, kills):
    runs = Runs(tmp_path, settings, train={"max_steps": 2, "validate_every": 2, "checkpoint_every": 2})
    earlier = contents(runs.expected)
    choose = random.Random(2)
    for _ in range(kills):
        shutil.copytree(runs.expected, tmp_path / "run")
        values = runs.settings(**runs.changes, out=str(tmp_path / "run"))
        killed = FileOperations().until(choose.randint(1, runs.file_operations))
        assert finish(start([*train_arguments(values), "--fresh"], runs.log, killed)) in (0, -signal.SIGKILL)
        stays, aside = tmp_path / "run", tmp_path / "run.old-1"
        assert contents(aside if (aside / "report.html").exists() else stays) == earlier
        assert stays.exists()
        for path in tmp_path.iterdir():
            if "run" in path.name:
                shutil.rmtree(path)


def _kill_at_exchange() -> None:
    """Let the process be killed after the new run has its name beside the earlier one, before both are exchanged."""
    writing._exchange = lambda first, second: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]


def test_a_start_over_killed_before_the_exchange_leaves_the_earlier_run_in_its_place(tmp_path, settings):
    runs = Runs(tmp_path, settings, train={"max_steps": 2, "validate_every": 2, "checkpoint_every": 2})
    earlier = contents(runs.expected)
    shutil.copytree(runs.expected, tmp_path / "run")
    values = runs.settings(**runs.changes, out=str(tmp_path / "run"))
    command = [*train_arguments(values), "--fresh"]
    assert finish(start(command, runs.log, _kill_at_exchange)) == -signal.SIGKILL
    assert contents(tmp_path / "run") == earlier
    assert finish(start(command, runs.log)) == 0, runs.log.read_text()
    assert contents(tmp_path / "run.old-2") == earlier
    assert_same_run(tmp_path / "run", runs.expected)


@pytest.mark.slow
def test_a_killed_run_from_a_model_starts_from_the_same_weights(tmp_path, settings, finished_run):
    train = {"max_steps": 20, "validate_every": 10, "checkpoint_every": 5}
    runs = Runs(tmp_path, settings, from_model=str(finished_run), train=train)
    at = iter([0.4, 0.7])  # shares of its life

    def kill_once() -> int | None:
        return finish(runs.start("run", FileOperations().until(round(runs.file_operations * next(at, 2.0)))))

    kill_and_finish(runs, 2, kill_once)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_forty_kills_at_any_moment_change_nothing_either(tmp_path, settings, seed):
    runs = Runs(tmp_path, settings, train={"max_steps": 101, "validate_every": 17, "checkpoint_every": 11})
    began = time.monotonic()
    runs.finish("run")
    life = time.monotonic() - began
    shutil.rmtree(tmp_path / "run")
    choose = random.Random(seed)

    def kill_once() -> int | None:
        process = runs.start("run")
        process.join(choose.uniform(0.0, life))
        process.kill()
        return finish(process)

    kill_and_finish(runs, 20, kill_once)


# No regular checkpoint is due: what is there afterwards was written because of the signal.
STOPPED = {"max_steps": 30, "validate_every": 30, "checkpoint_every": 30}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), slow(signal.SIGINT, 130)])
def test_run_stopped_by_a_signal_resumes_exactly(tmp_path, settings, number, code, capsys):
    def end_of(name: str) -> int:
        return clearhead(*train_arguments(settings(train=STOPPED, out=str(tmp_path / name))))

    assert not end_of("expected")
    signal_after_first_record(number)
    assert end_of("run") == code
    assert newest(tmp_path / "run").name == "step-00000025"
    assert not end_of("run")
    assert "resuming after step 25" in capsys.readouterr().err
    assert_same_run(tmp_path / "run", tmp_path / "expected")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_run_is_saved_first_and_the_same_command_finishes_it(tmp_path, settings, number, code):
    runs = Runs(tmp_path, settings, train=STOPPED)
    runs.log.unlink()
    assert finish(runs.start("run", partial(signal_after_first_record, number))) == code
    assert newest(tmp_path / "run").name == "step-00000025"
    assert "stopped after step 25; the same command continues from there" in runs.log.read_text()
    runs.finish("run")
    assert "resuming after step 25" in runs.log.read_text()


def test_a_run_stopped_during_preparation_leaves_nothing_half_made(tmp_path, settings):
    values = settings()
    os.mkfifo(tmp_path / "slow.tsv")  # without a writer: preparation waits for its text
    values["data"]["pairs"] = [str(tmp_path / "slow.tsv")]
    process = start(train_arguments(values), tmp_path / "log.txt")
    run = Path(values["out"])
    wait_until(lambda: any(run.glob(".data.*.partial")), process)
    os.kill(process.pid, signal.SIGTERM)
    assert finish(process) == 143
    assert not run.exists()


def test_two_processes_cannot_train_in_one_run(tmp_path, settings):
    values = settings(train={"max_steps": 100_000, "patience": 100_000})
    first, log = start(train_arguments(values), tmp_path / "first.txt"), tmp_path / "second.txt"
    run = Path(values["out"])
    try:
        wait_until((run / "config.toml").exists, first)
        os.kill(first.pid, signal.SIGSTOP)  # in the middle of its training, however long the others take
        for more in ([], ["--fresh"]):
            assert finish(start([*train_arguments(values), *more], log)) == 1
            assert f"another process is training in {run}" in log.read_text()
            log.unlink()
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]
    finally:
        first.kill()
    assert finish(first) == -signal.SIGKILL


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_room_lets_it_finish(tmp_path, settings):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o"]
    if (
        shutil.which("mount") is None
        or subprocess.run([*mount, "size=600k", "tmpfs", str(disk)], capture_output=True).returncode
    ):
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        runs = Runs(tmp_path, settings, train={"keep_checkpoints": 5})
        assert finish(runs.start("disk/run")) == 1
        message = runs.log.read_text().splitlines()[-1]
        assert message.startswith("clearhead: cannot write")
        assert "disk is full" in message or "No space left" in message
        good = newest(disk / "run")
        subprocess.run([*mount, "remount,size=8m", str(disk)], check=True)
        runs.finish("disk/run")
        assert f"resuming after step {int(good.name[5:])}" in runs.log.read_text()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
