"""Bulk work on Ray Data: one function applied to every shard of a job, by actors on all machines of a Ray cluster."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple

from clearhead.errors import ClearheadError, ConfigError
from clearhead.runtime.installation import pip_install
from clearhead.runtime.shards import IN_FLIGHT, run_shards
from clearhead.runtime.threads import set_num_threads
from clearhead.runtime.version import full_version

CONNECT_SECONDS = 5.0
"""Time in which a cluster must accept a connection; Ray itself would try for many minutes."""

OLDEST_RAY = (2, 60)

MOST_RESTARTS = 10
"""How often Ray starts an actor again that was ended; by default it does so for ever."""

_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing reaches for the network unasked
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # warnings of the core, about what Ray Data does, would stand among our lines
    "RAY_worker_niceness": "0",  # 15 by default: other programs of the machine would leave nothing to the workers
}
"""Variables of Ray, unless the user has set them; a cluster that is running already has its own."""

Worker = Callable[[Mapping[str, Any]], bytes]
"""Makes the result of a shard, given as a row of numbers and texts."""


class Actors(NamedTuple):
    """The processes that do the work."""

    number: int
    gpus: int
    """GPUs of each, 0 or 1."""

    def __str__(self) -> str:
        """Return such as "2 CPUs"."""
        return f"{self.number:,} {self.device}{'s' if self.number > 1 else ''}"

    @property
    def device(self) -> str:
        """What each has of its own: `CPU` or `GPU`."""
        return "GPU" if self.gpus else "CPU"

    @property
    def torch_device(self) -> str:
        """The same as PyTorch names it: `cpu` or `cuda`."""
        return "cuda" if self.gpus else "cpu"

    def speed(self, what: str, count: int, seconds: float, price: float | None = None) -> str:
        """Return in words how fast they have worked, and what a million of such items cost.

        Args:
            what: Name of the items.
            count: Number of items.
            seconds: Time it took.
            price: Price of one of them an hour, if it is known.
        """
        hours = seconds * self.number / count * 1e6 / 3600
        cost = "" if price is None else f", price {hours * price:,.2f}"
        return (
            f"{count:,} {what} in {seconds:,.0f} s: {count / seconds:,.1f} a second on {self}; a million take "
            f"{hours:,.2f} {self.device} hours{cost}"
        )


@contextmanager
def ray_actors(address: str, *, device: str) -> Iterator[Actors]:
    """Connect to a Ray cluster, and yield the actors that it has room for: one a GPU if it has any, else one a CPU.

    A block within a block uses the same connection.

    Args:
        address: `HOST:PORT` of a cluster that this machine belongs to. `auto` is the cluster of this machine or of
            `RAY_ADDRESS`; if there is none, one starts here, and ends with the block.
        device: `cpu` ignores GPUs.

    Raises:
        ConfigError: If Ray is missing or too old.
        ClearheadError: If the cluster cannot be reached, or has no room.
    """
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--ray needs the package {error.name}, which is not installed: {pip_install('ray')}"
        ) from None
    if tuple(map(int, re.findall(r"\d+", ray.__version__)[:2])) < OLDEST_RAY:
        needed = ".".join(map(str, OLDEST_RAY))
        raise ConfigError(f"--ray needs Ray {needed} or later, and this is {ray.__version__}: {pip_install('ray')}")
    if ray.is_initialized():
        yield _actors(address, device)
        return
    given = address
    if address == "auto":  # the cluster that Ray looks for there may have ended without being forgotten
        given = os.environ.get("RAY_ADDRESS") or ray._private.utils.read_ray_address() or ""
    if given not in ("", "auto", "local"):
        _require_listening(given)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    here: dict[str, Any] = {} if given else {"include_dashboard": False}
    try:
        with _silent_stderr():  # the core prints its level of logging before it follows it
            ray.init(address=None if address == "auto" else address, **quiet, **here)
    except Exception as error:  # Ray raises errors of many kinds, also those of the network and of its own processes
        raise ClearheadError(f"Ray at {address} cannot be used: {_reason(error)}") from None
    try:
        yield _actors(address, device)
    finally:
        ray.shutdown()


def _actors(address: str, device: str) -> Actors:
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = 0 if device == "cpu" else int(resources.get("GPU", 0))
    if not (count := gpus or int(resources.get("CPU", 0))):
        raise ClearheadError(f"Ray at {address} has no CPU")
    return Actors(count, 1 if gpus else 0)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discard what is written on stderr in the block, also by libraries that are not in Python."""
    sys.stderr.flush()
    with open(os.devnull, "wb") as nothing, os.fdopen(os.dup(2), "wb") as kept:
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept.fileno(), 2)


def _require_listening(address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except ValueError:
        raise ConfigError(f"--ray {address}: the address is auto or HOST:PORT, such as 10.0.0.1:6379") from None
    except OSError as error:
        raise ClearheadError(
            f"no Ray answers at {address}: {error.strerror or error}; start one there with: ray start --head; "
            f"or forget it with: ray stop"
        ) from None


def run_on_ray(
    make_worker: Callable[[], Worker], shards: Sequence[Mapping[str, Any]], actors: Actors
) -> Iterator[tuple[int, bytes]]:
    """Apply a function to every shard, and yield the shards' numbers and results in the order in which they finish.

    A shard whose actor is ended is done again by another one; the same shard must give the same result.

    Args:
        make_worker: Returns the function. It is called once in each actor, so that the function may hold a model. It
            must be picklable, such as a `functools.partial` of a function of a module.
        shards: Small descriptions of the parts of the work, each with the same keys, of which one is `number`.
        actors: Those of `ray_actors`, whose block must be open.

    Raises:
        ClearheadError: Any that the function or `make_worker` raises; or if actors are ended again and again.
    """
    import ray
    from ray.data import ActorPoolStrategy, DataContext

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        # Ray deprecates some of its own settings, and the only arguments that limit restarts (unlimited by default).
        warnings.simplefilter("ignore", DeprecationWarning)
        context = DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        context.wait_for_min_actors_s = -1  # work begins with the first actor
        rows = ray.data.from_items([{"shard": dict(shard)} for shard in shards], override_num_blocks=len(shards))
        results = rows.map(
            _Actor,  # type: ignore[arg-type]
            fn_constructor_args=(make_worker,),
            compute=ActorPoolStrategy(size=min(actors.number, len(shards)), max_tasks_in_flight_per_actor=IN_FLIGHT),
            num_cpus=0 if actors.gpus else 1,
            num_gpus=actors.gpus,
            max_restarts=MOST_RESTARTS,
            max_task_retries=MOST_RESTARTS,
        )
    try:
        for row in results.iter_rows():
            if row["error"]:
                raise ClearheadError(row["error"])
            yield row["shard"]["number"], row["result"]
    except ray.exceptions.RayError as error:
        raise ClearheadError(
            f"the work on Ray ended: {_reason(error)}; if a worker was ended, its memory may have been full; "
            f"the same command continues"
        ) from None


def run_here_or_on_ray(
    make_worker: Callable[[], Callable[[Mapping[str, Any]], Any]],
    shards: Sequence[Mapping[str, Any]],
    *,
    processes: int,
    actors: Actors | None,
    advice: str,
) -> Generator[tuple[int, Any]]:
    """Apply a function to every shard, and yield the shards' numbers and results, on Ray as they finish, else in order.

    Args:
        make_worker: As for `run_shards`. The function returns a JSON value.
        shards: JSON objects that describe the parts of the work, one of whose keys is `number`.
        processes: Number of processes on this machine.
        actors: Those of a Ray cluster that do the work instead.
        advice: As for `run_shards`.

    Raises:
        ClearheadError: As `run_shards` and `run_on_ray`.
    """
    if actors is None:
        with closing(run_shards(make_worker, shards, workers=processes, advice=advice)) as results:
            for shard, result in zip(shards, results, strict=True):
                yield shard["number"], result
    elif shards:
        rows = [{"number": shard["number"], "shard": json.dumps(shard)} for shard in shards]
        for number, data in run_on_ray(partial(_JsonWorker, make_worker, full_version()), rows, actors):
            yield number, json.loads(data)


class _JsonWorker:
    """A `Worker` of a function from a JSON object to a JSON value, which may read and write files.

    Raises:
        ConfigError: If this machine has another version of clearhead.
    """

    def __init__(self, make_worker: Callable[[], Callable[[Mapping[str, Any]], Any]], version: str) -> None:
        if full_version() != version:
            raise ConfigError(f"here is clearhead {full_version()}, and {version} where the command was given")
        self._work = make_worker()

    def __call__(self, row: Mapping[str, Any]) -> bytes:
        try:
            return json.dumps(self._work(json.loads(row["shard"]))).encode("ascii")
        except FileNotFoundError as error:
            raise ClearheadError(f"{error}; the files must be at the same place on every machine") from None
        except OSError as error:
            raise ClearheadError(str(error)) from None


def _reason(error: Exception) -> str:
    """Return one line of an error of Ray: what a worker raised, which is within a traceback, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if re.match(r"\w+(Error|Exception)\b", line)), lines[0]).rstrip(".")


class _Actor:
    """What an actor does; errors that a user can correct are results, which need no exceptions across processes."""

    def __init__(self, make_worker: Callable[[], Worker]) -> None:
        self._make = make_worker
        self._worker: Worker | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        result, error = b"", ""
        try:
            if self._worker is None:
                set_num_threads(1)
                os.environ.setdefault("RAYON_NUM_THREADS", "1")  # of the tokenizers library
                self._worker = self._make()
            result = self._worker(row["shard"])
        except ClearheadError as problem:
            error = f"on {socket.gethostname()}: {problem}"
        return {**row, "result": result, "error": error}
