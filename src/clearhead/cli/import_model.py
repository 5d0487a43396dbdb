"""`clearhead import`: convert another library's model to a model directory, and compare results if possible."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.from_settings import option
from clearhead.cli.options import Force, NewModel, Threads

DEFAULT = "This becomes the model's default."


def import_model(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Model directory or file of the other library.")],
    output: NewModel,
    kind: Annotated[
        str | None, typer.Option(help="Kind of model, if its config.json does not name it (docs/models.md).")
    ] = None,
    source_lang: Annotated[str | None, option("decode.source_lang", metavar="L", more=DEFAULT)] = None,
    target_lang: Annotated[str | None, option("decode.target_lang", metavar="L", more=DEFAULT)] = None,
    markers: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN,TOKEN",
            help="Special tokens that a text may contain, such as <hl>,<sep>; others in a text are text.",
        ),
    ] = None,
    force: Force = False,
    threads: Threads = None,
) -> None:
    """Convert a model of another library to a model directory, without running any code from its files.

    Examples:
      clearhead import opus-mt-de-en -o models/de-en
      clearhead import m2m100 -o models/de-en --source-lang de --target-lang en
      clearhead import model_step_50000.pt -o models/de-en

    An existing model in the output directory is replaced only with --force.
    """
    from clearhead.conversion import import_model as convert

    made = convert(
        path,
        output,
        kind=kind,
        source_lang=source_lang,
        target_lang=target_lang,
        markers=[marker for marker in (markers or "").split(",") if marker],
        force=force,
        stage=progress,
    )
    for note in made.notes:
        notice(note)
    typer.echo(f"read     {path}, of the kind {made.kind}")
    typer.echo(f"model    {made.written}")
    typer.echo(f"proof    {made.proof}")
    typer.echo(f"written  {output}")
