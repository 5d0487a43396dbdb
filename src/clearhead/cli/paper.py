"""`clearhead paper`: compute and check the equations, tables and figures of the paper with our code."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import Threads
from clearhead.errors import ClearheadError

if TYPE_CHECKING:
    from clearhead.paper.parts import ModelPart


class PartName(StrEnum):
    """Names of the parts; defined here because the parts themselves are slow to import."""

    FORMULAS = "formulas"
    TABLE1 = "table1"
    TABLE2 = "table2"
    TABLE3 = "table3"
    SCHEDULE = "schedule"
    POSITIONS = "positions"
    ERRATA = "errata"


def paper(
    part: Annotated[PartName | None, typer.Argument(help="Part to compute; all parts if not given.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write the text, and the figures as PNG, to this directory."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    threads: Threads = None,
) -> None:
    """Compute, check and print the paper's equations, tables and figures; exit with status 1 if a check fails."""
    if output is not None:
        _prepare(output)
    from clearhead.paper.contents import PARTS

    computed: dict[str, Any] = {}
    failures: list[str] = []
    for name in [part] if part else list(PartName):
        with progress(f"computing {name}"):
            result = PARTS[name]()
        failures += [f"{name}: {failure}" for failure in result.failures]
        if as_json:
            checks = [asdict(check) for check in result.checks]
            computed[name] = {"title": result.title, "checks": checks, "data": result.data}
        else:
            typer.echo(f"{result.title}\n{'=' * len(result.title)}\n{result.text}")
        if output is not None:
            _write(output, name, result)
    if as_json:
        typer.echo(json.dumps(computed, ensure_ascii=False, indent=2))
    if failures:
        raise ClearheadError(f"{len(failures)} of the paper's checks failed:\n  " + "\n  ".join(failures))


def _prepare(directory: Path) -> None:
    """Create the directory before the computation."""
    from clearhead.inspection.canvas import require_plots

    require_plots()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ClearheadError(f"cannot write to {directory}: it is a file; name a directory") from None
    except OSError as error:
        raise ClearheadError(f"cannot make the directory {directory}: {error.strerror}") from None


def _write(directory: Path, name: str, part: ModelPart) -> None:
    from clearhead.files import open_output
    from clearhead.inspection.plots import draw

    contents = {f"{name}.txt": f"{part.title}\n\n{part.text}".encode()}
    contents |= {f"{figure}.png": draw(description) for figure, description in part.figures.items()}
    for file, content in contents.items():
        path = directory / file
        with open_output(str(path)) as out:
            out.buffer.write(content)
        notice(f"wrote {path}")
