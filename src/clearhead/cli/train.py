"""`clearhead train`: train or fine-tune a model on parallel text, or resume a run, in one or several processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.console import notice
from clearhead.cli.from_settings import option
from clearhead.cli.options import OUTPUT, OptionGroup, PairFormat, Threads, with_option_groups
from clearhead.cli.serve import require_packages
from clearhead.errors import ConfigError
from clearhead.text.lines import for_terminal

if TYPE_CHECKING:
    from clearhead.training.layers import Layers


class RunOptions(PairFormat):
    """Options that are settings of a run."""

    source = option("data.source")
    target = option("data.target")
    alignments = option("data.alignments")
    pairs = option("data.pairs")
    weights = option("data.weights", metavar="N,N")
    valid_source = option("data.valid_source", show_default="pairs held out of the training text")
    valid_target = option("data.valid_target")
    valid_pairs = option("data.valid_pairs")
    general_source = option("data.general_source")
    general_target = option("data.general_target")
    general_pairs = option("data.general_pairs")
    corrections = option("data.corrections")
    out = option("out", *OUTPUT)
    preset = option("preset")
    from_model = option("from_model", "--from", metavar="MODEL", show_default="random weights")
    max_steps = option("train.max_steps")
    max_minutes = option("train.max_minutes")
    max_memory = option("train.max_memory", metavar="SIZE", show_default="no limit")
    golden = option("golden", metavar="none|FILE", show_default="sentences made of words of the vocabulary")
    device = option("device")
    plain = option("train.plain")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that were given."""
        sections = {section: self.settings_of(section) for section in ("data", "train")}
        return _given({**self.settings_of(""), **sections})


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other setting, such as train.batch_tokens=4096."),
]
ForceData = Annotated[
    bool,
    typer.Option(
        "--force-data",
        help="Train also if more than 10 % of the training pairs look wrong (docs/data-doctor.md), or files name "
        "different target languages.",
    ),
]


class StartOptions(OptionGroup):
    """How a run is started."""

    threads: Threads = None
    workers: int | None = typer.Option(
        None,
        min=1,
        help="Number of processes on this machine that share every step; for several machines see docs/scaling.md.",
        show_default="one per GPU",
    )
    fresh: bool = typer.Option(
        False,
        "--fresh",
        help="Start over, and move an existing run to another directory. Without input files, the settings of "
        "that run are used again, including the vocabulary size and number of steps that it chose; --set "
        "changes them.",
    )
    force_data: ForceData = False
    watch: int | None = typer.Option(
        None,
        metavar="PORT",
        min=0,
        max=65_535,
        help="Show the run's curves while it trains, in a page for this machine's browsers; 0 chooses a free port.",
        show_default="no page",
    )


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
    options: RunOptions,
    settings: Settings = None,
    start: StartOptions,
) -> None:
    """Train a model on parallel text. Running the same command again resumes an interrupted run.

    Examples:
      clearhead train --source train.de --target train.en -o runs/de-en
      clearhead train --pairs corpus.tsv -o runs/de-en --max-minutes 30
      clearhead train --from models/de-en --pairs memory.tmx -o runs/mine
    """
    from clearhead.runtime.threads import num_threads
    from clearhead.training.distributed import Workers, is_one_of_several, require_workers
    from clearhead.training.launch import launch, usual_workers
    from clearhead.training.resume import with_saved
    from clearhead.training.run import train_from_values
    from clearhead.training.run_directory import from_here

    with Workers.met() as met:
        layers = layers_of(config, options.settings, settings or [])
        if is_one_of_several():
            require_workers(start.workers)
        elif (
            count := start.workers or usual_workers(with_saved(layers, fresh=start.fresh)[0].given.get("device"))
        ) > 1:
            launch(context.obj, count)
            return
        with _watched(start.watch if met.is_first else None, layers):
            result = train_from_values(
                layers, fresh=start.fresh, workers=met, force_data=start.force_data, processes=num_threads()
            )
    if met.is_first:
        run = from_here(result.run)
        typer.echo(for_terminal(f"model:  {run / 'model'}\nreport: {run / 'report.html'}"), err=True)
        if result.outcome is not None:
            typer.echo(for_terminal(result.outcome), err=True)


@contextmanager
def _watched(port: int | None, layers: Layers) -> Iterator[None]:
    """Serve a page of the run's progress, if there is a port."""
    if port is None:
        yield
        return
    run = Path(layers.given.get("out", ""))
    require_packages("--watch")

    from clearhead.serving.watch import watched
    from clearhead.training.report import progress_page

    metrics = run / "metrics.jsonl"

    def version() -> object:
        with suppress(OSError):  # there is none yet
            return metrics.stat().st_mtime_ns, metrics.stat().st_size
        return None

    with watched(port, f"clearhead: {run.name}", partial(progress_page, run), version) as address:
        notice(f"the run's curves: {address}")
        yield


def layers_of(config: Path | None, flags: dict[str, Any], settings: list[str]) -> Layers:
    """Return the settings of the user: the file, `--set` and flags."""
    from clearhead.config import read_toml
    from clearhead.config.nested import merge, parse_override
    from clearhead.training.layers import Layers

    if config is not None and config.is_dir():
        if "out" in flags:
            raise ConfigError(
                f"{config} is a directory, so it is the run to go on with; leave out --out {flags['out']}"
            )
        if not (config / "config.toml").is_file():
            raise ConfigError(f"{config} is not a run: it holds no config.toml; name a new run with --out")
        flags, config = {**flags, "out": str(config)}, None
    layers = Layers() if config is None else Layers().with_("file", read_toml(config))
    return layers.with_("--set", merge(*map(parse_override, settings))).with_("option", flags)


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    values = {name: _given(value) if isinstance(value, dict) else value for name, value in flags.items()}
    return {name: value for name, value in values.items() if value not in (None, [], {})}
