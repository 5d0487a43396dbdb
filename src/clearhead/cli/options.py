"""Arguments and options that several commands share, so that they are named and explained alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["BatchTokens", "Beam", "Device", "Model", "SourceFile", "TargetLang"]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model directory, or run directory (its model).")]
SourceFile = Annotated[str, typer.Option("--source", metavar="FILE", help="Source text, one segment a line.")]
Beam = Annotated[
    int | None, typer.Option("--beam", metavar="K", help="Beam size; 1 is greedy search.", show_default="the model's")
]
TargetLang = Annotated[
    str | None,
    typer.Option(
        "--target-lang",
        metavar="L",
        help="Language of the translations, for a model with language tags; a line's own tag goes before.",
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option("--batch-tokens", metavar="N", help="Source tokens computed at once.", show_default="the model's"),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
