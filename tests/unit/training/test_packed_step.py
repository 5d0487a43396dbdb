"""Packed steps: the weights of padded steps, nothing that waits for the device, and nothing moved by a bad step.

They run on a GPU; here on the CPU, with attention of packed rows by plain products, and on a device without values.
"""

from __future__ import annotations

import re
import subprocess
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.config import Config, ModelConfig, TrainConfig
from clearhead.config.nested import merge
from clearhead.data.batches import BatchOrder, collate
from clearhead.data.store import PairStore, StoreWriter
from clearhead.errors import TrainingError
from clearhead.model import Transformer
from clearhead.training import packed_step, steps
from clearhead.training.log import read_metrics
from clearhead.training.optimizer import build_optimizer, optimizer_state
from clearhead.training.own_parts import NO_OWN_PARTS, OwnParts
from clearhead.training.packed_batches import PackedShape
from clearhead.training.packed_step import PackedStepper, packed_loss, with_bf16_weights
from clearhead.training.run import train_from_values
from clearhead.training.step import Stepper
from processes import call, finish, start
from small_runs import QUICK, assert_same_weights, train_arguments, weights

SPECIAL = {"pad_id": 0, "bos_id": 1}
SIZES = {"vocab_size": 41, "d_model": 32, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 3}
LENGTHS = [(3, 11), (7, 2), (2, 7), (13, 5), (5, 3), (11, 13), (1, 1)]
PARTS = [np.array([0, 3, 4]), np.array([1, 2, 5, 6])]
TOKENS = sum(target for _, target in LENGTHS)


@pytest.fixture
def store(tmp_path: Path) -> PairStore:
    draw = np.random.default_rng(3)
    with StoreWriter(tmp_path / "pairs.arrow") as writer:
        for source, target in LENGTHS:
            writer.append("", "", *([*draw.integers(3, 41, length - 1).tolist(), 2] for length in (source, target)))
    return PairStore.open(tmp_path / "pairs.arrow")


@pytest.fixture
def shape(store: PairStore) -> PackedShape:
    return PackedShape.of((store.source_lengths[rows], store.target_lengths[rows]) for rows in PARTS)


def numbers_of(store: PairStore, shape: PackedShape, rows: np.ndarray) -> Tensor:
    return shape.pack([store.source_ids(row) for row in rows], [store.target_ids(row) for row in rows], **SPECIAL)


def trained_model(**values: object) -> Transformer:
    return Transformer(ModelConfig(**{**SIZES, "dropout": 0.0, **values})).double().train()


def packed_stepper(model: Transformer, shape: PackedShape, train: TrainConfig) -> PackedStepper:
    return PackedStepper(model, build_optimizer(model, train), train, shape, is_compiled=False)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_packed_steps_move_the_weights_as_padded_steps_do(store, shape, optimizer):
    train = TrainConfig(optimizer=optimizer, weight_decay=0.03, clip_norm=0.7, precision="fp32")
    model = trained_model(norm="pre")
    padded_model = deepcopy(model)
    padded = Stepper(padded_model, build_optimizer(padded_model, train), train)
    packed = packed_stepper(model, shape, train)
    expected = []
    for number in (1, 2, 3):
        expected.append(padded.step([collate(store, rows, **SPECIAL) for rows in PARTS], number=number, rate=0.01))
        parts = [numbers_of(store, shape, rows) for rows in PARTS]
        packed.step(parts, number=number, rate=0.01, tokens=TOKENS)
    for result, right in zip(packed.results(), expected, strict=True):
        assert result.target_tokens == right.target_tokens
        assert (result.loss, result.nll, result.grad_norm) == pytest.approx(
            (right.loss, right.nll, right.grad_norm), rel=1e-5
        )
    assert packed.results() == []
    torch.testing.assert_close(model.state_dict(), padded_model.state_dict(), rtol=1e-4, atol=1e-6)
    states = optimizer_state(model, packed.optimizer), optimizer_state(padded_model, padded.optimizer)
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)


def test_bfloat16_copies_of_weights_train_as_autocast_does_with_fewer_operations(store, shape, monkeypatch):
    monkeypatch.setitem(packed_step.PRECISIONS, "cpu", "bf16")
    monkeypatch.setattr(packed_step, "model_products", lambda *_, is_bf16: torch.autocast("cpu", torch.bfloat16))
    results, counts = [], []
    for with_copies in (with_bf16_weights, lambda model: model):
        monkeypatch.setattr(packed_step, "with_bf16_weights", with_copies)
        torch.manual_seed(3)
        model = Transformer(ModelConfig(**SIZES, dropout=0.1, norm="pre", attention_bias=True)).train()
        stepper = packed_stepper(model, shape, TrainConfig())
        for number in (1, 2, 3):
            with Operations() as operations:
                parts = [numbers_of(store, shape, rows) for rows in PARTS]
                stepper.step(parts, number=number, rate=0.01, tokens=TOKENS)
        counts.append(operations.count)
        results.append((model.state_dict(), optimizer_state(model, stepper.optimizer), stepper.results()))
        assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    (*states, measured), (*expected, expected_measured) = results
    torch.testing.assert_close(states, expected, rtol=0, atol=0)
    assert measured == expected_measured
    assert counts[0] < counts[1]


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_step_that_is_not_finite_leaves_weights_and_moments_and_the_next_one_moves(store, shape, optimizer):
    model = trained_model()
    stepper = packed_stepper(model, shape, TrainConfig(optimizer=optimizer, precision="fp32"))
    parts = [numbers_of(store, shape, rows) for rows in PARTS]
    stepper.step(parts, number=1, rate=0.01, tokens=TOKENS)
    before = deepcopy((model.state_dict(), optimizer_state(model, stepper.optimizer)))
    weight = model.decoder.layers[0].feed_forward.up_proj.weight
    handle = weight.register_hook(lambda gradient: gradient * torch.inf)
    stepper.step(parts, number=2, rate=0.02, tokens=TOKENS)
    handle.remove()
    torch.testing.assert_close((model.state_dict(), optimizer_state(model, stepper.optimizer)), before, rtol=0, atol=0)
    stepper.step(parts, number=3, rate=0.01, tokens=TOKENS)
    assert not weight.equal(before[0]["decoder.layers.0.feed_forward.up_proj.weight"])
    assert all(tensor.isfinite().all() for tensor in optimizer_state(model, stepper.optimizer).values())
    assert [result.is_skipped for result in stepper.results()] == [False, True, False]


def test_a_batch_has_every_pair_once_and_fill_behind(store, shape):
    assert (shape.source_tokens, shape.target_tokens, shape.sentences, shape.longest) == (128, 128, 4, 13)
    rows = PARTS[1]
    batch = shape.views(numbers_of(store, shape, rows))
    sources, targets = (
        [ids[start:end].tolist() for start, end in zip(side.starts[:-1], side.starts[1:], strict=True)]
        for ids, side in ((batch.source, batch.source_side), (batch.target_out, batch.target_side))
    )
    assert sources[:4] == [store.source_ids(row).tolist() for row in rows]
    assert targets[:4] == [store.target_ids(row).tolist() for row in rows]
    assert (set(sources[4]), set(targets[4])) == ({0}, {0})
    first = batch.target_side.starts[:4]
    assert batch.target_in[first].tolist() == [1] * 4
    assert batch.target_side.sentences.bincount().tolist() == [2, 7, 13, 1, 105]


@pytest.mark.parametrize(("batch_tokens", "least", "fill"), [(4_000, 1, 0.8), (14_000, 1, 0.9), (14_000, 5, 0.8)])
def test_parts_of_all_steps_have_one_size_and_few_of_their_rows_are_fill(tmp_path, batch_tokens, least, fill):
    draw = np.random.default_rng(11)
    with StoreWriter(tmp_path / "skewed.arrow") as writer:
        for target in draw.integers(2, 40, 5_000).tolist():
            source = int(target * (3 if draw.random() < 0.02 else 1)) + int(draw.integers(1, 9))
            writer.append("", "", *([*draw.integers(3, 41, length - 1).tolist(), 2] for length in (source, target)))
    skewed = PairStore.open(tmp_path / "skewed.arrow")
    train = TrainConfig(batch_tokens=batch_tokens, micro_batch_tokens=4_096, accumulate=least)
    order = BatchOrder(skewed.source_lengths, skewed.target_lengths, batch_tokens=batch_tokens, seed=5)
    batches = steps.PackedBatches(skewed, order, Config(train=train), is_pinned=False)
    used, parts = np.zeros(2), list[Tensor]()
    for step in range(2 * order.batches_per_epoch):
        of_step, tokens = batches.of_step(step)
        assert len(of_step) >= least
        assert tokens == skewed.target_lengths[order.rows(step)].sum()
        parts += of_step
    for numbers in parts:
        batch = batches.shape.views(numbers)
        used += [int((side != 0).sum()) for side in (batch.source, batch.target_out)]
    assert used.tolist() == [2 * skewed.source_lengths.sum(), 2 * skewed.target_lengths.sum()]
    assert {len(numbers) for numbers in parts} == {batches.shape.size}
    assert (used / len(parts) / (batches.shape.source_tokens, batches.shape.target_tokens) > fill).all()


@pytest.mark.parametrize("settings", [{}, {"positions": "rotary", "gated": True}, {"positions": "learned"}])
def test_step_waits_for_no_value_of_the_device(shape, settings):
    """On the device `meta` tensors have no values: what waits for one raises."""
    with torch.device("meta"):
        model = Transformer(ModelConfig(**SIZES, **settings)).train()
        parts = [torch.zeros(shape.size, dtype=torch.int32)] * 2
    stepper = packed_stepper(model, shape, TrainConfig())
    stepper.optimizer.step = Mock()  # the fused kernels do not know this device
    stepper.step(parts, number=1, rate=0.01, tokens=TOKENS)
    assert {weight.grad.device.type for weight in model.parameters()} == {"meta"}
    with pytest.raises(RuntimeError, match="meta tensor"):
        stepper.results()


class Operations(TorchDispatchMode):
    """Number of operations that compute; those that only describe a tensor anew do not count."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function.__name__.partition(".")[0]
        is_view = name.endswith(("view", "expand", "select", "squeeze", "transpose", "slice")) or name in (
            *("t", "detach", "alias", "permute", "unbind", "split", "split_with_sizes", "as_strided"),
        )
        self.count += not is_view
        return function(*arguments, **(options or {}))


def test_number_of_operations_of_a_packed_step_is_below_that_of_a_padded_one_for_any_batch(store, shape):
    train = TrainConfig(optimizer="muon", precision="fp32")
    packed, padded = trained_model(), trained_model()
    packed_steps = packed_stepper(packed, shape, train)
    padded_steps = Stepper(padded, build_optimizer(padded, train), train)
    counts = []
    for rows in (PARTS[1], *PARTS):
        with Operations() as of_packed:
            packed_steps.step([numbers_of(store, shape, rows)], number=1, rate=0.01, tokens=TOKENS)
        with Operations() as of_padded:
            padded_steps.step([collate(store, rows, **SPECIAL)], number=1, rate=0.01)
        counts.append((of_packed.count, of_padded.count))
    assert counts[1][0] == counts[2][0]  # the first step also makes the state of the optimiser
    assert all(of_packed < of_padded for of_packed, of_padded in counts[1:])


def compile_in_one_graph(shape: PackedShape) -> None:
    compiled = torch.compile(packed_loss, fullgraph=True, dynamic=False, backend="aot_eager")
    model = Transformer(ModelConfig(**SIZES)).train()
    for _ in range(2):
        with torch.compiler.set_stance("default" if _ == 0 else "fail_on_recompile"):
            loss, _ = compiled(model, shape.views(torch.zeros(shape.size, dtype=torch.int32)), 0.1)
        loss.backward()


def test_packed_loss_is_one_graph_and_compiled_once(shape):
    assert call(partial(compile_in_one_graph, shape)) == 0


def test_packed_run_learns_what_a_padded_one_does_and_resumes_exactly(settings, packed_runs, monkeypatch, tmp_path):
    """Records are read at steps 14, 25 and 28: before a validation, for the log, and before the next validation."""
    steps = {"validate_every": 14, "checkpoint_every": 20, "schedule": "constant", "warmup_steps": 3}
    values = {name: settings(out=str(tmp_path / name), train=steps, model={"dropout": 0.0}) for name in "abc"}
    train_from_values(values["a"])
    for max_steps in (17, 40):
        train_from_values(merge(values["b"], {"train": {"max_steps": max_steps}}))
    assert_same_weights(
        tmp_path / "a" / "checkpoints" / "step-00000040", tmp_path / "b" / "checkpoints" / "step-00000040"
    )
    monkeypatch.undo()
    train_from_values(values["c"])
    packed, padded = (read_metrics(tmp_path / name / "metrics.jsonl") for name in "ac")
    assert [record["step"] for record in packed] == [record["step"] for record in padded]
    for record, expected in zip(packed, padded, strict=True):
        same = [name for name in expected if name in ("loss", "nll", "grad_norm", "lr", "bleu", "chrf")]
        assert {name: record[name] for name in same} == pytest.approx({name: expected[name] for name in same}, rel=1e-3)


def test_packed_steps_are_timed_before_a_packed_run(settings, packed_runs, capsys):
    assert train_from_values(settings(train={"max_steps": 2})).step == 2
    assert re.search(r"plan: about 2 steps, .*; compiled the training step in \d+ s;", capsys.readouterr().err)


def test_packed_run_that_explodes_ends_before_anything_is_saved(settings, packed_runs):
    values = settings(train={"learning_rate": 1e9, "schedule": "constant", "warmup_steps": 1, "clip_norm": 0.0})
    with pytest.raises(TrainingError, match=r"stopped at step 4: .*no checkpoint is 25 steps older than step 2"):
        train_from_values(values)
    assert not list(Path(values["out"], "checkpoints").glob("step-*"))


class CompilationError(Exception):
    """An error of a compiler, by its module's name."""

    __module__ = "triton.compiler.errors"


def failing_compiler(kind: str) -> None:
    try:
        if kind == "wrapped":
            raise CompilationError("at 7:12")
        if kind == "a missing program":
            subprocess.run(["no-such-compiler"], check=True)
    except CompilationError as error:
        raise RuntimeError("inside") from error
    raise {"an error of the step": ValueError, "memory": torch.OutOfMemoryError}[kind]("wrong")


class FailingStepper(PackedStepper):
    """A stepper whose forms in `failing` raise what a compiler raises."""

    failing: ClassVar[set[bool]] = {True}
    kind = "wrapped"

    def __init__(self, *parts: Any, is_compiled: bool) -> None:
        super().__init__(*parts, is_compiled=False)
        self._is_failing = is_compiled in self.failing

    def step(self, *parts: Any, **options: Any) -> Any:
        if self._is_failing:
            failing_compiler(self.kind)
        return super().step(*parts, **options)


@pytest.mark.parametrize(
    ("failing", "kind", "named"),
    [
        ({True}, "wrapped", "CompilationError: at 7:12"),
        ({True, False}, "a missing program", "FileNotFoundError: .*no-such-compiler"),
    ],
)
def test_run_continues_without_a_compiler_that_fails(
    settings, packed_runs, monkeypatch, capsys, tmp_path, failing, kind, named
):
    values = settings(out=str(tmp_path / "whole"), train=QUICK, model={"dropout": 0.0})
    expected = weights(train_from_values(values).run / "model")
    monkeypatch.setattr(steps, "PackedStepper", FailingStepper)
    monkeypatch.setattr(FailingStepper, "failing", failing)
    monkeypatch.setattr(FailingStepper, "kind", kind)
    found = weights(train_from_values({**values, "out": str(tmp_path / "other")}).run / "model")
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    notices = [line for line in capsys.readouterr().err.splitlines() if "slower than it could be" in line]
    assert len(notices) == 1
    assert re.search(rf"compiler of its step failed \({named}.*\); it needs triton \(pip install triton\)", *notices)


@pytest.mark.parametrize("kind", ["an error of the step", "memory"])
def test_an_error_of_the_step_itself_is_raised(settings, packed_runs, monkeypatch, kind):
    monkeypatch.setattr(steps, "PackedStepper", FailingStepper)
    monkeypatch.setattr(FailingStepper, "kind", kind)
    with pytest.raises((ValueError, TrainingError), match=r"wrong|out of memory at step 1"):
        train_from_values(settings(train=QUICK))


def train_on_gpu(directory: Path) -> None:
    """Make steps in bfloat16, compiled and recorded, and those of the padded stepper; recorded ones must not wait."""
    store = PairStore.open(directory / "pairs.arrow")
    shape = PackedShape.of((store.source_lengths[rows], store.target_lengths[rows]) for rows in PARTS)
    train = TrainConfig(precision="bf16")
    model = Transformer(ModelConfig(**SIZES, dropout=0.0)).cuda().train()
    padded_model = deepcopy(model)
    padded = Stepper(padded_model, build_optimizer(padded_model, train), train)
    packed = PackedStepper(model, build_optimizer(model, train), train, shape)
    parts = [numbers_of(store, shape, rows).pin_memory() for rows in PARTS]
    batches = [collate(store, rows, **SPECIAL) for rows in PARTS]
    expected = [padded.step(batches, number=number, rate=0.01).nll for number in range(1, 9)]
    for number in range(1, 9):
        torch.cuda.set_sync_debug_mode("error" if number > 4 else "default")
        packed.step(parts, number=number, rate=0.01, tokens=TOKENS)
    torch.cuda.set_sync_debug_mode("default")
    assert [result.nll for result in packed.results()] == pytest.approx(expected, rel=0.03)


@pytest.mark.gpu
def test_packed_steps_on_a_gpu_follow_padded_ones_and_do_not_wait(store, tmp_path):
    assert call(partial(train_on_gpu, tmp_path)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("is_deterministic", [False, True])
def test_packed_run_on_a_gpu_resumes(settings, tmp_path, is_deterministic):
    """Data and dropout are the same; a compiled gradient of embeddings adds in any order, so last bits may differ."""
    model, steps = {"d_model": 32, "d_ff": 24}, {"schedule": "constant", "warmup_steps": 3}
    steps["deterministic"] = is_deterministic
    for name, lengths in (("a", (40,)), ("b", (17, 40))):
        for max_steps in lengths:
            values = settings(
                out=str(tmp_path / name), device="cuda", model=model, train={**steps, "max_steps": max_steps}
            )
            assert finish(start(train_arguments(values), tmp_path / "log.txt")) == 0
    assert "compiled the training step" in (tmp_path / "log.txt").read_text()
    last = Path("checkpoints", "step-00000040")
    rtol, atol = (0, 0) if is_deterministic else (0.02, 1e-3)
    torch.testing.assert_close(weights(tmp_path / "a" / last), weights(tmp_path / "b" / last), rtol=rtol, atol=atol)


PADDED = {
    "on a CPU": ({}, {}, "cpu", 1),
    "in fp32": ({}, {"precision": "fp32"}, "cuda", 1),
    "not compiled": ({}, {"compile": False}, "cuda", 1),
    "LoRA": ({}, {"lora_rank": 2}, "cuda", 1),
    "several workers": ({}, {}, "cuda", 2),
    "width of values": ({"d_k": 16, "d_v": 32}, {}, "cuda", 1),
    "width of heads": ({"num_heads": 4}, {}, "cuda", 1),
    "attention dropout": ({"attention_dropout": 0.1}, {}, "cuda", 1),
    "relative positions": ({"positions": "relative"}, {}, "cuda", 1),
    "without encoder": ({"num_encoder_layers": 0}, {}, "cuda", 1),
}


@pytest.mark.parametrize(("model", "train", "device", "workers"), PADDED.values(), ids=PADDED)
def test_is_packed_leaves_to_padded_batches_what_the_kernel_does_not_compute(
    monkeypatch, model, train, device, workers
):
    monkeypatch.setattr(steps, "has_fast_bf16", lambda _: True)
    monkeypatch.setattr("clearhead.training.step.has_fast_bf16", lambda _: True)

    def asked(model, train, device, workers, has_links=False, own=NO_OWN_PARTS, **data):
        start = "m" if "lora_rank" in train else None
        config = Config(model={**SIZES, **model}, train=train, data=data, from_model=start)
        pairs = Mock(has_links=has_links)
        return steps.is_packed(config, torch.device(device), pairs, Mock(count=workers), own)

    assert not asked(model, train, device, workers)
    assert asked({}, {}, "cuda:1", 1)
    assert not asked({}, {}, "cuda", 1, has_links=True)
    assert not asked({}, {}, "cuda", 1, pairs=["a.tsv", "b.tsv"], temperature=2.0)
    assert not asked({}, {}, "cuda", 1, pairs=["a.tsv"], weights=[0.5])
    assert asked({}, {}, "cuda", 1, pairs=["a.tsv"], weights=[2])
    assert not asked({}, {}, "cuda", 1, own=OwnParts(loss=lambda *_: None))
