"""`clearhead export`: a model directory of ours as one of another library, and a proof that it is the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import Model, Threads

__all__ = ["export"]

NUM_COMPARED = 8
"""Sentences, made of words of the vocabulary."""


def export(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="The directory to write.", show_default=False)],
    to: Annotated[
        Literal["hf"], typer.Option("--to", help="The library: hf (Hugging Face transformers).", show_default=False)
    ],
    threads: Threads = None,
) -> None:
    """Write a model for another library, and compare with it where it is installed."""
    from clearhead.bundle import load_bundle
    from clearhead.evaluation.golden import vocabulary_sources
    from clearhead.interop.export import export_directory
    from clearhead.interop.proof import can_prove, prove

    bundle = load_bundle(model)
    sources = vocabulary_sources(bundle.tokenizer, NUM_COMPARED, is_tagged=bundle.decode.target_lang is None)
    is_proven = can_prove()
    with progress("writing and comparing"):
        proof = partial(prove, bundle=bundle, sources=sources) if is_proven else None
        kind, notes = export_directory(bundle, output, prove=proof)
    for note in notes:
        notice(note)
    typer.echo(f"read     {model}")
    typer.echo(f"written  {output}, a {kind} model")
    typer.echo(
        f"proof    {len(sources)} sentences have the same tokens, scores and texts in transformers"
        if is_proven
        else "proof    not compared with transformers: pip install 'clearhead[interop]'"
    )
