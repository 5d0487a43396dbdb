"""`clearhead corpus prepare`: clean and tokenize the text of a run before it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.bulk_work import Ray
from clearhead.cli.console import notice
from clearhead.cli.from_settings import option
from clearhead.cli.options import OUTPUT, Threads
from clearhead.cli.train import ForceData, Settings, layers_of
from clearhead.text.lines import for_terminal


def prepare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="TOML file of settings, as for `train`.")],
    *,
    out: Annotated[str | None, option("out", *OUTPUT)] = None,
    settings: Settings = None,
    threads: Threads = None,
    force_data: ForceData = False,
    ray: Ray = None,
) -> None:
    """Clean and tokenize the text of a run, as `train` does, on a machine without a GPU.

    Examples:
      clearhead corpus prepare de-en.toml -o runs/de-en
      clearhead corpus prepare de-en.toml -o runs/de-en --threads 8
      clearhead corpus prepare de-en.toml -o runs/de-en --ray auto

    `train` with the same settings and --out starts with these data; with others it prepares them again.
    """
    from clearhead.runtime.threads import num_threads
    from clearhead.training.preparation import prepare_alone
    from clearhead.training.run_directory import from_here

    layers = layers_of(config, {} if out is None else {"out": out}, settings or [])
    run = prepare_alone(layers, is_forced=force_data, processes=num_threads(), ray=ray)
    notice(for_terminal(f"prepared in {from_here(run)}; train it with the same settings"))
