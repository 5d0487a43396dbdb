"""Checkpoints survive damage, kills and full disks; the newest good one is found, and the right ones are kept."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest
import torch
from deadline import within

from clearhead.errors import CheckpointError
from clearhead.training import checkpoints as module
from clearhead.training.checkpoints import CHECKPOINT_FORMAT, Best, Checkpoints, TrainingState, disk_trouble
from clearhead.training.log import Window
from clearhead.training.shards import read_tensors
from processes import SECONDS, call

FILES = ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]


class Told(list[str]):
    """Collects notices."""

    @property
    def text(self) -> str:
        return "\n".join(self)


def tensors(step: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return {"weight": torch.full((3, 5), float(step))}, {"weight.exp_avg": torch.full((3, 5), step / 7)}


def save(checkpoints: Checkpoints, *steps: int) -> list[Path]:
    return [checkpoints.save(TrainingState(step=step, elapsed=step / 3), *tensors(step)) for step in steps]


def reopened(checkpoints: Checkpoints) -> tuple[Checkpoints, Told]:
    """Return the checkpoints as another process finds them, which has verified none of them."""
    told = Told()
    return Checkpoints(checkpoints.directory, told.append), told


@pytest.fixture
def checkpoints(tmp_path) -> Checkpoints:
    return Checkpoints(tmp_path / "run" / "checkpoints", pytest.fail)


def names(checkpoints: Checkpoints) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in checkpoints.paths()]


def test_saved_checkpoint_is_read_with_its_state(checkpoints):
    state = TrainingState(
        step=17,
        elapsed=1 / 3,
        target_tokens=101,
        best=Best(13, 12.5, 3.25, 40.5, "a1"),
        stale_validations=2,
        validated_step=14,
        threads=2,
        window=Window(loss=0.1, nll=0.2, grad_norm=0.7, tokens=11, steps=3, seconds=0.3),
    )
    path = checkpoints.save(state, *tensors(17))
    assert path.name == "step-00000017"
    assert sorted(os.listdir(path)) == sorted(FILES)
    again, told = reopened(checkpoints)
    assert again.newest() == (path, state)
    assert told == []
    torch.testing.assert_close(read_tensors(path, "model"), tensors(17)[0], rtol=0, atol=0)
    torch.testing.assert_close(read_tensors(path, "optimizer"), tensors(17)[1], rtol=0, atol=0)


def test_newest_is_none_without_checkpoints(checkpoints):
    assert checkpoints.newest() is None
    assert checkpoints.paths() == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, truncate, empty, os.unlink], ids=["flipped", "truncated", "empty", "removed"])
@pytest.mark.parametrize("name", FILES)
def test_newest_skips_a_damaged_checkpoint_with_a_warning(checkpoints, name, damage):
    before, newest = save(checkpoints, 10, 20)
    damage(newest / name)
    again, told = reopened(checkpoints)
    found = again.newest()
    assert found is not None
    assert (found[0], found[1].step) == (before, 10)
    assert len(told) == 1
    assert "checkpoint step-00000020 is damaged" in told.text
    assert "trying the one before it" in told.text
    if name != "manifest.json":
        assert name in told.text


def notices_of_damage(checkpoints, before):
    """Return the notices if the checkpoint of step 20 is found damaged, and the one of step 10 before it is used."""
    again, told = reopened(checkpoints)
    assert again.newest() == (before, TrainingState(step=10, elapsed=10 / 3))
    assert "checkpoint step-00000020 is damaged" in told.text
    return told.text


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "7", "{}", '{"model.safetensors": 3}', '{"state.json": {"bytes": 1}}'),
        *("[" * 100_000, '{"a":' * 100_000),
    ],
    ids=lambda text: f"{text:.12}",
)
def test_a_manifest_of_another_kind_is_damage(checkpoints, text):
    before, newest = save(checkpoints, 10, 20)
    (newest / "manifest.json").write_text(text)
    notices_of_damage(checkpoints, before)


def test_all_damaged_is_an_error_that_says_what_to_do(checkpoints):
    for path in save(checkpoints, 10, 20, 30):
        flip(path / "optimizer.safetensors")
    again, told = reopened(checkpoints)
    with pytest.raises(CheckpointError, match=r"all 3 checkpoints in .* are damaged; restore one .*--fresh"):
        again.newest()
    assert len(told) == 3


@pytest.mark.parametrize(
    ("version", "advice"),
    [(CHECKPOINT_FORMAT + 1, "upgrade with pip"), (CHECKPOINT_FORMAT - 1, "start the run over with --fresh")],
)
def test_a_checkpoint_of_another_format_is_refused_and_none_before_it_is_used(
    checkpoints, monkeypatch, version, advice
):
    save(checkpoints, 100)
    with monkeypatch.context() as patch:
        patch.setattr(module, "CHECKPOINT_FORMAT", version)
        save(checkpoints, 200)
    message = rf"step-00000200 is of format {version}; .* reads format {CHECKPOINT_FORMAT}: {advice}$"
    with pytest.raises(CheckpointError, match=message):
        reopened(checkpoints)[0].newest()


@pytest.mark.parametrize("values", [{"step": 3}, {"best": None, "stepp": 3}, {"best": {"bleu": 1}, "window": {}}])
def test_a_state_of_other_fields_is_refused(values):
    with pytest.raises(CheckpointError, match=r"state.json is not a training state"):
        TrainingState.from_dict(values)


SOUND = TrainingState(step=17, elapsed=2.5, best=Best(13, 12.5, 3.25, 40.5, "0"), validated_step=14).to_dict()


def assert_refused(place, *found):
    """Require that a state is refused that has one of these in that place, and is sound otherwise."""
    assert TrainingState.from_dict(SOUND).to_dict() == SOUND
    section, _, name = place.rpartition(".")
    for value in found:
        values = json.loads(json.dumps(SOUND))
        (values[section] if section else values)[name] = value
        with pytest.raises(CheckpointError, match=r"state.json is not a training state"):
            TrainingState.from_dict(values)


@pytest.mark.parametrize(
    "place",
    [
        *("step", "elapsed", "target_tokens", "stale_validations", "validated_step", "threads"),
        *("best.step", "best.bleu", "best.nll", "best.chrf"),
        *(f"window.{name}" for name in ("loss", "nll", "grad_norm", "tokens", "steps", "seconds")),
    ],
)
def test_a_state_with_a_number_that_none_can_have_is_refused(place):
    assert_refused(place, None, "3", True, -1e16, float("nan"), float("inf"), 10**40, 1e300, [], {}, [[3]])


@pytest.mark.parametrize(
    "place", ["step", "elapsed", "target_tokens", "best.step", "best.bleu", "best.nll", "window.grad_norm"]
)
def test_a_state_with_a_negative_count_or_time_is_refused(place):
    assert_refused(place, -1, -0.5)


def test_a_checkpoint_of_a_model_that_is_certain_of_every_token_is_read_again(checkpoints):
    # Its loss, a difference of rounded numbers, may be below zero; and a norm that is clipped may be any.
    window = Window(loss=-20.5, nll=-20.5, grad_norm=1e20, tokens=3_000, steps=2, seconds=0.5)
    checkpoints.save(TrainingState(step=20, window=window), *tensors(20))
    again, told = reopened(checkpoints)
    newest = again.newest()
    assert newest is not None
    assert newest[1].window == window
    assert not told


@pytest.mark.parametrize(
    "changes", [{"device": 3}, {"best": 3}, {"best": {}}, {"window": None}, {"window": {}}, {"validated_step": 18}]
)
def test_a_state_that_contradicts_itself_is_refused(changes):
    with pytest.raises(CheckpointError, match=r"state.json is not a training state"):
        TrainingState.from_dict({**SOUND, **changes})


def rewrite(path: Path, name: str, content: bytes) -> None:
    """Put something else into a file of a checkpoint, and its checksum into the manifest."""
    (path / name).write_bytes(content)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))


DEEP = b"[" * 100_000
IMPOSSIBLE = json.dumps({**SOUND, "step": 20, "threads": -1}).encode()


@pytest.mark.parametrize("content", [DEEP, b"7", b"{}", b"\xff", IMPOSSIBLE], ids=lambda content: f"{content!r:.12}")
def test_newest_skips_a_checkpoint_with_an_impossible_state(checkpoints, content):
    before, newest = save(checkpoints, 10, 20)
    rewrite(newest, "state.json", content)
    assert "state.json" in notices_of_damage(checkpoints, before)


def test_a_state_of_another_step_is_damage(checkpoints):
    before, newest = save(checkpoints, 10, 20)
    rewrite(newest, "state.json", json.dumps(TrainingState(step=19).to_dict()).encode())
    assert "state.json is of step 19" in notices_of_damage(checkpoints, before)


def test_a_pipe_in_the_place_of_a_file_is_damage(checkpoints):
    before, *others = save(checkpoints, 10, 20, 30, 40, 50)
    for name, path in zip(FILES, others, strict=True):
        size = (path / name).stat().st_size
        (path / name).unlink()
        os.mkfifo(path / name)
        if name != "manifest.json":
            text = (path / "manifest.json").read_text()
            (path / "manifest.json").write_text(text.replace(f'"bytes": {size}', '"bytes": 0'))
    again, told = reopened(checkpoints)
    with within(seconds=120):
        used, _ = again.newest()
    assert used == before
    for name, line in zip(FILES, reversed(told), strict=True):
        assert name in line
        assert "it is a pipe" in line


def test_tensors_in_another_type_are_refused(checkpoints):
    path = checkpoints.save(TrainingState(step=10), {"weight": torch.zeros(3, 5).double()}, {})
    with pytest.raises(CheckpointError, match=r"must hold float32 tensors, but weight is in torch.float64"):
        read_tensors(path, "model")


def test_partial_checkpoint_directories_are_ignored(checkpoints):
    (before,) = save(checkpoints, 10)
    leftover = checkpoints.directory / ".step-00000020.0123456789abcdef.partial"
    shutil.copytree(before, leftover)
    again, told = reopened(checkpoints)
    assert again.newest() == (before, TrainingState(step=10, elapsed=10 / 3))
    assert told == []
    (newest,) = save(again, 20)
    assert sorted(os.listdir(newest)) == sorted(FILES)


def test_saving_a_step_again_replaces_it(checkpoints):
    save(checkpoints, 10)
    path = checkpoints.save(TrainingState(step=10, validated_step=10), *tensors(77))
    again, _ = reopened(checkpoints)
    assert again.newest() == (path, TrainingState(step=10, validated_step=10))
    assert read_tensors(path, "model")["weight"].unique().tolist() == [77.0]


def test_next_save_removes_damaged_checkpoints_after_the_resumed_one(checkpoints):
    paths = save(checkpoints, 10, 20, 30)
    for path in paths[1:]:
        flip(path / "state.json")
    again, told = reopened(checkpoints)
    found = again.newest()
    assert found is not None
    assert found[1].step == 10
    assert len(told) == 2
    save(again, 15)
    assert names(again) == [10, 15]


def test_directories_of_other_names_are_no_checkpoints(checkpoints):
    (path,) = save(checkpoints, 10)
    for name in ("step-best", "step-00000020.bak", "step-20", "old"):
        shutil.copytree(path, checkpoints.directory / name)
    (checkpoints.directory / "step-00000030").write_text("a file")
    assert checkpoints.paths() == [path]
    checkpoints.prune(1, best_step=None, multiple_of=10)
    assert (checkpoints.directory / "step-best").is_dir()


@pytest.fixture
def background(checkpoints) -> Iterator[Checkpoints]:
    """Checkpoints that a thread writes."""
    checkpoints.is_background = True
    with checkpoints:
        yield checkpoints


def test_a_thread_writes_the_weights_of_the_step_and_the_next_save_waits_for_it(background, monkeypatch):
    is_free, order, whole = Event(), list[str](), module.write_weights

    def write(path, *rest):
        assert is_free.wait(SECONDS)
        order.append(f"{path.parent.name[:14]} {path.stem}")
        whole(path, *rest)

    monkeypatch.setattr(module, "write_weights", write)
    model, optimizer = tensors(3)
    state = TrainingState(step=3, window=Window(steps=2))
    path = background.save(state, model, optimizer)
    background.prune(1, best_step=None, multiple_of=1)
    assert not path.exists()
    assert order == []
    for tensor in (*model.values(), *optimizer.values()):
        tensor.fill_(-1.0)
    state.step, state.window.steps = 99, 99
    is_free.set()
    save(background, 5)
    assert path.exists()
    assert names(background) == [3, 5]
    assert [line[-5:] for line in order] == ["model", "mizer"] * 2
    assert background.state(path) == TrainingState(step=3, window=Window(steps=2))
    torch.testing.assert_close(read_tensors(path, "model"), tensors(3)[0], rtol=0, atol=0)
    torch.testing.assert_close(read_tensors(path, "optimizer"), tensors(3)[1], rtol=0, atol=0)


NEXT = {
    "save": lambda checkpoints: save(checkpoints, 30),
    "paths": Checkpoints.paths,
    "trouble": lambda checkpoints: checkpoints.trouble(checkpoints.path(10)),
    "close": lambda checkpoints: checkpoints.__exit__(None),
}


@pytest.mark.parametrize("ending", NEXT)
def test_a_full_disk_in_the_thread_is_told_by_what_comes_next(checkpoints, monkeypatch, ending):
    (good,) = save(checkpoints, 10)
    checkpoints.is_background = True

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_weights", full)
    save(checkpoints, 20)
    with pytest.raises(CheckpointError, match="the disk is full") as caught:
        NEXT[ending](checkpoints)
    checkpoints.__exit__(None)  # ends the thread
    assert str(good) in str(caught.value)
    assert os.listdir(checkpoints.directory) == [good.name]


def test_a_checkpoint_lost_by_the_thread_deletes_no_other(checkpoints, monkeypatch):
    best, last = save(checkpoints, 10, 20)
    checkpoints.is_background = True
    monkeypatch.setattr(module, "write_weights", lambda path, *_: os.stat(path / "none"))
    save(checkpoints, 30)
    checkpoints.prune(1, best_step=30, multiple_of=10)
    with pytest.raises(CheckpointError), checkpoints:
        pass
    assert sorted(os.listdir(checkpoints.directory)) == [best.name, last.name]


def test_another_error_is_not_replaced_by_that_of_the_thread(checkpoints, monkeypatch):
    checkpoints.is_background = True
    monkeypatch.setattr(module, "write_weights", lambda *_: 1 / 0)
    save(checkpoints, 10)
    with pytest.raises(KeyboardInterrupt), checkpoints:
        raise KeyboardInterrupt


def killed_while_writing(directory: Path) -> None:
    checkpoints = Checkpoints(directory, print, is_background=True)
    with checkpoints:
        save(checkpoints, 10)
        checkpoints.wait()
        whole = module.write_weights

        def write(path, *rest):
            whole(path, *rest)
            os.kill(os.getpid(), signal.SIGKILL)

        module.write_weights = write
        save(checkpoints, 20)


def test_a_kill_while_the_thread_writes_leaves_the_checkpoint_before(checkpoints):
    assert call(partial(killed_while_writing, checkpoints.directory)) == -signal.SIGKILL
    assert checkpoints.newest() == (checkpoints.path(10), TrainingState(step=10, elapsed=10 / 3))


@pytest.mark.parametrize("moment", [1, 2])
def test_a_full_disk_leaves_the_last_good_checkpoint_and_names_it(checkpoints, monkeypatch, moment):
    (good,) = save(checkpoints, 10)
    whole = module.write_weights
    calls = iter(range(1, 3))

    def half(path, *rest):
        whole(path, *rest)
        if next(calls) == moment:
            truncate(path)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_weights", half)
    with pytest.raises(CheckpointError, match="the disk is full; free some space and run the same command") as caught:
        save(checkpoints, 20)
    assert str(good) in str(caught.value)
    assert os.listdir(checkpoints.directory) == [good.name]
    again, told = reopened(checkpoints)
    assert again.newest() == (good, TrainingState(step=10, elapsed=10 / 3))
    assert told == []


def test_a_full_disk_at_the_first_checkpoint_says_there_is_none(checkpoints, monkeypatch):
    def full(*_):
        raise OSError("I/O error: No space left on device (os error 28)")  # as safetensors words it

    monkeypatch.setattr(module, "write_weights", full)
    with pytest.raises(CheckpointError, match=r"the disk is full.*there is no earlier checkpoint"):
        save(checkpoints, 10)


def test_other_disk_trouble_is_named():
    assert disk_trouble(OSError(errno.EROFS, "Read-only file system")).startswith("Read-only file system; put that")
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "run/data")
    assert disk_trouble(missing).startswith("No such file or directory: run/data; put that")
    assert disk_trouble(OSError(errno.EDQUOT, "Disk quota exceeded")).startswith("the disk is full")


@pytest.mark.slow
def test_a_really_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        checkpoints = Checkpoints(disk / "checkpoints", pytest.fail)
        (good,) = save(checkpoints, 10)
        large = {"weight": torch.zeros(1031, 257)}  # 1.06 MB
        for model, optimizer in [(large, {}), ({}, large)]:
            with pytest.raises(CheckpointError, match=rf"the disk is full.*the last good checkpoint is {good}"):
                checkpoints.save(TrainingState(step=20), model, optimizer)
            assert os.listdir(checkpoints.directory) == [good.name]
        again, _ = reopened(checkpoints)
        assert again.newest() == (good, TrainingState(step=10, elapsed=10 / 3))
        (newest,) = save(again, 20)
        assert again.trouble(newest) is None
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_the_best_and_the_last_are_kept(checkpoints):
    save(checkpoints, 10, 20, 30, 40, 50, 60, 70)
    checkpoints.prune(3, best_step=20, multiple_of=10)
    assert names(checkpoints) == [20, 50, 60, 70]
    checkpoints.prune(2, best_step=None, multiple_of=10)
    assert names(checkpoints) == [60, 70]


def test_irregular_checkpoints_do_not_push_out_regular_ones(checkpoints):
    save(checkpoints, 10, 20, 25, 30, 33, 37)
    checkpoints.prune(3, best_step=None, multiple_of=10)
    assert names(checkpoints) == [20, 30, 37]


def test_an_average_ignores_what_interruptions_added(checkpoints):
    save(checkpoints, 10, 20, 25, 30, 33, 40, 44)

    def last(count: int) -> list[int]:
        return [int(path.name[5:]) for path in checkpoints.last(count, multiple_of=10)]

    assert last(3) == [30, 40, 44]
    assert last(99) == [10, 20, 30, 40, 44]
    assert last(1) == [44]


def test_an_average_leaves_damaged_checkpoints_out(checkpoints):
    paths = save(checkpoints, 10, 20, 30, 40)
    flip(paths[2] / "model.safetensors")
    again, _ = reopened(checkpoints)
    assert again.last(3, multiple_of=10) == [paths[0], paths[1], paths[3]]


def test_a_tensor_file_that_is_none_is_an_error_of_ours_to_tell(checkpoints):
    (path,) = save(checkpoints, 10)
    (path / "model.safetensors").write_bytes(json.dumps({"not": "tensors"}).encode())
    with pytest.raises(CheckpointError, match=r"cannot read the weights .*model.safetensors"):
        read_tensors(path, "model")


def test_damaged_checkpoints_do_not_push_out_the_one_that_a_run_resumed_from(checkpoints):
    for path in save(checkpoints, 10, 15, 20, 30)[2:]:
        flip(path / "state.json")
    again, _ = reopened(checkpoints)
    again.newest()
    again.prune(1, best_step=None, multiple_of=10)
    assert names(again) == [15]
    save(again, 20)
    again.prune(2, best_step=None, multiple_of=10)
    assert names(again) == [20]


@pytest.mark.parametrize(
    ("state", "named"),
    [
        (TrainingState(step=20, best=Best(20, 0.0, float("inf"), 0.0, "0")), "best.nll"),
        (TrainingState(step=20, window=Window(loss=float("nan"))), "window.loss"),
        (TrainingState(step=20, validated_step=21), "step 21 after the last one, 20"),
    ],
)
def test_a_state_that_could_not_be_read_again_is_not_written(checkpoints, state, named):
    (good,) = save(checkpoints, 10)
    with pytest.raises(CheckpointError, match=rf"cannot write the checkpoint .*{named}.*last good .* is {good}$"):
        checkpoints.save(state, *tensors(20))
    assert names(checkpoints) == [10]


def test_checkpoints_are_in_the_order_of_their_steps(checkpoints):
    save(checkpoints, 99_999_990, 99_999_999)
    assert names(checkpoints) == [99_999_990, 99_999_999]
    save(checkpoints, 100_000_000, 100_000_010)  # one digit more
    assert names(checkpoints) == [99_999_990, 99_999_999, 100_000_000, 100_000_010]
    again, _ = reopened(checkpoints)
    assert again.newest()[1].step == 100_000_010
    checkpoints.prune(2, best_step=None, multiple_of=10)
    assert names(checkpoints) == [100_000_000, 100_000_010]
