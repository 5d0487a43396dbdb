"""`clearhead export`: convert a model for another library, and compare results if that library is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import Model, Threads
from clearhead.config.choices import ExportLibrary, ExportPrecision

NUM_COMPARED = 8
"""Number of sentences compared, made of words of the vocabulary."""


def export(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="Output directory.", show_default=False)],
    to: Annotated[
        ExportLibrary,
        typer.Option(help="Target library: hf (Hugging Face transformers), ctranslate2 or onnx.", show_default=False),
    ],
    precision: Annotated[
        ExportPrecision,
        typer.Option(
            help="Precision of the weights: any with ctranslate2, float32 or int8 with onnx, only float32 with hf."
        ),
    ] = "float32",
    threads: Threads = None,
) -> None:
    """Export a model to the format of another library, and compare results with that library if it is installed."""
    from clearhead.bundle import load_bundle
    from clearhead.interop.export_model import export_directory
    from clearhead.translation.golden import vocabulary_sources

    bundle = load_bundle(model)
    sources = vocabulary_sources(bundle.tokenizer, NUM_COMPARED, is_tagged=bundle.decode.target_lang is None)
    with progress("writing and comparing"):
        written, compared, notes = export_directory(bundle, output, to, sources, precision)
    for note in notes:
        notice(note)
    typer.echo(f"read     {model}")
    typer.echo(f"written  {output}, {written}")
    typer.echo(f"proof    {compared}")
