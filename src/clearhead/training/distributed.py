"""Distributed training with torch.distributed: ranks, shares of the data, and sums over all workers.

No other module uses PyTorch's process groups. Each process is a worker. All workers have the same weights and settings,
work on the same step, and compute a share of its pairs each; gradients and losses are summed over the workers. A step's
data follow from its number alone, and the gradient is divided by the tokens of the whole step. So any number of workers
makes the same steps, except for the order in which floating-point numbers are added. Only the first worker prepares
data, prints, writes and publishes.

`torchrun` starts the workers and gives each its rank in environment variables. A process that `torchrun` did not start
is the only worker.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from clearhead.errors import ConfigError, DeviceError, TrainingError
from clearhead.runtime.threads import usable_cpus
from clearhead.training.liveness import Watch, lost_workers
from clearhead.training.worker_store import (
    LostWorkerError,
    Messages,
    greet,
    is_first_here,
    may_speak,
    number_in_environment,
    open_store,
    own_store,
    wait_for,
)

_SECONDS_TO_LEAVE = 10.0
"""Maximum time that the first worker waits for the others at the end, when nothing depends on them any more."""
_LONGEST_WAIT = timedelta(hours=24)
"""Timeout of one collective operation. It is long because the others wait while the first worker publishes.

A lost worker is detected by its missing heartbeats, not by this timeout.
"""


_Item = TypeVar("_Item")


def is_one_of_several() -> bool:
    """Return whether this process is one of several workers, as set in the environment by `torchrun` or by hand."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def require_workers(count: int | None) -> None:
    """Raise ConfigError if a number of workers contradicts the number that `torchrun` started."""
    started = int(os.environ["WORLD_SIZE"])
    if count not in (None, started):
        raise ConfigError(f"--workers {count}: torchrun started {started} already; leave out --workers")


def crowding(device: torch.device) -> str | None:
    """Return a warning if more workers than CPUs compute on the CPUs of this machine, else None."""
    here = os.environ.get("LOCAL_WORLD_SIZE", "1") if is_one_of_several() else "1"
    if device.type != "cpu" or not here.isdecimal() or int(here) <= usable_cpus():
        return None
    return f"{here} workers share {usable_cpus()} CPUs: they will wait for each other"


@dataclass(eq=False)
class Workers:
    """One of the processes that train together: its rank, and its communication with the others."""

    rank: int = 0
    """Rank of this worker, counted from 0."""
    count: int = 1
    """Number of all workers."""
    _store: dist.Store | None = None
    _launcher: dist.Store | None = None
    """The launcher's store, which contains `_store` and survives when a launcher restarts the workers."""
    _watch: Watch | None = None
    _sharded: list[nn.Module] = field(default_factory=list)
    _parallel: DistributedDataParallel | None = None
    _hooks: list[RemovableHandle] = field(default_factory=list)
    _averaged: set[Tensor] = field(default_factory=set)
    """Weights whose gradients the last part of this step has given to the average."""
    _is_averaging: bool = False
    """Whether the last part of this step was begun."""

    @classmethod
    @contextmanager
    def met(cls) -> Iterator[Workers]:
        """Connect to the other workers if `torchrun` started several, and disconnect at the end.

        If the block ends with an error, only the first worker that fails reports it. The others end with the same exit
        status.

        Raises:
            ConfigError: If the environment lacks this worker's rank or the number of workers.
            TrainingError: If the other workers cannot be reached.
        """
        if not is_one_of_several():
            yield cls()
            return
        rank, count = number_in_environment("RANK"), number_in_environment("WORLD_SIZE")
        launcher = open_store(rank)
        store = own_store(launcher, rank, count)
        workers = cls(rank, count, store, launcher)
        try:
            yield workers
            workers._leave()
        except BaseException as error:
            is_told = isinstance(error, LostWorkerError) and SPEAKS in os.environ
            speaks = not is_told and may_speak(store, rank, str(error))
            if speaks or isinstance(error, SystemExit):
                raise
            raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None
        finally:
            if workers._watch is not None:
                workers._watch.stop()
            workers._disconnect()

    @property
    def began_afresh(self) -> bool:
        """Whether workers that the launcher has since restarted already started the run afresh."""
        return self._launcher is not None and self._launcher.check([_AFRESH])

    def note_afresh(self) -> None:
        """Record in the launcher's store that the run was started afresh, for workers that may replace these."""
        if self._launcher is not None:
            self._launcher.set(_AFRESH, "1")

    def _leave(self) -> None:
        """Disconnect when all workers are done: the first worker may be hosting the store."""
        if self._store is None:
            return
        if self._watch is not None:
            self._watch.stop()
        others = [f"left/{other}" for other in range(1, self.count)] if self.is_first else []
        start = time.monotonic()
        with suppress(RuntimeError):  # the store has already closed; all work is done
            self._store.set(f"left/{self.rank}", "1")
            while not all(self._store.check([key]) for key in others) and time.monotonic() - start < _SECONDS_TO_LEAVE:
                time.sleep(0.05)

    def greet(self, greeting: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Wait for all workers, and check that all were given the same settings.

        From then on a watch ends this process if another worker stops sending heartbeats.

        Args:
            greeting: Values by name that must be equal on all workers, such as settings and versions.
            say: Called with the reason when the watch ends this process.

        Raises:
            TrainingError: If a worker does not connect in time, or was given different values.
        """
        if self._store is None:
            return
        with self.together():
            greet(self._store, self.rank, self.count, greeting)

        own = self._store.clone()  # own connection: this thread may be blocked in a call on the other one

        def say_once(text: str) -> None:
            if may_speak(own, self.rank, text):
                say(text)

        def report_locally(text: str) -> None:
            if is_first_here():
                say(text)

        self._watch = Watch(own, self.rank, self.count, say_once, report_locally)

    def device(self, device: torch.device) -> torch.device:
        """Return the device of this worker: with several GPUs, one for each worker.

        Raises:
            DeviceError: If there are fewer GPUs than workers, or one GPU is named for all of them.
        """
        if self.count == 1 or device.type == "cpu":
            return device
        number, gpus = number_in_environment("LOCAL_RANK"), torch.cuda.device_count()
        if device.index is not None:
            raise DeviceError(f"device {str(device)!r} is one GPU; {self.count} workers need --device cuda")
        if number >= gpus:
            raise DeviceError(f"this machine has {gpus} GPUs, too few for its workers; start one for each GPU")
        return torch.device(device.type, number)

    def connect(self, device: torch.device) -> None:
        """Initialise the process group for collective operations.

        Args:
            device: Device on which this worker computes, as `device` returned it.

        Raises:
            LostWorkerError: If another worker is lost.
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
        """Destroy the process group.

        The last object that refers to it waits for its threads, and such a thread may wait for Python's lock to release
        a tensor. PyTorch's reducer would hold that lock while it waits, a deadlock. So the reducer is deleted first.
        """
        self._release_reducer()
        if dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()

    def _release_reducer(self) -> None:
        if self._parallel is not None:
            del self._parallel.reducer, self._parallel.logger  # the logger also refers to the reducer
            self._parallel = None
        while self._hooks:
            self._hooks.pop().remove()

    @property
    def is_first(self) -> bool:
        """Whether this worker is the first, which alone prepares data, prints, writes and publishes."""
        return self.rank == 0

    @property
    def is_sharding(self) -> bool:
        """Whether the weights are sharded, so that no worker holds all of them."""
        return bool(self._sharded)

    def dealt(self, items: Sequence[_Item]) -> list[Sequence[_Item]]:
        """Split items into one contiguous part for each worker; the sizes differ by at most one."""
        cuts = [len(items) * rank // self.count for rank in range(self.count + 1)]
        return [items[start:end] for start, end in pairwise(cuts)]

    def own(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """Return this worker's part of the items, see `dealt`."""
        return self.dealt(items)[self.rank]

    def sums(self, *numbers: float) -> tuple[float, ...]:
        """Return each number summed over all workers."""
        if self.count == 1:
            return numbers
        values = torch.tensor(numbers, dtype=torch.float64)
        with self.together():
            dist.all_reduce(values)
        return tuple(values.tolist())

    def wait(self) -> None:
        """Wait until all workers have reached this point (a barrier)."""
        self.sums(0.0)

    def tell(self, key: str, text: str | None) -> str:
        """Broadcast a text from the first worker to all workers; the others wait for it.

        Args:
            key: Key of the text in the store. Each key is used once.
            text: The text on the first worker, None on the others.
        """
        if self._store is None:
            assert text is not None, "the only worker is the first one"
            return text
        with self.together():
            if text is not None:
                self._store.set(key, text)
                return text
            return wait_for(self._store, key, "the first worker")

    def gathered(self, texts: Sequence[str]) -> list[str]:
        """Return the texts of all workers, in order of rank."""
        if self.count == 1:
            return list(texts)
        texts_by_rank: list[list[str]] = [[] for _ in range(self.count)]
        with self.together():
            dist.all_gather_object(texts_by_rank, list(texts))
        return [text for part in texts_by_rank for text in part]

    def messages(self) -> Messages:
        """Return the workers' texts for each other, for a thread: over a connection of its own."""
        assert self._store is not None, "the only worker has no others"
        return Messages(self._store.clone())

    def own_rows(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this worker's rows of sharded tensors and, on the first worker, all unsharded tensors."""
        rows = {name: tensor.to_local() for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
        others = {name: tensor for name, tensor in tensors.items() if name not in rows}
        return {**rows, **(others if self.is_first else {})}

    def shard(self, model: nn.Module, layers: Iterable[nn.Module], methods: Sequence[str]) -> None:
        """Shard every weight with its gradient and moments over the workers (FSDP2); layers are gathered one at a time.

        Args:
            model: Model, sharded in place.
            layers: Modules of the model that are computed one after the other.
            methods: Names of the model's methods, besides `forward`, that are called from outside.
        """
        for part in (*layers, model):
            sharded = fully_shard(part)
            sharded.set_gradient_divide_factor(float(self.count))  # a mean, as in `parallel`
            sharded.set_force_sum_reduction_for_comms(True)
        for method in methods:
            register_fsdp_forward_method(model, method)
        self._sharded.append(model)

    def parallel(self, module: nn.Module) -> nn.Module:
        """Return a module whose `backward` averages gradients over the workers; sharded weights average them already.

        PyTorch's built-in reduction is a mean. A reduction of our own would run as a callback in a thread of the
        process group. At exit Python waits for that thread while the thread waits for Python, and the process would
        never end.

        A module that was given before no longer averages.
        """
        if self.count == 1 or self._sharded:
            return module
        self._release_reducer()
        options: dict[str, Any] = {
            "gradient_as_bucket_view": True,
            _SYNC_BUFFERS: False,
        }  # the buffers are constant tables, equal on all workers
        self._parallel = DistributedDataParallel(module, **options)
        self._hooks = [
            weight.register_post_accumulate_grad_hook(self._averaged.add) for weight in _trained(self._parallel)
        ]
        return self._parallel

    def accumulating(self, module: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        """Return a context in which gradients accumulate locally; the last part also averages them over workers."""
        for model in self._sharded:
            cast(FSDPModule, model).set_requires_gradient_sync(is_last)
        self._averaged.clear()
        self._is_averaging = is_last
        return nullcontext() if is_last or not isinstance(module, DistributedDataParallel) else module.no_sync()

    def average_without_own(self, *empty: Tensor) -> None:
        """Take part in the average of gradients after an error in a part of this worker's, so that no other waits.

        The average is then worthless, and no worker may use it.

        Args:
            empty: Arguments of the module that `parallel` returned, without a token.
        """
        assert self._parallel is not None, "sharded weights are gathered in every layer, which cannot be caught up with"
        averaged = self._averaged if self._is_averaging else set[Tensor]()
        with self.together():
            if not averaged:
                self._parallel(*empty)  # the reduction begins with the module's forward pass
            if left := [weight for weight in _trained(self._parallel) if weight not in averaged]:
                (0.0 * torch.stack([weight.sum() for weight in left]).sum()).backward()  # reduces buckets that are left

    def begin(self, work: str) -> None:
        """Name the joint work that starts now. If no worker makes progress in it for too long, all workers end.

        Args:
            work: Description for messages. Empty for work without a time limit, such as what the first worker does
                alone.
        """
        if self._watch is not None:
            self._watch.note(work=work)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Convert an error of a collective operation into one that names the lost workers.

        Raises:
            LostWorkerError: If a worker is lost.
            TrainingError: If all workers are alive but cannot reach each other.
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
"""Environment variable set by a launcher that itself reports which worker was killed."""
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")  # the name since PyTorch 2.13, and the one before
    if name in inspect.signature(DistributedDataParallel).parameters
)
_AFRESH = "clearhead/afresh"


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module.parameters() if weight.requires_grad]


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor gathered from the shares of all workers; all workers must call this together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_rows(tensor: Tensor | None) -> range | None:
    """Return which rows of a sharded tensor this worker holds; None if the tensor is not sharded."""
    if not isinstance(tensor, DTensor):
        return None
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    first = min(mesh.get_local_rank() * -(-rows // mesh.size()), rows)  # each but the last ones has equally many
    return range(first, first + tensor.to_local().shape[0])


def with_own_rows(rows: Tensor, other: Tensor | None) -> Tensor:
    """Return a tensor that is sharded as `other` is and of which this worker holds these rows.

    Rows that do not fit are returned as they are, and so are the rows of a tensor that is not sharded.
    """
    if not isinstance(other, DTensor) or rows.shape != other.to_local().shape:
        return rows
    options: dict[str, Any] = {"shape": other.shape, "stride": other.stride(), "run_check": False}
    return DTensor.from_local(rows.to(other.device), other.device_mesh, other.placements, **options)


def part_like(tensor: Tensor, other: Tensor | None) -> Tensor:
    """Return this worker's share of a full tensor if `other` is a sharded one of its shape, else the tensor."""
    if not isinstance(other, DTensor) or isinstance(tensor, DTensor) or tensor.shape != other.shape:
        return tensor
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)


def whole_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors gathered as in `whole`. Gathered ones move to CPU memory: a GPU may not fit all moments."""
    return {name: whole(tensor).cpu() if isinstance(tensor, DTensor) else tensor for name, tensor in tensors.items()}


def _is_of_the_connection(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or re.search("gloo|connection|NCCL", str(error), re.IGNORECASE) is not None
