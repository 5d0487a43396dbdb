"""`clearhead info`: describe a model, a run, or this installation."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.console import notice
from clearhead.cli.options import Json
from clearhead.cli.summary import plain, summary
from clearhead.errors import CheckpointError
from clearhead.runtime.version import full_version

if TYPE_CHECKING:
    from clearhead.bundle import Bundle


LAST_RECORDS = 3
"""Number of records of a run's log that are shown."""

Row = tuple[int, str, str, str]
"""Depth, name and value of a line of output, and the layer that a setting of a run is from."""


def info(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL|RUN", help="Model directory or run directory; if not given, show this installation."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show all details and settings.")] = False,
    as_json: Json = False,
) -> None:
    """Show a model's shape, vocabulary, data, training, quality and translation engine, or the progress of a run.

    Examples:
      clearhead info
      clearhead info runs/de-en
      clearhead info runs/de-en --all

    Without an argument: show the installed versions and the translation engine.
    """
    facts = _installation_facts() if path is None else _facts(path)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    rows = _rows(facts) if everything else ((0, name, value, "") for name, value in summary(facts))
    if sys.stdout.isatty():
        _print_table(list(rows), is_nested=everything)
    else:
        typer.echo(
            "\n".join(
                f"{'  ' * depth}{name}: {value}{origin and f'  ({origin})'}".rstrip()
                for depth, name, value, origin in rows
            )
        )


def _installation_facts() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    from clearhead.kernels.library import describe
    from clearhead.runtime.device import resolve_device
    from clearhead.runtime.threads import num_threads

    try:
        pytorch = version("torch")
    except PackageNotFoundError:
        pytorch = "not installed"
    return {
        "installation": {
            "clearhead_version": full_version(),
            "python": platform.python_version(),
            "torch": pytorch,
            "device": resolve_device(),
            "threads": num_threads(),
            "compiled_core": describe(),
        }
    }


def _facts(path: Path) -> dict[str, Any]:
    from clearhead.files import readable_version

    facts = _run_facts(path) if (path / "config.toml").is_file() else {}
    if not facts or any((readable_version(place) / "config.json").is_file() for place in (path, path / "model")):
        facts = {**_model_facts(path), **facts}
    return facts


def _model_facts(path: Path) -> dict[str, Any]:
    from clearhead.bundle import load_bundle
    from clearhead.bundle.model_directory import model_directory

    directory = model_directory(path)
    bundle = load_bundle(directory)
    return {
        "model": {
            "directory": str(directory),
            "clearhead_version": bundle.clearhead_version,
            "format_version": bundle.format_version,
            "parameters": bundle.weights.num_parameters(),
            "stored_in": bundle.precision or "float32",
            **bundle.config.model_dump(mode="json"),
        },
        "tokenizer": {
            "kind": bundle.tokenizer.kind,
            "vocab_size": bundle.tokenizer.vocab_size,
            "language_tags": list(bundle.tokenizer.language_tags),
            "sha256": bundle.tokenizer.sha256,
        },
        "languages": dict(zip(("source", "target"), bundle.languages, strict=True)),
        "decode": bundle.decode.model_dump(mode="json"),
        "translated_by": _engine_facts(bundle),
        "made": dict(bundle.info),
    }


def _engine_facts(bundle: Bundle) -> dict[str, str]:
    """Return the engine and device that `clearhead translate` would use here, and the reason."""
    from clearhead.decoding import NativeEngine
    from clearhead.kernels.library import describe
    from clearhead.runtime.device import resolve_device
    from clearhead.runtime.pytorch import has_pytorch

    device = resolve_device()
    obstacle: str | None = "the compiled core computes on the CPU alone"
    if device == "cpu":
        obstacle = NativeEngine.obstacle(bundle.weights, bundle.decode.precision)
    if obstacle is None:
        return {"engine": "compiled core", "device": device, "because": describe()}
    engine = "PyTorch" if has_pytorch() else "PyTorch, which is not installed"
    return {"engine": engine, "device": device, "because": obstacle}


def _run_facts(run: Path) -> dict[str, Any]:
    from clearhead.config import Config
    from clearhead.training.checkpoints import Checkpoints
    from clearhead.training.layers import origins
    from clearhead.training.log import read_metrics
    from clearhead.training.run_directory import is_finished

    config = Config.load(run / "config.toml")
    checkpoints = Checkpoints(run / "checkpoints", notice)
    try:
        newest = checkpoints.newest()
    except CheckpointError as error:  # the rest is worth showing all the more
        notice(str(error))
        newest = None
    try:
        records = read_metrics(run / "metrics.jsonl")[-LAST_RECORDS:]
    except CheckpointError as error:
        notice(str(error))
        records = []
    finished = is_finished(run)
    facts: dict[str, Any] = {
        "directory": str(run),
        "state": "finished" if finished else f"unfinished: clearhead train {shlex.quote(str(run))} goes on",
        "preset": config.preset,
        "checkpoints": [path.name for path in checkpoints.paths()],
        "newest_checkpoint": None if newest is None else newest[0].name,
        "last_records": records,
    }
    if newest is not None:
        facts["training_state"] = newest[1].to_dict()
    if not finished:
        facts["config"] = config.model_dump(mode="json")
        facts["config_from"] = origins(config)
    return {"run": facts}


def _rows(
    values: Mapping[str, Any], depth: int = 0, origins: Mapping[str, str] | None = None, section: str = ""
) -> Iterator[Row]:
    """Yield nested values as indented rows; `origins` are those of settings, by dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            if name != "config_from":  # a column of `config`
                yield depth, name, "", ""
                inner = values.get("config_from") if name == "config" else origins
                yield from _rows(value, depth + 1, inner, f"{name}." if origins else "")
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            yield depth, name, "", ""
            for number, item in enumerate(value, start=1):
                if isinstance(item, Mapping) and any(isinstance(inner, Mapping | list) for inner in item.values()):
                    yield depth + 1, str(number), "", ""
                    yield from _rows(item, depth + 2)
                else:
                    yield depth + 1, str(number), plain(item), ""
        else:
            yield depth, name, plain(value), (origins or {}).get(f"{section}{name}", "")


def _print_table(rows: list[Row], *, is_nested: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column()
    for depth, name, value, origin in rows:
        if is_nested and depth == 0:
            table.add_row("", "", "")
        style = "bold" if not (is_nested and value) else ""
        table.add_row(Text("  " * depth + name, style=style), Text(value), Text(origin, style="dim"))
    Console().print(table)
