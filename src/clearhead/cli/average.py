"""`clearhead average`: one model from the last checkpoints of a run (paper section 6.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.console import notice, progress

__all__ = ["average"]


def average(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Model directory to write.")],
    last: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000_000, help="Newest checkpoints to average; the run's train.average_last if not set."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Where to validate the result: auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Average the last checkpoints of a run into a model."""
    from clearhead.training.publish import average_run

    with progress("averaging and validating"):
        paths = average_run(run, output, last=last, device=device, notice=notice)
    notice(f"averaged {', '.join(path.name for path in paths)} into {output}")
