"""`clearhead paper`: compute and check the equations, tables and figures of the paper with our code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from clearhead.cli.console import notice, progress
from clearhead.cli.options import OUTPUT, Json, Threads
from clearhead.errors import ClearheadError, ConfigError, nearest_name

if TYPE_CHECKING:
    from clearhead.config import ModelConfig
    from clearhead.paper.parts import ModelPart


PartName = Literal[
    "figure1",
    "figure2",
    "formulas",
    "table1",
    "table2",
    "table3",
    "table4",
    "schedule",
    "positions",
    "errata",
    "walk",
    "concepts",
    "exercises",
]
"""Names of the parts; listed here because the parts themselves are slow to import."""

_DRAWN_WITHOUT_PLOTS = ("figure1", "figure2", "walk")
"""Parts that are written without matplotlib, as SVG or as a page."""


def paper(
    part: Annotated[PartName | None, typer.Argument(metavar="PART", help="Part to compute; otherwise all.")] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="With `concepts`: the concept whose program to show and run. With `walk`: a sentence of words that "
            "its model knows. With `figure1` and `figure2`: a preset, or the directory of a model or run, to draw "
            "instead of paper-base. With `exercises`: the number of one to show, or a file of answers to check.",
        ),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="With `exercises` and a number: a file with the answer to check."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            *OUTPUT, metavar="DIR", help="Write the text, the figures as PNG or SVG, and pages to this directory."
        ),
    ] = None,
    as_json: Json = False,
    threads: Threads = None,
) -> None:
    """Compute, check and print the paper's equations, tables and figures; exit with status 1 if a check fails.

    Examples:
      clearhead paper figure1 runs/demo -o figures
      clearhead paper walk "the cat sleeps" -o walk
      clearhead paper exercises -o .

    `concepts` lists what notes on the paper explain; with a name it shows a short program for it, runs it, and with -o
    draws its picture. `walk` prints every number of a small Transformer from a sentence to the next token; with -o it
    also writes a page that shows one stage at a time. `exercises` lists functions of the paper with a blank to fill in;
    -o writes all to one file, and a file of answers is checked, with hints.
    """
    if part == "exercises":
        _exercises(name, answers, output, as_json)
        return
    if answers is not None:
        raise ConfigError(f"{part} takes one name; write it in quotes: {f'{name} {answers}'!r}")
    parts = _parts(part, name)
    if part == "concepts" and name is None and output is None and not as_json:
        from clearhead.paper.concepts import concept_list

        typer.echo(concept_list(), nl=False)
        return
    if output is not None:
        _prepare(output, needs_plots=part not in _DRAWN_WITHOUT_PLOTS)
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


def _exercises(name: str | None, answers: Path | None, output: Path | None, as_json: bool) -> None:
    """List, show, write or check exercises; exit with status 1 if an answer is wrong."""
    from clearhead.paper.exercises.catalogue import EXERCISES, exercise, exercise_list, workbook
    from clearhead.paper.exercises.checking import check_file, summary

    chosen = EXERCISES
    if name is not None and name.isdecimal():
        chosen = (exercise(int(name)),)
    elif name is not None and (answers is not None or not Path(name).exists()):
        raise ConfigError(f"{name!r} is neither the number of an exercise (1 to {len(EXERCISES)}) nor a file")
    elif name is not None:
        answers = Path(name)
    if output is not None:
        if answers is not None:
            raise ConfigError("-o writes exercises to fill in; a file of answers is checked without it")
        _prepare(output, needs_plots=False)
        _write_new(output / "exercises.py", workbook(chosen))
    elif answers is not None:
        with redirect_stdout(sys.stderr):  # what the answers print is no part of the verdicts
            verdicts = check_file(answers, chosen)
        asked = len(chosen) == 1
        if as_json:
            typer.echo(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
        else:
            typer.echo(verdicts[0] if asked else summary(verdicts))
        if any(verdict.state == "wrong" or (asked and verdict.state == "open") for verdict in verdicts):
            raise typer.Exit(1)
    elif as_json:
        shown = [
            {"number": task.number, "section": task.section, "name": task.name, "code": workbook([task])}
            for task in chosen
        ]
        typer.echo(json.dumps(shown, indent=2))
    else:
        typer.echo(exercise_list() if name is None else workbook(chosen), nl=False)


def _write_new(file: Path, text: str) -> None:
    """Write a file that may not exist yet: one that does may have answers in it."""
    from clearhead.files import open_output

    if file.exists():
        raise ClearheadError(f"{file} exists, and may have answers in it; name another directory, or move the file")
    with open_output(str(file)) as out:
        out.write(text)
    notice(f"wrote {file}")


def _parts(part: PartName | None, name: str | None) -> Mapping[str, Callable[[], ModelPart]]:
    """Return the functions that compute a part or concept, or all of them, by name."""
    from clearhead.paper.concepts import CONCEPTS, concept_part, find
    from clearhead.paper.contents import FIGURES, PARTS
    from clearhead.paper.walk.part import walk

    if part == "concepts":
        return {entry.name: partial(concept_part, entry) for entry in (CONCEPTS if name is None else (find(name),))}
    if part == "walk" and name is not None:
        return {part: partial(walk, name)}
    if name is not None and part is not None and part in FIGURES:
        return {part: partial(FIGURES[part], _config(name))}
    if name is not None:
        raise ConfigError(f"{part} takes no name ({name!r}); concepts, exercises, figure1, figure2 and walk do")
    return PARTS if part is None else {part: PARTS[part]}


def _config(name: str) -> ModelConfig:
    """Return the configuration of a preset or a model."""
    from clearhead.bundle import load_bundle
    from clearhead.config.presets import PRESETS

    if name in PRESETS:
        return PRESETS[name]()
    if not Path(name).exists():
        raise ConfigError(f"{name!r} is neither a preset nor a model directory{nearest_name(name, PRESETS)}")
    return load_bundle(name).config


def _prepare(directory: Path, *, needs_plots: bool) -> None:
    """Create the directory, and check that figures can be drawn, before the computation."""
    from clearhead.inspection.canvas import require_plots

    if needs_plots:
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
    from clearhead.paper.places import PACKAGE

    contents = {f"{name}.txt": f"{part.title}\n\n{part.text}".encode()}
    contents |= {f"{figure}.png": draw(description) for figure, description in part.figures.items()}
    contents |= {f"{page}.html": text.encode() for page, text in part.pages.items()}
    package = quote(Path(os.path.relpath(PACKAGE, directory.resolve())).as_posix())
    contents |= {f"{diagram}.svg": drawn.svg(package).encode() for diagram, drawn in part.diagrams.items()}
    for file, content in contents.items():
        path = directory / file
        with open_output(str(path)) as out:
            out.buffer.write(content)
        notice(f"wrote {path}")
