"""Several processes that train one model, on PyTorch's own engine: ranks, shares and sums stand here, and nowhere else.

A process is a worker. All have the same weights and the same settings, look at the same step, and compute a share of
its pairs each; gradients and losses are summed over them. What a step sees follows from its number alone, and the
gradient is divided by the tokens of the whole step, so any number of workers makes the same steps, but for the order in
which floating-point numbers are added. The first worker alone prepares, prints, writes and publishes.

`torchrun` starts them and says in the environment who is who; a command that it did not start is the only worker.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar, cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from clearhead.errors import ConfigError, DeviceError, TrainingError
from clearhead.runtime.device import usable_cpus
from clearhead.training.liveness import Watch, lost_workers

__all__ = [
    "SPEAKS",
    "LostWorkerError",
    "Workers",
    "crowding",
    "is_one_of_several",
    "part_like",
    "require_workers",
    "whole",
    "whole_tensors",
]

_SECONDS_TO_COME = 300.0
"""How long the workers wait for each other at the start."""
_SECONDS_TO_LEAVE = 10.0
"""How long the first worker waits for the others at the end, when nothing depends on them any more."""
_LONGEST_WAIT = timedelta(hours=24)
"""For one sum: while the first worker publishes, the others wait; who is gone is found by its silence, not by this."""


_Item = TypeVar("_Item")


class LostWorkerError(TrainingError):
    """Another worker ended or does not answer any more."""


def is_one_of_several() -> bool:
    """Tell whether `torchrun` (or whoever set its variables) started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def require_workers(count: int | None) -> None:
    """Refuse a number of workers that contradicts `torchrun`'s."""
    started = int(os.environ["WORLD_SIZE"])
    if count not in (None, started):
        raise ConfigError(f"--workers {count}: torchrun started {started} already; leave out --workers")


def crowding(device: torch.device) -> str | None:
    """Say that the workers of this machine are more than its CPUs, if they compute on those."""
    here = os.environ.get("LOCAL_WORLD_SIZE", "1") if is_one_of_several() else "1"
    if device.type != "cpu" or not here.isdecimal() or int(here) <= usable_cpus():
        return None
    return f"{here} workers share {usable_cpus()} CPUs: they will wait for each other"


@dataclass(eq=False)
class Workers:
    """One process among those that train together."""

    rank: int = 0
    """Its number, counted from 0."""
    count: int = 1
    """Of all workers."""
    _store: dist.Store | None = None
    _launcher: dist.Store | None = None
    """The store behind that one, which outlives these workers where a launcher starts them anew."""
    _watch: Watch | None = None
    _sharded: list[nn.Module] = field(default_factory=list)
    _parallel: list[DistributedDataParallel] = field(default_factory=list)

    @classmethod
    @contextmanager
    def met(cls) -> Iterator[Workers]:
        """Find the other workers, if `torchrun` started several, and leave them at the end.

        Of what ends the block one worker alone speaks, the first to fail; the others end with the same status.

        Raises:
            ConfigError: If the environment does not say who is who.
            TrainingError: If there is no way to the others.
        """
        if not is_one_of_several():
            yield cls()
            return
        rank, count = _number("RANK"), _number("WORLD_SIZE")
        launcher = _open_store(rank)
        store = _begun(launcher, rank, count)
        workers = cls(rank, count, store, launcher)
        try:
            yield workers
            workers._leave()
        except BaseException as error:
            is_told = isinstance(error, LostWorkerError) and SPEAKS in os.environ
            may_speak = not is_told and _may_speak(store, rank, str(error))
            if may_speak or isinstance(error, SystemExit):
                raise
            raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None
        finally:
            if workers._watch is not None:
                workers._watch.stop()
            workers._disconnect()

    @property
    def began_afresh(self) -> bool:
        """Whether the launcher's workers, before it started them anew, have begun the run from nothing already."""
        return self._launcher is not None and self._launcher.check([_AFRESH])

    def note_afresh(self) -> None:
        """Note for workers that may be started in the place of these that the run was begun from nothing."""
        if self._launcher is not None:
            self._launcher.set(_AFRESH, "1")

    def _leave(self) -> None:
        """Part, once all are done: the store may be the first worker's own."""
        if self._store is None:
            return
        if self._watch is not None:
            self._watch.stop()
        others = [f"left/{other}" for other in range(1, self.count)] if self.is_first else []
        start = time.monotonic()
        with suppress(RuntimeError):  # no store any more: all is done anyway
            self._store.set(f"left/{self.rank}", "1")
            while not all(self._store.check([key]) for key in others) and time.monotonic() - start < _SECONDS_TO_LEAVE:
                time.sleep(0.05)

    def greet(self, greeting: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Wait for all workers, and refuse to work with one that was given something else.

        From then on this process ends if another one does not give a sign of life any more.

        Args:
            greeting: What must be the same everywhere, such as settings and versions; plain values for JSON.
            say: Prints why this process ends.

        Raises:
            TrainingError: If one does not come, or was given something else.
        """
        if self._store is None:
            return
        with self.together():
            _greet(self._store, self.rank, self.count, json.loads(json.dumps(greeting)))

        own = self._store.clone()  # this thread may hold the other one, in the midst of a call

        def say_once(text: str) -> None:
            if _may_speak(own, self.rank, text):
                say(text)

        def say_alone(text: str) -> None:
            if _is_first_here():
                say(text)

        self._watch = Watch(own, self.rank, self.count, say_once, say_alone)

    def device(self, device: torch.device) -> torch.device:
        """Return the device of this worker: of several GPUs one each.

        Raises:
            DeviceError: If there are fewer GPUs than workers, or one GPU is named for all of them.
        """
        if self.count == 1 or device.type == "cpu":
            return device
        number, gpus = _number("LOCAL_RANK"), torch.cuda.device_count()
        if device.index is not None:
            raise DeviceError(f"device {str(device)!r} is one GPU; {self.count} workers need --device cuda")
        if number >= gpus:
            raise DeviceError(f"this machine has {gpus} GPUs, too few for its workers; start one for each GPU")
        return torch.device(device.type, number)

    def connect(self, device: torch.device) -> None:
        """Open the ways for sums.

        Args:
            device: Where this worker computes, see `device`.

        Raises:
            LostWorkerError: If another worker is gone.
        """
        if self._store is None:
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:nccl"
        with self.together():
            dist.init_process_group(
                backend, store=self._store, rank=self.rank, world_size=self.count, timeout=_LONGEST_WAIT
            )

    def _disconnect(self) -> None:
        """Close the ways for sums.

        Who lets go of them last waits for their threads, and one of those may wait for Python, to let go of a tensor:
        PyTorch's reducer would keep Python from it for ever, so it must not be the last.
        """
        for module in self._parallel:
            del module.reducer, module.logger  # which holds the reducer, too
        self._parallel.clear()
        if dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this worker is the one that prepares, prints, writes and publishes."""
        return self.rank == 0

    @property
    def is_sharding(self) -> bool:
        """Whether no worker has all weights."""
        return bool(self._sharded)

    def dealt(self, items: Sequence[_Item]) -> list[Sequence[_Item]]:
        """Return the items of each worker, which are neighbours: as many as the others have, or one more."""
        cuts = [len(items) * rank // self.count for rank in range(self.count + 1)]
        return [items[start:end] for start, end in pairwise(cuts)]

    def own(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """Return this worker's items, see `dealt`."""
        return self.dealt(items)[self.rank]

    def sums(self, *numbers: float) -> tuple[float, ...]:
        """Return the sums of each number over all workers."""
        if self.count == 1:
            return numbers
        values = torch.tensor(numbers, dtype=torch.float64)
        with self.together():
            dist.all_reduce(values)
        return tuple(values.tolist())

    def wait(self) -> None:
        """Wait until all workers are here."""
        self.sums(0.0)

    def tell(self, key: str, text: str | None) -> str:
        """Return what the first worker says, to every worker; the others wait for it.

        Args:
            key: What it is about; once for each.
            text: Of the first worker; None of the others.
        """
        if self._store is None:
            assert text is not None, "the only worker is the first one"
            return text
        with self.together():
            if text is not None:
                self._store.set(key, text)
                return text
            return _wait(self._store, key, "the first worker")

    def gathered(self, texts: Sequence[str]) -> list[str]:
        """Return the texts of all workers, those of the first one first."""
        if self.count == 1:
            return list(texts)
        own = torch.frombuffer(bytearray(json.dumps(list(texts)).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        with self.together():
            dist.all_gather(sizes, torch.tensor([own.numel()]))
            longest = max(int(size) for size in sizes)
            parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.count)]
            dist.all_gather(parts, torch.cat([own, own.new_zeros(longest - own.numel())]))
        found = (part[: int(size)].numpy().tobytes() for part, size in zip(parts, sizes, strict=True))
        return [text for part in found for text in json.loads(part)]

    def shard(self, model: nn.Module, layers: Iterable[nn.Module], methods: Sequence[str]) -> None:
        """Keep a share of every weight here, and of its gradient and its moments (FSDP2); layers come together in turn.

        Args:
            model: Becomes one of sharded weights, in place.
            layers: Its parts that are computed after each other.
            methods: Those of its methods that are called from outside.
        """
        for part in (*layers, model):
            sharded = fully_shard(part)
            sharded.set_gradient_divide_factor(float(self.count))  # a mean, as of `parallel`
            sharded.set_force_sum_reduction_for_comms(True)
        for method in methods:
            register_fsdp_forward_method(model, method)
        self._sharded.append(model)

    def parallel(self, module: nn.Module) -> nn.Module:
        """Return a module whose `backward` takes the mean of gradients over the workers; sharded weights do it anyway.

        PyTorch's own sum is a mean. One of ours would be called back in a thread of its connections, and where that
        thread waits for Python while Python, at its end, waits for the thread, the process never ends.
        """
        if self.count == 1 or self._sharded:
            return module
        options: dict[str, Any] = {
            "gradient_as_bucket_view": True,
            _SYNC_BUFFERS: False,
        }  # the buffers are tables, alike everywhere
        self._parallel.append(DistributedDataParallel(module, **options))
        return self._parallel[-1]

    def accumulating(self, module: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        """Return a block in which gradients are added up here; with those of the last part, the workers' meet."""
        for model in self._sharded:
            cast(FSDPModule, model).set_requires_gradient_sync(is_last)
        return nullcontext() if is_last or not isinstance(module, DistributedDataParallel) else module.no_sync()

    def begin(self, work: str) -> None:
        """Name what the workers do from now on together; where none goes on with it for very long, all of them end.

        Args:
            work: In words; none for what takes as long as it takes, such as what the first worker does alone.
        """
        if self._watch is not None:
            self._watch.note(work=work)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Say of what fails because another worker is gone, that it is.

        Raises:
            LostWorkerError: If one is.
            TrainingError: If all are there, but do not reach each other.
        """
        if self._watch is not None:
            self._watch.note(waits=True)
        try:
            yield
            if self._watch is not None:
                self._watch.note()
        except RuntimeError as error:
            if self.count == 1 or not _is_of_the_connection(error):
                raise
            if lost := self._watch.lost() if self._watch else []:
                raise LostWorkerError(lost_workers(lost)) from None
            problem = str(error).splitlines()[0]
            raise TrainingError(f"worker {self.rank} does not reach the others: {problem:.300}") from None


SPEAKS = "CLEARHEAD_LAUNCHER"
"""Set by a launcher that says itself which worker was killed."""
_SPOKEN = "spoken"
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")  # as it is called since PyTorch 2.13, and before
    if name in inspect.signature(DistributedDataParallel).parameters
)
_AFRESH = "clearhead/afresh"


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor, of which every worker may hold a share, as one; all workers must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part_like(tensor: Tensor, other: Tensor | None) -> Tensor:
    """Return this worker's share of a tensor that all of them hold, if it holds a share of the other one."""
    if not isinstance(other, DTensor) or tensor.shape != other.shape:
        return tensor
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)


def whole_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as `whole` does, those that were shared in the CPU's memory: a GPU need not hold all moments."""
    return {name: whole(tensor).cpu() if isinstance(tensor, DTensor) else tensor for name, tensor in tensors.items()}


def _open_store(rank: int) -> dist.Store:
    """Open the store of the launcher, or where there is none, that of the first worker."""
    host, port = os.environ.get("MASTER_ADDR"), _number("MASTER_PORT")
    if not host:
        raise ConfigError("several workers need MASTER_ADDR in the environment; start them with torchrun")
    has_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    try:
        return TCPStore(
            host,
            port,
            is_master=rank == 0 and not has_launcher,
            wait_for_workers=False,
            timeout=timedelta(seconds=_SECONDS_TO_COME),
        )
    except RuntimeError as error:
        problem = str(error).splitlines()[0]
        raise TrainingError(f"worker {rank} cannot meet the others at {host}:{port}: {problem:.200}") from None


def _begun(store: dist.Store, rank: int, count: int) -> dist.Store:
    """Return a store of these workers alone: in a launcher's, what earlier ones said may stand.

    Each worker says a word of its own, and the first one answers with all words that it saw; until every worker has
    found its word in the answer, it answers anew.
    """
    word, start = uuid4().hex, time.monotonic()
    store.set(f"word/{rank}", word)
    answered: list[str] = []
    while True:
        if rank == 0 and all(store.check([f"word/{other}"]) for other in range(count)):
            words = [store.get(f"word/{other}").decode() for other in range(count)]
            if words != answered:
                answered = words
                store.set("words", json.dumps(words))
        if store.check(["words"]):
            words = json.loads(store.get("words"))
            if len(words) == count and words[rank] == word:
                own = PrefixStore(f"clearhead/{words[0]}", store)
                own.set(f"met/{word}", "1")
                if rank or all(own.check([f"met/{other}"]) for other in words):
                    return own
        if time.monotonic() - start > _SECONDS_TO_COME:
            missing = [other for other in range(count) if not store.check([f"word/{other}"])]
            who = f"worker {missing[0]}" if missing else "a worker"
            raise TrainingError(f"{who} did not come within {_SECONDS_TO_COME:.0f} s; start all of them")
        time.sleep(0.05)


def _may_speak(store: dist.Store, rank: int, text: str) -> bool:
    """Tell whether nobody else has said why the training ends; from now on somebody has."""
    own = f"{rank} {text}"
    try:
        return store.compare_set(_SPOKEN, "", own) == own.encode()
    except RuntimeError:  # the store ended with the launcher
        return _is_first_here()


def _is_first_here() -> bool:
    """Whether this is the first worker of its machine, where nobody can ask those of others who has spoken."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise ConfigError(f"several workers need {name} in the environment, a number, not {text!r:.50}; use torchrun")
    return int(text)


def _greet(store: dist.Store, rank: int, count: int, greeting: Mapping[str, Any]) -> None:
    """Wait for all workers; refuse to work with one that was given something else."""
    store.set(f"greeting/{rank}", json.dumps(greeting))
    first = _flat(json.loads(_wait(store, "greeting/0", "worker 0")))
    for other in range(1, count) if rank == 0 else ():
        found = _flat(json.loads(_wait(store, f"greeting/{other}", f"worker {other}")))
        for name in sorted(first.keys() | found.keys()):
            if first.get(name) != found.get(name):
                raise TrainingError(
                    f"all workers must be given the same, but {name} is {first.get(name)!r:.100} for worker 0 and "
                    f"{found.get(name)!r:.100} for worker {other}"
                )


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the values of a nested mapping under names such as `train.seed`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return flat


def _wait(store: dist.Store, key: str, who: str) -> str:
    """Wait until a key is there, so that signals are still heard."""
    start = time.monotonic()
    while not store.check([key]):
        if store.check([_SPOKEN]):
            raise LostWorkerError(lost_workers([]))
        if key.startswith("greeting") and time.monotonic() - start > _SECONDS_TO_COME:
            raise TrainingError(f"{who} did not come within {_SECONDS_TO_COME:.0f} s; start all of them")
        time.sleep(0.05)
    return store.get(key).decode()


def _is_of_the_connection(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or re.search("gloo|connection|NCCL", str(error), re.IGNORECASE) is not None
