"""`clearhead train`: from files of parallel text to a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.options import Columns, FromLang, Swap, Threads, ToLang
from clearhead.errors import ConfigError

Files = list[str] | None


def train(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG|RUN", help="Settings in TOML, where every option is also a key; or a run to go on with."
        ),
    ] = None,
    source: Annotated[Files, typer.Option(help="Source text, one segment a line; several files may follow.")] = None,
    target: Annotated[Files, typer.Option(help="Its translation, line by line.")] = None,
    alignments: Annotated[
        Files, typer.Option(help="Links of its words, line by line, such as 0-0 1-2, which one head learns.")
    ] = None,
    pairs: Annotated[
        Files, typer.Option(help="Files with both sides, such as .tsv, .po or .parquet; also directories and patterns.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="N,N",
            help="How often an epoch has the pairs of each file of --pairs, in their order.",
            show_default="once",
        ),
    ] = None,
    columns: Columns = None,
    from_lang: FromLang = None,
    to_lang: ToLang = None,
    swap: Swap = False,
    valid_source: Annotated[
        Files, typer.Option(help="Validation source text; without it some pairs are held out.")
    ] = None,
    valid_target: Annotated[Files, typer.Option(help="Its translation, line by line.")] = None,
    valid_pairs: Annotated[Files, typer.Option(help="Validation files with both sides.")] = None,
    general_source: Annotated[
        Files,
        typer.Option(
            help="With --from, text that the model must not unlearn: some of it is watched, some mixed in "
            "(data.general_share)."
        ),
    ] = None,
    general_target: Annotated[Files, typer.Option(help="Its translation, line by line.")] = None,
    general_pairs: Annotated[Files, typer.Option(help="Files of such text with both sides.")] = None,
    out: Annotated[str | None, typer.Option(help="Run directory; the same command again resumes.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Such as tiny, small, paper-base, table3-b-dk-16; by the corpus size if not set.")
    ] = None,
    from_model: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Start from this model's weights, with its shape and tokenizer, and go on learning from the text "
            "named here; a model directory, or a run directory (its model).",
            show_default="random weights",
        ),
    ] = None,
    settings: Annotated[
        Files,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other setting, e.g. train.batch_tokens=4096."),
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Stop after this many optimiser steps.")] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="Stop after this many minutes, preparation included.")
    ] = None,
    golden: Annotated[
        str | None,
        typer.Option(
            metavar="none|FILE",
            help="Sentences, one a line, whose translations the model directory keeps for `clearhead verify`.",
            show_default="words of the vocabulary",
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    threads: Threads = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes of this machine that share every step; for several machines see docs/scaling.md.",
            show_default="one for each GPU",
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Start over; an earlier run is moved aside. Without input files its settings are used again, the "
            "vocabulary size and number of steps that it chose included; --set changes them.",
        ),
    ] = False,
) -> None:
    """Train a model from pairs of text; the same command again resumes where it stopped."""
    flags = {
        "out": out,
        "preset": preset,
        "from_model": from_model,
        "golden": golden,
        "device": device,
        "data": {
            "source": source,
            "target": target,
            "alignments": alignments,
            "pairs": pairs,
            "weights": weights,
            "columns": columns,
            "from_lang": from_lang,
            "to_lang": to_lang,
            "swap": swap or None,
            "valid_source": valid_source,
            "valid_target": valid_target,
            "valid_pairs": valid_pairs,
            "general_source": general_source,
            "general_target": general_target,
            "general_pairs": general_pairs,
        },
        "train": {"max_steps": max_steps, "max_minutes": max_minutes},
    }
    from clearhead.training.distributed import Workers, is_one_of_several, require_workers
    from clearhead.training.launch import launch, usual_workers
    from clearhead.training.run import train_from_values
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
        result = train_from_values(values, fresh=fresh, workers=met)
    if met.is_first:
        typer.echo(f"model:  {result.run / 'model'}\nreport: {result.run / 'report.html'}", err=True)


def _values(config: Path | None, flags: dict[str, Any], settings: list[str]) -> Mapping[str, Any]:
    """Return all that the user set: in the file, by `--set`, by flags."""
    from clearhead.config import read_toml
    from clearhead.training.settings import merge, over_file, parse_override

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
