"""Sharded checkpoints: written by all workers in the background, whole or not at all, and read in either form."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
import torch
from deadline import within
from torch.distributed import HashStore

from clearhead.errors import CheckpointError
from clearhead.files import file_sha256
from clearhead.training import shards as module
from clearhead.training.checkpoints import Checkpoints, TrainingState
from clearhead.training.shards import Shares, is_sharded, read_tensors
from clearhead.training.worker_store import LostWorkerError, Messages
from processes import SECONDS

COUNT = 3
NAMES = {f"{kind}-0000{number}-of-00003.safetensors" for kind in ("model", "optimizer") for number in (1, 2, 3)}


class Worker(SimpleNamespace):
    """One of three workers in this process, which holds the rows that FSDP would give it: two, two and one of five."""

    def __init__(self, rank: int, store: HashStore) -> None:
        super().__init__(rank=rank, count=COUNT, store=store, is_first=rank == 0, work="")

    def begin(self, work: str) -> None:
        self.work = work

    def messages(self) -> Messages:
        return Messages(self.store)

    def tell(self, key: str, text: str | None) -> str:
        if text is not None:
            self.store.set(key, text)
        return self.messages().get(key, Event())

    def own_rows(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        rows = {name: one[2 * self.rank : 2 * self.rank + 2] for name, one in tensors.items() if one.dim()}
        return {**rows, **({name: one for name, one in tensors.items() if not one.dim()} if self.is_first else {})}


def tensors(step: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return weights and moments; the second weight has too few rows for all workers."""
    weights = {"wide": torch.arange(15.0).reshape(5, 3) * step, "short": torch.full((1, 7), float(step))}
    return weights, {"wide.exp_avg": weights["wide"] / 7, "wide.step": torch.tensor(float(step))}


class Workplace:
    """The checkpoints of three workers."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.notices = directory, list[str]()
        store = HashStore()
        self.workers = [Checkpoints(directory, self.notices.append, is_background=True) for _ in range(COUNT)]
        for rank, worker in enumerate(self.workers):
            worker.shares = Shares(Worker(rank, store))
        self._threads = ThreadPoolExecutor(COUNT)

    def save(self, step: int, given: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] | None = None) -> Path:
        """Begin a checkpoint on all workers, and return its path."""
        given = given or tensors(step)
        paths = set(self._threads.map(lambda one: one.save(TrainingState(step=step), *given), self.workers))
        (path,) = paths
        return path

    def wait(self) -> list[str]:
        """Return what went wrong on each worker, or an empty text."""

        def trouble(worker: Checkpoints) -> str:
            try:
                worker.wait()
            except (CheckpointError, LostWorkerError) as error:
                return str(error)
            return ""

        return list(self._threads.map(trouble, self.workers))

    def end(self) -> None:
        for worker in self.workers:
            worker.shares.ended.set()
            worker._thread.shutdown()
        self._threads.shutdown()


@pytest.fixture
def workplace(tmp_path) -> Iterator[Workplace]:
    place = Workplace(tmp_path / "checkpoints")
    yield place
    place.end()


def test_every_worker_writes_its_rows_and_together_they_are_the_tensors(workplace):
    path = workplace.save(4)
    assert workplace.wait() == ["", "", ""]
    assert {file.name for file in path.iterdir()} == NAMES | {"index.json", "state.json", "manifest.json"}
    assert set(json.loads((path / "manifest.json").read_text())) == NAMES | {"index.json", "state.json"}
    again = Checkpoints(workplace.directory, workplace.notices.append)
    assert again.newest() == (path, TrainingState(step=4))
    for kind, wanted in zip(("model", "optimizer"), tensors(4), strict=True):
        torch.testing.assert_close(read_tensors(path, kind), wanted, rtol=0, atol=0)
    assert list(workplace.directory.iterdir()) == [path]  # nothing temporary


@pytest.mark.parametrize("readers", [1, 2, 4, 7])
@pytest.mark.parametrize("form", ["sharded", "plain"])
def test_a_reader_gets_the_rows_that_it_asks_for_and_reads_no_others(workplace, tmp_path, monkeypatch, form, readers):
    path = workplace.save(4)
    assert workplace.wait() == ["", "", ""]
    if form == "plain":
        with Checkpoints(tmp_path / "plain", print) as plain:
            path = plain.save(TrainingState(step=4), *tensors(4))
    read, numbers = module.read_weights, []

    def read_and_count(*args, **options):
        found, metadata = read(*args, **options)
        numbers.append(sum(tensor.numel() for tensor in found.values()))
        return found, metadata

    monkeypatch.setattr(module, "read_weights", read_and_count)
    wanted = tensors(4)[0]
    for reader in range(readers):
        rows = {
            name: range(len(one) * reader // readers, len(one) * (reader + 1) // readers)
            for name, one in wanted.items()
        }
        numbers.clear()
        found = read_tensors(path, "model", rows.get)
        expected = {name: one[rows[name].start : rows[name].stop] for name, one in wanted.items()}
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert sum(numbers) == sum(one.numel() for one in expected.values())
    moments = read_tensors(path, "optimizer", {"wide.exp_avg": range(1, 4)}.get)
    expected = tensors(4)[1]
    torch.testing.assert_close(moments, {**expected, "wide.exp_avg": expected["wide.exp_avg"][1:4]}, rtol=0, atol=0)


def test_workers_go_on_while_their_threads_write_what_the_tensors_were(workplace, monkeypatch):
    may_write, write = Event(), module.write_weights

    def write_later(*arguments):
        assert may_write.wait(SECONDS)
        write(*arguments)

    monkeypatch.setattr(module, "write_weights", write_later)
    model, moments = tensors(4)
    path = workplace.save(4, (model, moments))
    model["wide"].zero_()  # the next step
    assert not path.exists()
    may_write.set()
    assert workplace.wait() == ["", "", ""]
    assert torch.equal(read_tensors(path, "model")["wide"], tensors(4)[0]["wide"])


def test_a_share_that_cannot_be_written_is_an_error_of_its_worker_and_of_the_first(workplace, monkeypatch):
    good, write = workplace.save(4), module.write_weights
    assert workplace.wait() == ["", "", ""]

    def write_or_fail(path, *arguments):
        if "optimizer-00003" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, *arguments)

    monkeypatch.setattr(module, "write_weights", write_or_fail)
    path = workplace.save(8)
    first, second, third = workplace.wait()
    assert "worker 2 could not write its share: No space left on device; the last good checkpoint is" in first
    assert second == ""
    assert "the disk is full" in third
    assert list(workplace.directory.iterdir()) == [good]
    assert not path.exists()


@pytest.mark.parametrize("wait", [Checkpoints.wait, Checkpoints.paths])
def test_waiting_for_a_thread_that_writes_has_no_time_limit(workplace, wait):
    workplace.save(4)
    for checkpoints in workplace.workers:
        checkpoints.shares.workers.work = "a step"
        wait(checkpoints)
        assert checkpoints.shares.workers.work == ""


def test_a_first_worker_that_ends_waits_for_no_share(workplace):
    def save_and_lose_another_worker():
        with within(int(SECONDS)), workplace.workers[0] as first:
            first.save(TrainingState(step=4), *tensors(4))
            raise LostWorkerError("worker 1 is lost")

    with pytest.raises(LostWorkerError):
        save_and_lose_another_worker()
    assert list(workplace.directory.iterdir()) == []


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path, _: path.write_bytes(path.read_bytes()[:-1] + b"?"), "is not what its checksum says"),
        (lambda path, _: path.unlink(), "No such file or directory"),
        (lambda path, older: shutil.copy(older / path.name, path), "is not what its checksum says"),
        (lambda path, _: (path.parent / "index.json").unlink(), "manifest.json does not name all files"),
        (lambda path, _: (path.parent / "manifest.json").unlink(), "manifest.json"),
    ],
    ids=["damaged", "missing", "of-another-step", "no-index", "no-manifest"],
)
def test_a_checkpoint_with_a_wrong_share_is_left_for_the_one_before(workplace, harm, told):
    older, newer = workplace.save(4), workplace.save(8)
    assert workplace.wait() == ["", "", ""]
    harm(newer / "model-00002-of-00003.safetensors", older)
    notices = []
    assert Checkpoints(workplace.directory, notices.append).newest() == (older, TrainingState(step=4))
    assert len(notices) == 1
    assert notices[0].startswith("checkpoint step-00000008 is damaged (")
    assert told in notices[0]


def of_another_step(path: Path, older: Path) -> None:
    shutil.copy(older / "model-00002-of-00003.safetensors", path)


def of_another_worker(path: Path, _: Path) -> None:
    shutil.copy(path / "model-00003-of-00003.safetensors", path / "model-00002-of-00003.safetensors")


def without_rows(path: Path, _: Path) -> None:
    share = path / "model-00002-of-00003.safetensors"
    module.write_weights(share, {"wide": torch.tensor(1.0)}, {"step": "8"})
    with_index(model={"wide": [3, 3], "short": [1, 7]})(path, path)


def with_index(**changes):
    def change(path: Path, _: Path) -> None:
        index = json.loads((path / "index.json").read_text())
        (path / "index.json").write_text(json.dumps({**index, **changes}))

    return change


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (of_another_step, "model-00002-of-00003.safetensors is of step 4, and its checkpoint of step 8"),
        (of_another_worker, r"the shares in .* do not make up wide of shape \[5, 3\]"),
        (without_rows, r"the shares in .* do not make up wide of shape \[3, 3\]"),
        (with_index(model={"wide": [5, 3]}), "holds short, which index.json does not list"),
        (with_index(model={"wide": [5, 3], "short": []}), r"the shares in .* do not make up short of shape \[\]"),
        (with_index(model={"wide": "all"}), "index.json is not an index of shares"),
        (with_index(shares=10**9), "index.json is not an index of shares"),
    ],
)
def test_wrong_shares_with_right_checksums_are_one_clear_error(workplace, harm, told):
    older, newer = workplace.save(4), workplace.save(8)
    assert workplace.wait() == ["", "", ""]
    harm(newer, older)
    with pytest.raises(CheckpointError, match=told):
        read_tensors(newer, "model")


def test_the_other_form_is_told_by_its_files(tmp_path, workplace):
    sharded = workplace.save(4)
    assert workplace.wait() == ["", "", ""]
    with Checkpoints(tmp_path / "plain", print) as plain:
        path = plain.save(TrainingState(step=4), *tensors(4))
    assert (is_sharded(sharded), is_sharded(path)) == (True, False)
    for kind in ("model", "optimizer"):
        torch.testing.assert_close(read_tensors(sharded, kind), read_tensors(path, kind), rtol=0, atol=0)
    manifest = json.loads((sharded / "manifest.json").read_text())
    assert {name: entry["sha256"] for name, entry in manifest.items()} == {
        name: file_sha256(sharded / name) for name in manifest
    }
