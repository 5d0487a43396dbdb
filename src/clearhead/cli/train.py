"""`clearhead train`: train or fine-tune a model on parallel text, or resume a run, in one or several processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.options import (
    OUTPUT,
    Columns,
    FromLang,
    OptionGroup,
    Plain,
    Swap,
    Threads,
    ToLang,
    with_option_groups,
)
from clearhead.errors import ConfigError
from clearhead.text.terminal import for_terminal

Files = list[str] | None


class DataOptions(OptionGroup):
    """Options that are settings of `[data]`."""

    source: Annotated[Files, typer.Option(help="Source text, one segment per line; several files may be given.")] = None
    target: Annotated[Files, typer.Option(help="Translation of the source text, aligned line by line.")] = None
    alignments: Annotated[
        Files,
        typer.Option(
            help="Word alignments of source and target text, line by line, such as 0-0 1-2; one attention head is "
            "trained to follow them."
        ),
    ] = None
    pairs: Annotated[
        Files,
        typer.Option(
            help="Files that contain both sides, such as .tsv, .po or .parquet; also directories and patterns."
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="N,N",
            help="How many times an epoch contains the pairs of each file of --pairs, in the same order.",
            show_default="once",
        ),
    ] = None
    columns: Columns = None
    from_lang: FromLang = None
    to_lang: ToLang = None
    swap: Swap = False
    valid_source: Annotated[
        Files, typer.Option(help="Validation source text; without validation text, some training pairs are held out.")
    ] = None
    valid_target: Annotated[
        Files,
        typer.Option(help="Translation of the validation text, aligned line by line."),
    ] = None
    valid_pairs: Annotated[Files, typer.Option(help="Validation files that contain both sides.")] = None
    general_source: Annotated[
        Files,
        typer.Option(
            help="With --from: general source text on which the model must not get worse. Part of it is used for "
            "validation, part is mixed into the training text (data.general_share)."
        ),
    ] = None
    general_target: Annotated[Files, typer.Option(help="Translation of the general text, aligned line by line.")] = None
    general_pairs: Annotated[Files, typer.Option(help="Files of general text that contain both sides.")] = None


@with_option_groups
def train(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG|RUN",
            help="TOML file of settings, in which every option is also a key; or run directory of a run to resume.",
        ),
    ] = None,
    *,
    data: DataOptions,
    out: Annotated[
        str | None, typer.Option(*OUTPUT, help="Run directory; running the same command again resumes the run.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Preset, such as tiny, small, paper-base or table3-b-dk-16; chosen by corpus size if not set."
        ),
    ] = None,
    from_model: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Fine-tune this model: start from its weights, with its shape and tokenizer. Model directory, or "
            "run directory that contains a model.",
            show_default="random weights",
        ),
    ] = None,
    settings: Annotated[
        Files,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other setting, such as train.batch_tokens=4096."),
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Maximum number of optimiser steps.")] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="Maximum training time in minutes, including data preparation.")
    ] = None,
    golden: Annotated[
        str | None,
        typer.Option(
            metavar="none|FILE",
            help="File of golden sentences, one per line, which the model directory stores with their translations "
            "for `clearhead verify`; or none.",
            show_default="sentences made of words of the vocabulary",
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")] = None,
    threads: Threads = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of processes on this machine that share every step; for several machines see docs/scaling.md.",
            show_default="one per GPU",
        ),
    ] = None,
    plain: Plain = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Start over, and move an existing run to another directory. Without input files, the settings of "
            "that run are used again, including the vocabulary size and number of steps that it chose; --set "
            "changes them.",
        ),
    ] = False,
    force_data: Annotated[
        bool,
        typer.Option(
            "--force-data",
            help="Train also if more than 10 % of the training pairs look wrong (docs/data-doctor.md), or files name "
            "different target languages.",
        ),
    ] = False,
) -> None:
    """Train a model on parallel text. Running the same command again resumes an interrupted run.

    Examples:
      clearhead train --source train.de --target train.en -o runs/de-en
      clearhead train --pairs corpus.tsv -o runs/de-en --max-minutes 30
      clearhead train --from models/de-en --pairs memory.tmx -o runs/mine
    """
    flags = {
        "out": out,
        "preset": preset,
        "from_model": from_model,
        "golden": golden,
        "device": device,
        "data": {**vars(data), "swap": data.swap or None},
        "train": {"max_steps": max_steps, "max_minutes": max_minutes, "plain": plain or None},
    }
    from clearhead.training.distributed import Workers, is_one_of_several, require_workers
    from clearhead.training.launch import launch, usual_workers
    from clearhead.training.run import train_from_values
    from clearhead.training.run_directory import from_here
    from clearhead.training.settings import over_saved

    with Workers.met() as met:
        values = _values(config, flags, settings or [])
        if is_one_of_several():
            require_workers(workers)
        else:
            on = (over_saved(values, fresh=fresh) if values.get("out") else values).get("device")
            if (count := workers or usual_workers(on)) > 1:
                launch(context.obj, count)
                return
        result = train_from_values(values, fresh=fresh, workers=met, force_data=force_data)
    if met.is_first:
        run = from_here(result.run)
        typer.echo(for_terminal(f"model:  {run / 'model'}\nreport: {run / 'report.html'}"), err=True)
        if result.outcome is not None:
            typer.echo(for_terminal(result.outcome), err=True)


def _values(config: Path | None, flags: dict[str, Any], settings: list[str]) -> Mapping[str, Any]:
    """Return all settings of the user, from the file, from `--set` and from flags."""
    from clearhead.config import read_toml
    from clearhead.config.nested import merge, parse_override
    from clearhead.training.settings import over_file

    if config is not None and config.is_dir():
        if flags["out"] is not None:
            raise ConfigError(
                f"{config} is a directory, so it is the run to go on with; leave out --out {flags['out']}"
            )
        if not (config / "config.toml").is_file():
            raise ConfigError(f"{config} is not a run: it holds no config.toml; name a new run with --out")
        flags, config = {**flags, "out": str(config)}, None
    overrides = merge(*map(parse_override, settings), _given(flags))
    return over_file(read_toml(config), overrides) if config else overrides


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    found = {name: _given(value) if isinstance(value, dict) else value for name, value in flags.items()}
    return {name: value for name, value in found.items() if value not in (None, [], {})}
