"""`clearhead runs`: list runs with their data, settings and scores, and compare them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.checks import refuse_other_than_page
from clearhead.cli.console import notice
from clearhead.cli.options import OUTPUT, Json
from clearhead.errors import ConfigError
from clearhead.text.lines import for_terminal

if TYPE_CHECKING:
    from clearhead.training.runs import RunSummary

FOLDER = Path("runs")


def runs(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN|FOLDER", help="Runs, or folders that hold runs.", show_default="runs"),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show what differs: data, vocabulary, steps and settings.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(*OUTPUT, metavar="PAGE.html", help="Write a page with the runs' curves over each other."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List runs with their data, scores and the settings that differ; runs may be training meanwhile.

    Examples:
      clearhead runs
      clearhead runs runs/a runs/b --compare
      clearhead runs runs/a runs/b -o runs.html
    """
    if page is not None:
        refuse_other_than_page("--output", str(page))

    from clearhead.training.runs import differences, find_runs, not_comparable, read_run, write_runs_page

    found = []
    for path in find_runs(paths or [FOLDER]):
        try:
            found.append(read_run(path))
        except ConfigError as error:  # the others are worth showing
            notice(str(error))
    if not found:
        raise ConfigError("none of these runs can be read")
    if compare and len(found) < 2:
        raise ConfigError(f"--compare needs several runs, and this is {found[0].path} alone")
    for run in found:
        for problem in run.problems:
            notice(f"{run.path}: {problem}")
    if len(found) > 1 and (warning := not_comparable(found)):
        notice(warning)
    if page is not None:
        write_runs_page(page, found)
    if as_json:
        typer.echo(json.dumps([run.to_dict() for run in found], ensure_ascii=False, indent=2))
    elif compare and not (different := differences(found)):
        typer.echo("nothing differs: data, vocabulary, steps and settings are the same")
    elif compare:
        _print_table(["", *(str(run.path) for run in found)], different)
    else:
        typer.echo(for_terminal("\n".join(_lines(found))))
    if page is not None:
        typer.echo(for_terminal(f"page: {page}"), err=True)


def _lines(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Yield each run, and below it its data, its scores, and the settings that it was given and others were not."""
    from clearhead.training.runs import differing_settings, scores_on_test_sets

    different = differing_settings(runs)
    for at, run in enumerate(runs):
        data, given = run.config.data, run.given
        files = [Path(name).name for name in (*data.source, *data.target, *data.pairs)]
        pairs = "no data prepared yet" if run.num_pairs is None else f"{run.num_pairs:,} pairs"
        yield str(run.path)
        state = "finished" if run.is_finished else "unfinished"
        yield f"  {state}, {run.steps:,} steps of {run.config.preset} on {pairs} of {', '.join(files)}"
        if scores := [f"{name} {value:.2f}" for name, value in run.validation.items()]:
            yield f"  validation {', '.join(scores)}" + "".join(f"; {score}" for score in scores_on_test_sets(run))
        if own := [f"{name} = {values[at]}" for name, values in different.items() if name in given]:
            yield f"  {', '.join(own)}"


def _print_table(heads: Sequence[str], rows: dict[str, list[str]]) -> None:
    """Print a table: aligned on a terminal, otherwise separated by tabs."""
    if not sys.stdout.isatty():
        for row in (heads, *([name, *values] for name, values in rows.items())):
            typer.echo(for_terminal("\t".join(row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(Text(for_terminal(head)), overflow="fold")
    for name, values in rows.items():
        table.add_row(*(Text(for_terminal(value)) for value in (name, *values)))
    Console().print(table)
