"""The training benchmark runs on a toy, with whichever peers are installed, and its candidates do the same work."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks import run_benchmark, run_here
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.nn import functional

BENCH = Path(__file__).parents[2] / "bench" / "train.py"
TOY = ["--cases", "toy", "--synthetic", "--threads", "1", "--device", "cpu", "--matrix", "256"]


class ThreadAsProcess(threading.Thread):
    """A thread that takes the place of a candidate's process; like that it has an end of the pipe to itself."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, Connection], daemon: bool) -> None:
        job, pipe = args
        self._pipe = Connection(os.dup(pipe.fileno()))
        super().__init__(target=target, args=(job, self._pipe), daemon=daemon)

    def run(self) -> None:
        with self._pipe:
            super().run()


@contextmanager
def threads_for_processes() -> Iterator[None]:
    """Let candidates take turns in threads: a process of its own takes seconds to import its library."""
    context = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=ThreadAsProcess)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH.parent))
        worker = importlib.import_module("worker")
        patch.setattr(worker, "multiprocessing", SimpleNamespace(get_context=lambda method: context))
        yield


@pytest.fixture(scope="module", autouse=True)
def few_pairs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH.parent))
        patch.setattr(importlib.import_module("work"), "SYNTHETIC_PAIRS", 2_000)
        yield


@pytest.fixture(scope="module")
def steps() -> dict[str, list[tuple[int, tuple[int, ...]]]]:
    """Return, for each candidate, the number and the rows of every batch that it is trained on; `result` fills it."""
    return {}


@pytest.fixture(scope="module")
def result(steps) -> dict[str, Any]:
    with threads_for_processes(), pytest.MonkeyPatch.context() as patch:
        worker = importlib.import_module("worker")
        build = worker.build

        def recording(*arguments: Any) -> Any:
            candidate = build(*arguments)
            seen = steps.setdefault(candidate.name, [])

            def step(batch: Any, number: int) -> float:
                seen.append((number, batch.rows))
                return candidate.step(batch, number)

            return dataclasses.replace(candidate, step=step)

        patch.setattr(worker, "build", recording)
        return json.loads(run_here("train.py", *TOY, "--json", "--profile", "--steps", "3"))


@pytest.fixture(scope="module")
def case(result) -> dict[str, Any]:
    (only,) = result["cases"]
    return only


@pytest.fixture
def load(monkeypatch) -> Callable[[str], ModuleType]:
    """Return a function from its name to a module of the benchmark, which is no part of the package."""
    monkeypatch.syspath_prepend(str(BENCH.parent))
    return importlib.import_module


def test_missing_training_candidates_are_named_with_pip_install(result, case):
    assert {"clearhead", "torch.nn"} <= case["candidates"].keys()
    assert sorted([*case["candidates"], *result["missing"]]) == ["clearhead", "eole", "marian", "opennmt", "torch.nn"]
    assert [line for line in result["missing"].values() if "pip install" not in line] == []


def test_training_tables_hold_the_windows_of_every_candidate(result, case, load):
    [table] = load("run_all").training_tables(result)
    assert table["title"].startswith("Training, toy: 1+2 layers")
    assert table["rows"] == {name: one["windows"] for name, one in case["candidates"].items()}


def test_all_candidates_make_the_same_steps_on_the_same_batches(case, steps):
    assert steps.keys() == case["candidates"].keys()
    first, *others = steps.values()
    assert len(first) >= 4 * 3  # a window to warm up, and three that count
    assert all(one == first for one in others)
    losses = [row["losses"] for row in case["candidates"].values()]
    assert len({len(of_one) for of_one in losses}) == 1
    assert all(math.isfinite(loss) and loss > 0.0 for of_one in losses for loss in of_one)
    # Before its first step each chooses about evenly among 8,000 tokens, whatever it is made of.
    assert [of_one[0] for of_one in losses] == pytest.approx([math.log(8_000)] * len(losses), abs=1.0)


@pytest.mark.slow
def test_each_candidate_has_the_memory_of_a_process_of_its_own():
    [case] = json.loads(run_benchmark("train.py", *TOY, "--json", "--steps", "2"))["cases"]
    assert {"clearhead", "torch.nn"} <= case["candidates"].keys()
    for row in case["candidates"].values():
        assert row["memory_mib"]["peak"] >= row["memory_mib"]["before"] > 50  # PyTorch alone takes more


def test_every_parameter_that_differs_is_explained(case):
    ours = case["candidates"]["clearhead"]["parameters"]
    for name, row in case["candidates"].items():
        assert "unexplained" not in row["differences"], name
        assert row["parameters"] == ours + sum(row["differences"].values())


def test_speeds_are_windows_beside_a_matrix_peak_of_the_same_rounds(case):
    assert len(case["matrix_peak_gflops"]) == 3
    for row in case["candidates"].values():
        assert len(row["windows"]) == 3
        flops = row["tokens_per_second"] * case["flops_per_target_token"]
        assert row["share_of_peak"] == pytest.approx(flops / sorted(case["matrix_peak_gflops"])[1] / 1e9)
    assert all(len(values) == 3 for values in case["ratios"].values())


def test_model_flops_are_those_of_the_formula(case):
    encoder, decoder, output = 1 * (4 * 12**2 + 2 * 12 * 20), 2 * (8 * 12**2 + 2 * 12 * 20), 8_000 * 12
    ratio = float(re.search(r" x (\d\.\d{3}) \+", case["formula"])[1])  # source tokens a target token
    attention = case["flops_per_target_token"] - 6 * (decoder + output) - 6 * encoder * ratio
    # A target token attends to about 8 of 15 target tokens and to all 15 sources, twice; a source token to 15, once.
    assert attention == pytest.approx(12 * 12 * (15 + 2 * (8 + 15)), rel=0.3)


def test_the_profile_finds_every_kind_of_work(case):
    for row in case["candidates"].values():
        assert min(row["profile"].values()) > 0.0


def test_the_profile_tells_products_with_the_vocabulary_from_those_of_layers_also_backwards(load, monkeypatch):
    profiling, candidate = load("profiling"), load("candidate")
    # Every matrix product takes a second, everything else no time.
    takes = property(lambda event: 1e6 * (event.name in ("aten::mm", "aten::addmm")))
    monkeypatch.setattr(FunctionEvent, "self_cpu_time_total", takes)
    model = nn.Sequential(nn.Embedding(101, 12), nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 101, bias=False))

    def step(ids, number):
        loss = functional.cross_entropy(model(ids), ids)
        loss.backward()
        return loss.item()

    toy = candidate.Candidate("toy", model, step)
    spent = profiling.profile_steps(toy, [torch.arange(7), torch.arange(11)])
    # Each product forward has two backward: for its input and for its weight.
    assert {group: value for group, value in spent.items() if value} == {
        "layer products": pytest.approx(3_000.0),
        "vocabulary product + loss": pytest.approx(3_000.0),
    }


def test_kernels_of_a_trace_are_counted_for_a_step(load):
    events = [
        {"cat": "kernel", "name": "gemm", "dur": 3_000.0},
        {"cat": "kernel", "name": "gemm", "dur": 5_000.0},
        {"cat": "kernel", "name": "add", "dur": 1_000.0},
        {"cat": "gpu_memcpy", "name": "Memcpy DtoH", "dur": 2_000.0},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 7.0},
        {"cat": "cuda_driver", "name": "cuLaunchKernelEx", "dur": 7.0},
        {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "dur": 7.0},
        {"cat": "cpu_op", "name": "aten::mm", "dur": 9.0},
        {"ph": "M", "name": "process_name"},
    ]
    assert load("profiling").kernels_of(events, steps=2) == {
        "kernels": 1.5,
        "copies": 0.5,
        "launches": 1.0,
        "synchronizations": 0.5,
        "busy_ms": 5.5,
        "by_name": [["gemm", 1.0, 4.0], ["Memcpy DtoH", 0.5, 1.0], ["add", 0.5, 0.5]],
    }


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs bash")
def test_gpu_sh_refuses_unknown_parts():
    script = BENCH.with_name("gpu.sh")
    done = subprocess.run(["/bin/bash", str(script), "trainings"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "no part 'trainings'; there are: tests training search\n")


def test_the_table_shows_speed_memory_and_ratios(case, load, monkeypatch, capsys):
    bench = load("train")
    memory = {"memory_mib": {"peak": 2_345, "before": 678}}
    rows = {name: {**row, **memory} for name, row in case["candidates"].items()}
    monkeypatch.setattr(bench, "_measure", lambda *_: {**case, "candidates": rows})
    monkeypatch.setattr(sys, "argv", [str(BENCH), *TOY])
    bench.main()
    printed = capsys.readouterr().out
    for name in ("clearhead", "torch.nn"):
        row = re.search(rf"^  {re.escape(name)} +[\d,]+ +\d+\.\d% +([\d,]+) \(([\d,]+)\)", printed, flags=re.MULTILINE)
        assert row.groups() == ("2,345", "678")
    assert re.search(r"clearhead / torch.nn: speed \d+\.\d\d .*, peak memory \d\.\d\d \(", printed)
    assert re.search(r"clearhead / the best peer, [\w.]+: speed \d+\.\d\d .*, peak memory \d\.\d\d \(", printed)


def test_fewer_than_three_windows_are_refused(load, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(BENCH), *TOY, "--rounds", "2"])
    with pytest.raises(SystemExit, match="2"):
        load("train").main()
    assert "'2' is not a whole number from 3 up" in capsys.readouterr().err


def test_the_process_of_a_candidate_ends_with_the_benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH.parent))
    worker = importlib.import_module("worker")
    candidate = SimpleNamespace(num_parameters=1, differences="", prepare=lambda _: None)
    for name, value in (("PairStore.open", None), ("choose_batches", []), ("build", candidate)):
        monkeypatch.setattr(f"worker.{name}", lambda *_, value=value: value)
    for asked in (1, 0):  # stopped while it waits, and while it prepares
        ours, theirs = multiprocessing.Pipe()
        if asked:
            ours.send(("profile", 0))
            monkeypatch.setattr(worker, "profile_steps", lambda *_, ours=ours: ours.close())
        else:
            ours.close()
        with theirs:
            worker._work(
                worker.Job("clearhead", "toy", Path(), 96, 1, torch.get_num_threads(), "cpu", "float32"), theirs
            )
