"""Bulk work in shards: the option `--ray`, and the work on the shards that are not finished."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.files.output_parts import OutputParts, Shard
    from clearhead.runtime.ray_shards import Worker
    from clearhead.translation.line_shards import Models, Work
    from clearhead.translation.translator import Translator

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Divide the work among all machines of a Ray cluster (docs/scaling.md): its HOST:PORT, or auto for that "
        "of this machine, which is started if there is none. Finished parts are kept beside the output: after "
        "an interruption the same command continues.",
        show_default="this process",
    ),
]


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
    address: str | None,
    output: str,
    inputs: Iterable[tuple[str, Iterable[str]]],
    models: Models,
    work: Work,
    translator: Translator,
    shard_lines: int | None = None,
) -> Iterator[OutputParts]:
    """Make the parts of an output that are missing, and yield all; they are removed when the block ends without error.

    Args:
        address: Ray cluster that makes them, as for `ray_actors`; None for this process.
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
    from clearhead.translation.line_shards import load_worker

    origin = work.origin(translator)
    with OutputParts.of(output, inputs, origin, shard_lines) as parts:
        missing = [shard for shard in parts.shards if parts.get(shard) is None]
        if before := _num_lines(parts.shards) - _num_lines(missing):
            notice(f"{before:,} lines were finished before")
        if missing and address is not None:
            make_worker = partial(load_worker, models.on_every_machine(), work, origin)
            _make_on_ray(parts, missing, make_worker, address, device=models.device)
        else:
            for shard in missing:
                parts.add(shard, work.make(translator, shard).to_bytes(shard))
        yield parts


def _num_lines(shards: Sequence[Shard]) -> int:
    return sum(shard.num_lines for shard in shards)


def _make_on_ray(
    parts: OutputParts, missing: Sequence[Shard], make_worker: Callable[[], Worker], address: str, *, device: str
) -> None:
    """Make parts on a Ray cluster, and report how fast that was, and what a million lines cost."""
    from clearhead.runtime.ray_shards import ray_actors, run_on_ray

    lines = _num_lines(missing)
    with ray_actors(address, device=device) as actors, progress("lines", total=lines) as advance:
        start = time.monotonic()
        for number, part in run_on_ray(make_worker, [shard._asdict() for shard in missing], actors):
            parts.add(shard := parts.shards[number], part)
            advance(shard.num_lines)
        seconds = time.monotonic() - start
    notice(actors.speed("lines", lines, seconds))
