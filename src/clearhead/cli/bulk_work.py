"""Bulk work in shards: the options `--ray` and `--machine`, and the work on the shards that are not finished."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import MACHINE, OptionGroup
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.files.output_parts import OutputParts, Shard
    from clearhead.runtime.ray_shards import Actors, Worker
    from clearhead.translation.line_shards import Models, Work
    from clearhead.translation.translator import Translator


Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Divide the work among all machines of a Ray cluster (docs/scaling.md): its HOST:PORT, or auto for the "
        "cluster of this machine, which is started if there is none. Finished parts are kept beside the output: after "
        "an interruption the same command continues.",
        show_default="this process",
    ),
]


class BulkOptions(OptionGroup):
    """Whether and where work is done in shards.

    Raises:
        ConfigError: If the machine file cannot be used, or has no price.
    """

    ray: Ray = None
    machine: Path | None = typer.Option(None, metavar="FILE", help=MACHINE, show_default="no price is computed")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.price = None if self.machine is None else _price_in(self.machine)


def _price_in(path: Path) -> float:
    """Return the price of a device an hour in a machine file."""
    from clearhead.training.machine import Machine

    if (price := Machine.load(path).price) is None:
        raise ConfigError(f"{path} has no price of a device an hour; add one, such as: price = 2.5")
    return price


def named_file(output: str | None) -> str:
    """Return the output of work in shards, which is a file, beside which finished parts can be kept.

    Raises:
        ConfigError: If it is standard output, another device or a pipe.
    """
    if output is None or is_standard_output(output) or (os.path.exists(output) and not os.path.isfile(output)):
        raise ConfigError("--ray needs -o FILE: finished parts are kept beside that file")
    return output


@contextmanager
def finished_parts(
    bulk: BulkOptions,
    output: str,
    inputs: Iterable[tuple[str, Iterable[str]]],
    models: Models,
    work: Work,
    translator: Translator,
    shard_lines: int | None = None,
) -> Iterator[OutputParts]:
    """Make the parts of an output that are missing, and yield all; they are removed when the block ends without error.

    Args:
        bulk: Whether and where a Ray cluster makes them.
        output: The output file.
        inputs: As for `OutputParts.of`.
        models: What the workers load.
        work: What they do.
        translator: The same models here.
        shard_lines: As for `OutputParts.of`.

    Raises:
        ClearheadError: As `ray_actors`, `run_on_ray` and `OutputParts.of`.
    """
    from clearhead.files.output_parts import OutputParts
    from clearhead.runtime.ray_shards import ray_actors
    from clearhead.translation.line_shards import load_worker, origin_on

    with nullcontext() if bulk.ray is None else ray_actors(bulk.ray, device=models.device) as actors:
        device = translator.bundle.device if actors is None else actors.torch_device
        origin = origin_on(device, work, translator)
        with OutputParts.of(output, inputs, origin, shard_lines) as parts:
            missing = [shard for shard in parts.shards if parts.get(shard) is None]
            if before := _num_lines(parts.shards) - _num_lines(missing):
                notice(f"{before:,} lines were finished before")
            if missing and actors is not None:
                make_worker = partial(load_worker, models.on_every_machine(), work, origin)
                _make_on_ray(parts, missing, make_worker, actors, bulk.price)
            else:
                for shard in missing:
                    parts.add(shard, work.make(translator, shard).to_bytes(shard))
            yield parts


def _num_lines(shards: Sequence[Shard]) -> int:
    return sum(shard.num_lines for shard in shards)


def _make_on_ray(
    parts: OutputParts,
    missing: Sequence[Shard],
    make_worker: Callable[[], Worker],
    actors: Actors,
    price: float | None,
) -> None:
    """Make parts on a Ray cluster, and report how fast that was, and what a million lines cost."""
    from clearhead.runtime.ray_shards import run_on_ray

    lines = _num_lines(missing)
    with progress("lines", total=lines) as advance:
        start = time.monotonic()
        for number, part in run_on_ray(make_worker, [shard._asdict() for shard in missing], actors):
            parts.add(shard := parts.shards[number], part)
            advance(shard.num_lines)
        seconds = time.monotonic() - start
    notice(actors.speed("lines", lines, seconds, price))
