"""Bulk work in shards: the option `--ray`, and the work on the shards that are not finished."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.files.output_parts import OutputParts
    from clearhead.runtime.ray_shards import Worker
    from clearhead.translation.line_shards import Models, Work
    from clearhead.translation.translator import Translator

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Divide the lines among all machines of a Ray cluster (docs/scaling.md): its HOST:PORT, or auto for that "
        "of this machine, which is started if there is none. Finished parts are kept in OUTPUT.parts: after "
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
def parts_on_ray(
    address: str, output: str, lines: Iterable[str], models: Models, work: Work, translator: Translator
) -> Iterator[OutputParts]:
    """Do work in shards on a Ray cluster, report how fast that was, and yield the parts, which then are removed.

    Args:
        address: As for `ray_actors`.
        output: The output file.
        lines: The input.
        models: What the workers load.
        work: What they do.
        translator: The same models here.

    Raises:
        ClearheadError: As `ray_actors`, `run_on_ray` and `OutputParts.of`.
    """
    from clearhead.files.output_parts import OutputParts
    from clearhead.translation.line_shards import load_worker

    origin = work.origin(translator)
    with OutputParts.of(output, lines, origin) as parts:
        _finish_on_ray(parts, partial(load_worker, models, work, origin), address, device=models.device)
        yield parts


def _finish_on_ray(parts: OutputParts, make_worker: Callable[[], Worker], address: str, *, device: str) -> None:
    from clearhead.runtime.ray_shards import ray_actors, run_on_ray

    missing = [shard for shard in parts.shards if parts.get(shard) is None]
    lines = sum(shard.num_lines for shard in missing)
    if before := sum(shard.num_lines for shard in parts.shards) - lines:
        notice(f"{before:,} lines were finished before")
    if not missing:
        return
    with ray_actors(address, device=device) as actors, progress("lines", total=lines) as advance:
        start = time.monotonic()
        for number, part in run_on_ray(make_worker, [shard._asdict() for shard in missing], actors):
            parts.add(shard := parts.shards[number], part)
            advance(shard.num_lines)
        seconds = time.monotonic() - start
    notice(f"{lines:,} lines in {seconds:,.0f} s: {lines / seconds:,.1f} a second on {actors}")
