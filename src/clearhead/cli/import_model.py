"""`clearhead import`: convert another library's model to a model directory, and compare results if possible."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import OUTPUT, Threads


def import_model(
    path: Annotated[Path, typer.Argument(help="Model directory or file of the other library.", show_default=False)],
    output: Annotated[Path, typer.Option(*OUTPUT, help="Model directory to write.", show_default=False)],
    kind: Annotated[
        str | None, typer.Option(help="Kind of model, if its config.json does not name it (docs/models.md).")
    ] = None,
    source_lang: Annotated[
        str | None, typer.Option(help="Source language, for models with source-language tokens.")
    ] = None,
    target_lang: Annotated[str | None, typer.Option(help="Default target language.", show_default=False)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing model in the output directory.")] = False,
    threads: Threads = None,
) -> None:
    """Convert a model of another library to a model directory, without running any code from its files.

    Examples:
      clearhead import opus-mt-de-en -o models/de-en
      clearhead import m2m100 -o models/de-en --source-lang de --target-lang en
      clearhead import model_step_50000.pt -o models/de-en

    An existing model in the output directory is replaced only with --force.
    """
    from clearhead.bundle import refuse_foreign, refuse_model, save_bundle
    from clearhead.interop.import_model import import_path
    from clearhead.interop.imported import card
    from clearhead.translation.golden import NUM_GOLDEN, make_golden, require_computed_alike, vocabulary_sources
    from clearhead.translation.translator import Translator

    refuse_foreign(output)
    if not force:
        refuse_model(output)
    imported = import_path(path, kind=kind, source_lang=source_lang, target_lang=target_lang)
    model, tokenizer = imported.bundle.model, imported.bundle.tokenizer
    golden, sources = [], vocabulary_sources(tokenizer, NUM_GOLDEN, is_tagged=False)
    compared = "tokens and hidden states"
    if model.config.num_decoder_layers:
        with progress("translating golden sentences"):
            golden = make_golden(Translator(imported.bundle))
        sources, compared = [sentence["source"] for sentence in golden], "tokens, scores and texts"
    proof = f"not compared with its own library: {imported.why_unproven}"
    if imported.prove is not None:
        with progress(f"comparing with {imported.library}"):
            found = imported.prove(sources)
        proof = found or f"{len(sources)} sentences have the same {compared} as in {imported.library}"
    said, check = card(output.name, imported, proof), partial(require_computed_alike, golden=golden)
    save_bundle(output, imported.bundle, golden=golden, card=said, check=check)
    for note in imported.notes:
        notice(note)
    typer.echo(f"read     {path}, of the kind {imported.kind}")
    typer.echo(f"model    {model.num_parameters():,} parameters, {tokenizer.vocab_size:,} pieces")
    typer.echo(f"proof    {proof}")
    typer.echo(f"written  {output}")
