"""`clearhead export`: convert a model for another library, or make it smaller, and compare results."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearhead.cli.checks import refuse_missing
from clearhead.cli.console import notice, progress
from clearhead.cli.options import OUTPUT, Force, Model, SourceFile, TargetFile, Threads
from clearhead.cli.pairs import PairOptions
from clearhead.cli.rules import refuse_clashes
from clearhead.config.choices import ExportLibrary, ExportPrecision, HuggingFaceName
from clearhead.errors import ConfigError, DataError

if TYPE_CHECKING:
    from clearhead.config.choices import StoredPrecision

PRECISIONS: Mapping[ExportLibrary, Sequence[ExportPrecision]] = {
    "hf": ("float32",),
    "ctranslate2": ("float32", "float16", "bfloat16", "int16", "int8"),
    "onnx": ("float32", "int8"),
    "clearhead": ("int8", "bf16"),
    "web": ("float32", "int8"),
}
"""Precisions in which each library's weights are written."""


def export(
    context: typer.Context,
    model: Model,
    output: Annotated[Path, typer.Option(*OUTPUT, help="Output directory.", show_default=False)],
    to: Annotated[
        Literal[ExportLibrary, HuggingFaceName],
        typer.Option(
            help="Target library: hf (also transformers or huggingface), ctranslate2 or onnx; clearhead, for a small "
            "model directory; or web, for a page or a module that translates without a server.",
            show_default=False,
        ),
    ],
    precision: Annotated[
        ExportPrecision,
        typer.Option(
            help="Precision of the weights: int8 or bf16 with clearhead, any but bf16 with ctranslate2, float32 or "
            "int8 with onnx and web, only float32 with hf."
        ),
    ] = "float32",
    source: SourceFile = None,
    target: TargetFile = None,
    single_file: Annotated[
        bool,
        typer.Option("--single-file", help="With --to web: one HTML file with everything, opened by double click."),
    ] = False,
    module: Annotated[
        bool,
        typer.Option("--module", help="With --to web: a package for npm, an ES module with types, in place of a page."),
    ] = False,
    force: Force = False,
    threads: Threads = None,
) -> None:
    """Export a model to the format of another library, as a small model or as a web page, and compare the results.

    Examples:
      clearhead export runs/de-en -o de-en-hf --to transformers
      clearhead export runs/de-en -o de-en-ct2 --to ctranslate2 --precision int8
      clearhead export runs/de-en -o de-en.html --to web --precision int8 --single-file

    Another library is compared if it is installed. A small model (--to clearhead) is about a quarter of the size in
    int8 and half in bf16, and is used like any other. It is compared with the original on the lines of --source, with
    BLEU and chrF if --target has their translations, or else on the model's golden sentences. A page or a module
    (--to web) checks the golden sentences when it opens, and translates nothing if one differs.

    An existing export is replaced only with --force, and only by one of its kind: a small model, a page, a module, or a
    directory for another library.
    """
    match to:
        case "transformers" | "huggingface":
            library: ExportLibrary = "hf"
        case _:
            library = to
    refuse_clashes(context)
    if precision not in PRECISIONS[library]:
        choices = " or ".join(PRECISIONS[library])
        raise ConfigError(f"--precision {precision} is not written with --to {to}; choose {choices}")
    stored: Any = precision
    refuse_missing([path for path in (source, target) if path is not None])

    if library == "clearhead":
        _export_small(model, output, stored, source, target, force=force)
        return
    if library == "web":
        if module:
            _export_module(model, output, stored, force=force)
        else:
            _export_web(model, output, stored, single_file=single_file, force=force)
        return

    from clearhead.conversion import export_model

    with progress("writing and comparing"):
        made = export_model(model, output, to=library, precision=stored, force=force)
    for note in made.notes:
        notice(note)
    typer.echo(f"read     {model}")
    typer.echo(f"written  {output}, {made.written}")
    typer.echo(f"proof    {made.proof}")


def _export_web(
    model: Path, output: Path, precision: Literal["float32", "int8"], *, single_file: bool, force: bool
) -> None:
    from clearhead.browser.writer import refuse_other, write_web
    from clearhead.bundle import load_bundle

    refuse_other(output, single_file=single_file, force=force)
    with progress("writing"):
        sizes = write_web(load_bundle(model), output, _name(model), precision, single_file=single_file, force=force)
    page = output if output.is_file() else output / "index.html"
    typer.echo(f"read     {model}")
    typer.echo(f"written  {output}, {sum(sizes.values()) / 1e6:,.1f} MB")
    if single_file:
        typer.echo(f"open     {page}, by double click")
    else:
        typer.echo(f"open     http://localhost:8000 after python -m http.server -d {shlex.quote(str(output))}")


def _export_module(model: Path, output: Path, precision: Literal["float32", "int8"], *, force: bool) -> None:
    from clearhead.browser.module import package_name, refuse_other_module, write_module
    from clearhead.bundle import load_bundle

    refuse_other_module(output, force=force)
    with progress("writing"):
        sizes = write_module(load_bundle(model), output, _name(model), precision, force=force)
    typer.echo(f"read     {model}")
    typer.echo(f"written  {output}, {sum(sizes.values()) / 1e6:,.1f} MB")
    install = f"npm install {shlex.quote(str(output.absolute()))}"
    typer.echo(f'use      {install}, then import {{ load }} from "{package_name(output)}"')


def _name(model: Path) -> str:
    """Return the name of a model by its path: that of the run, for the model of a run."""
    path = model.absolute()
    return path.parent.name if path.name == "model" else path.name


def _export_small(
    model: Path, output: Path, precision: StoredPrecision, source: str | None, target: str | None, *, force: bool
) -> None:
    from clearhead.bundle import load_bundle
    from clearhead.bundle.model_directory import is_small_model, require_new
    from clearhead.files import read_lines
    from clearhead.translation.small_model import export_small

    require_new(output, is_small_model, force=force)
    sources = references = None
    if target is not None:
        pairs = PairOptions().read(source, target)
        sources, references = pairs.sources, pairs.targets
    elif source is not None:
        sources = list(read_lines(source))
    if sources == []:
        raise DataError(f"{source} has no lines to compare the models on")
    bundle = load_bundle(model)
    num_lines = len(bundle.golden if sources is None else sources)
    with progress("comparing", total=2 * num_lines) as advance:
        comparison, notes = export_small(
            bundle, output, precision, sources=sources, references=references, force=force, on_progress=advance
        )
    for note in notes:
        notice(note)
    size = (output / "model.safetensors").stat().st_size
    typer.echo(f"read     {model}")
    typer.echo(f"written  {output}, a model in {precision}, {size / 1e6:,.1f} MB")
    for line in comparison.lines():
        typer.echo(f"compared {line}")
