"""`clearhead average`: one model from the last checkpoints of a run (paper section 6.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import Threads


def average(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Model directory to write.")],
    last: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000_000, help="Newest checkpoints to average; the run's train.average_last if not set."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model that stands at the output.")] = False,
    device: Annotated[str, typer.Option(help="Where to validate the result: auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Threads = None,
) -> None:
    """Average the last checkpoints of a run into a model, and say how good it is beside the run's own.

    It is validated on the text that the run is validated on; what the run has published is on record. A model that
    stands at the output is replaced only with --force, and then beside the average too.
    """
    from clearhead.training.publish import average_run

    with progress("averaging and validating"):
        paths = average_run(run, output, last=last, device=device, force=force, notice=notice)
    notice(f"averaged {', '.join(path.name for path in paths)} into {output}")
