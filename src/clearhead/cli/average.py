"""`clearhead average`: average the last checkpoints of a run into a model, and validate it (paper section 6.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import Device, Force, NewModel, Threads


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    output: NewModel,
    last: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000_000,
            help="Number of newest checkpoints to average; the run's train.average_last if not set.",
        ),
    ] = None,
    force: Force = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Average the last checkpoints of a run into a model, and compare it with the run's own model.

    Examples:
      clearhead average runs/de-en -o models/average
      clearhead average runs/de-en --last 5 -o models/average
      clearhead evaluate models/average --pairs test.tsv --compare runs/de-en

    Both are compared on the run's validation text; the result of the run's model is taken from its records. An existing
    model in the output directory is replaced only with --force; the average is then compared with that model too.
    """
    from clearhead.training.publish import average_run

    with progress("averaging and validating"):
        paths = average_run(run, output, last=last, device=device, force=force, notice=notice)
    notice(f"averaged {', '.join(path.name for path in paths)} into {output}")
