"""`clearhead paper`: compute and check the equations, tables and figures of the paper with our code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import OUTPUT, Threads
from clearhead.errors import ClearheadError, ConfigError

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
    WALK = "walk"
    CONCEPTS = "concepts"


def paper(
    part: Annotated[PartName | None, typer.Argument(help="Part to compute; all parts if not given.")] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            help="With `concepts`: the concept whose program to show and run; all are listed if not given. With "
            "`walk`: a sentence of the words that its model knows."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(*OUTPUT, metavar="DIR", help="Write the text, the figures as PNG, and pages to this directory."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    threads: Threads = None,
) -> None:
    """Compute, check and print the paper's equations, tables and figures; exit with status 1 if a check fails.

    Examples:
      clearhead paper concepts self-attention
      clearhead paper table3 -o tables
      clearhead paper walk "the cat sleeps" -o walk

    `concepts` lists what notes on the paper explain; with a name it shows a short program for it, runs it, and with -o
    draws its picture. `walk` prints every number of a small Transformer from a sentence to the next token; with -o it
    also writes a page that shows one stage at a time.
    """
    parts = _parts(part, name)
    if part is PartName.CONCEPTS and name is None and output is None and not as_json:
        from clearhead.paper.concepts import concept_list

        typer.echo(concept_list(), nl=False)
        return
    if output is not None:
        _prepare(output, draws=part is not PartName.WALK)
    computed: dict[str, Any] = {}
    failures: list[str] = []
    for key, compute in parts.items():
        try:
            with progress(f"computing {key}"):
                result = compute()
        except ClearheadError as error:
            if len(parts) == 1:
                raise
            failures.append(str(error))
            continue
        failures += [f"{key}: {failure}" for failure in result.failures]
        if as_json:
            checks = [asdict(check) for check in result.checks]
            computed[key] = {"title": result.title, "checks": checks, "data": result.data}
        else:
            typer.echo(f"{result.title}\n{'=' * len(result.title)}\n{result.text}")
        if output is not None:
            _write(output, key, result)
    if as_json:
        typer.echo(json.dumps(computed, ensure_ascii=False, indent=2))
    if failures:
        raise ClearheadError(f"{len(failures)} of the paper's checks failed:\n  " + "\n  ".join(failures))


def _parts(part: PartName | None, name: str | None) -> Mapping[str, Callable[[], ModelPart]]:
    """Return the functions that compute a part or concept, or all of them, by name."""
    from clearhead.paper.concepts import CONCEPTS, concept_part, find
    from clearhead.paper.contents import PARTS
    from clearhead.paper.walk.part import walk

    if part is PartName.CONCEPTS:
        return {one.name: partial(concept_part, one) for one in (CONCEPTS if name is None else (find(name),))}
    if part is PartName.WALK and name is not None:
        return {part: partial(walk, name)}
    if name is not None:
        raise ConfigError(f"{name!r}: only the part `concepts` has names; run clearhead paper concepts {name}")
    return PARTS if part is None else {part: PARTS[part]}


def _prepare(directory: Path, *, draws: bool) -> None:
    """Create the directory, and check that figures can be drawn, before the computation."""
    from clearhead.inspection.canvas import require_plots

    if draws:
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
    contents |= {f"{page}.html": text.encode() for page, text in part.pages.items()}
    for file, content in contents.items():
        path = directory / file
        with open_output(str(path)) as out:
            out.buffer.write(content)
        notice(f"wrote {path}")
