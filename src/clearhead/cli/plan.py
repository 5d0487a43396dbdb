"""`clearhead plan`: what a run costs before it starts, as a table, JSON or a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.checks import refuse_other_than_page
from clearhead.cli.console import progress
from clearhead.cli.options import MACHINE, OUTPUT, Json, Threads
from clearhead.errors import ConfigError, nearest_name

if TYPE_CHECKING:
    from clearhead.pages import Html
    from clearhead.training.costs import Costs, Method, Scale
    from clearhead.training.layers import Layers

Row = tuple[str, str]


def plan(
    config: Annotated[str, typer.Argument(metavar="PRESET|CONFIG.toml", help="Preset, or settings as for `train`.")],
    gpus: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Number of devices whose costs are shown.", show_default=True)
    ] = 1,
    machine: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=MACHINE,
            show_default="this machine, on which a few parts of a step are timed",
        ),
    ] = None,
    num_pairs: Annotated[
        int | None,
        typer.Option(min=1, max=10**12, help="Pairs of the training text, which decide the number of steps."),
    ] = None,
    length: Annotated[int, typer.Option(min=1, max=10_000, help="Tokens of a sentence, on each side.")] = 25,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other setting, such as train.batch_tokens=4096."),
    ] = None,
    output: Annotated[
        str | None, typer.Option(*OUTPUT, metavar="PAGE.html", help="Write a page with tables and pictures.")
    ] = None,
    as_json: Json = False,
    threads: Threads = None,
) -> None:
    """Estimate the memory, time, communication and price of a training run before it starts.

    Examples:
      clearhead plan paper-base
      clearhead plan train.toml --num-pairs 5000000 -o plan.html
      clearhead plan paper-big --gpus 8 --machine h100.toml --json

    Text is not read: the number of steps follows from train.max_steps or --num-pairs.
    """
    from clearhead.files import open_output
    from clearhead.paper.counts import forward_flops, parameter_count, training_flops
    from clearhead.runtime.device import resolve_device
    from clearhead.training.costs import costs_of, expected_config
    from clearhead.training.machine import Machine

    if output is not None:
        refuse_other_than_page("--output", output, [config, *([] if machine is None else [str(machine)])])
    layers, described = _layers(config, settings or []), None if machine is None else Machine.load(machine)
    device = resolve_device(layers.given.get("device", "auto")) if described is None else "cuda"
    expected, steps = expected_config(layers, device, length=length, num_pairs=num_pairs)
    whole = training_flops(expected.model, batch_tokens=length, length=length, steps=1) / length
    forward = forward_flops(expected.model, length, length) / length
    with progress("counting the memory of a step" if described else "timing parts of a step"):
        costs = costs_of(
            *(expected, steps),
            parameters=parameter_count(expected.model),
            flops={"forward": forward, "backward": whole - forward},
            length=length,
            machine=described,
        )
    typer.echo(json.dumps(costs.to_dict(gpus), indent=2) if as_json else "\n".join(_lines(costs, gpus)))
    if output is not None:  # last, so that a full disk takes no figures with it
        with open_output(output) as out:
            out.write(_page(costs, gpus))


def _layers(config: str, settings: list[str]) -> Layers:
    from clearhead.config import read_toml
    from clearhead.config.nested import merge, parse_override
    from clearhead.config.presets import RECIPES
    from clearhead.training.layers import Layers

    if Path(config).suffix == ".toml" or Path(config).is_file():
        layers = Layers().with_("file", read_toml(config))
    elif config in RECIPES:
        layers = Layers().with_("file", {"preset": config})
    else:
        raise ConfigError(f"{config!r:.200} is neither a preset nor a TOML file{nearest_name(config, RECIPES)}")
    return layers.with_("--set", merge(*map(parse_override, settings)))


def _lines(costs: Costs, gpus: int) -> Iterator[str]:
    rows = list(_rows(costs, gpus))
    width = max(len(name) for name, _ in rows)
    yield from (f"{name:{width}}  {value}" for name, value in rows)
    for method, scales in costs.curve(gpus).items():
        table = [_HEADS, *map(_cells, scales)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        yield f"\nsimulated, {method}"
        yield from ("  ".join(f"{cell:>{size}}" for cell, size in zip(row, widths, strict=True)) for row in table)
    yield "\nassuming"
    yield from (f"- {text}" for text in costs.assumptions)


def _rows(costs: Costs, gpus: int) -> Iterator[Row]:
    """Yield the names and values of the figures."""
    from clearhead.training.memory import in_words

    config, train, memory = costs.config, costs.config.train, costs.memory
    forward, backward = costs.flops["forward"], costs.flops["backward"]
    yield (
        "model",
        f"{config.preset}: {costs.parameters:,} parameters, vocabulary of {config.model.vocab_size:,}",
    )
    yield "FLOPs a token", f"{forward:.3g} forward, {backward:.3g} backward, with those of a source token"
    yield (
        "step",
        f"{train.batch_tokens:,} target tokens, {round(train.batch_tokens / costs.parts):,} at once, {train.optimizer}",
    )
    yield "memory", f"{in_words(memory.peak)} at the peak of a step"
    for part, most in memory.most.items():
        yield f"  {part}", f"{in_words(memory.at_peak[part])} then, {in_words(most)} at most"
    if costs.fitting_tokens is not None:
        fitting = f"{costs.fitting_tokens:,} target tokens at once (train.micro_batch_tokens)"
        yield "largest part", fitting if costs.fitting_tokens else "none fits into the memory"
    methods: tuple[Method, ...] = ("DDP", "FSDP") if gpus > 1 else ("DDP",)
    for method in methods:
        scale = costs.on(gpus, method)
        price = "" if scale.price is None else f", price {scale.price:,.2f}"
        name = f"{gpus:,} GPUs, {method}" if gpus > 1 else "time"
        yield name, f"{scale.seconds_per_step:.3g} s a step, {costs.steps:,} steps: {scale.hours:,.3g} hours{price}"
        if gpus > 1:
            yield "  communication", f"{in_words(scale.bytes_sent)} a step from each"
            yield "  memory", f"{in_words(scale.memory)} each"


_HEADS = ("GPUs", "s/step", "speedup", "hours", "GB sent a step", "GB each", "price")


def _cells(scale: Scale) -> list[str]:
    numbers = (scale.seconds_per_step, scale.speedup, scale.hours, scale.bytes_sent / 1e9, scale.memory / 1e9)
    price = "-" if scale.price is None else f"{scale.price:,.2f}"
    return [f"{scale.gpus:,}", *(f"{number:,.3g}" for number in numbers), price]


def _page(costs: Costs, gpus: int) -> Html:
    from clearhead.pages import joined
    from clearhead.pages.charts import bar_chart, line_chart
    from clearhead.pages.parts import bullets, report_page, table

    curve, memory = costs.curve(gpus), costs.memory
    parts = {
        str(part): {"at the peak": memory.at_peak[part] / 1e6, "at most": most / 1e6}
        for part, most in memory.most.items()
    }
    speeds = {str(method): [(scale.gpus, scale.speedup) for scale in scales] for method, scales in curve.items()}
    kinds = ("row number", *("number" for _ in _HEADS[1:]))
    return report_page(
        "plan.html",
        title=f"Plan: {costs.config.preset}",
        figures=table(("row", "text"), _rows(costs, gpus)),
        charts=joined(
            [
                bar_chart("Memory of a step, MB", "part", parts),
                line_chart("Simulated speed, in multiples of one GPU", speeds, below="GPUs", is_doubling=True),
            ]
        ),
        curves=joined(
            table(kinds, map(_cells, scales), heads=_HEADS, caption=f"Simulated, {method}")
            for method, scales in curve.items()
        ),
        assumptions=bullets(costs.assumptions),
    )
