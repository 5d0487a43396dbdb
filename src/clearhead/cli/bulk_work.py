"""Bulk work in shards: the option `--ray`, and the work on the shards that are not finished."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.files.output_parts import OutputParts
    from clearhead.runtime.ray_shards import Worker

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
        ConfigError: If it is standard output.
    """
    if output is None or is_standard_output(output):
        raise ConfigError("--ray needs -o FILE: finished parts are kept beside that file")
    return output


def finish_on_ray(parts: OutputParts, make_worker: Callable[[], Worker], address: str, *, device: str) -> None:
    """Make the parts that are missing on a Ray cluster, and report how fast that was.

    Args:
        parts: Those of the output.
        make_worker: Returns the function that makes a part, as for `run_on_ray`.
        address: As for `ray_actors`.
        device: As for `ray_actors`.

    Raises:
        ClearheadError: As `ray_actors` and `run_on_ray`.
        DataError: If a part cannot be written.
    """
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
