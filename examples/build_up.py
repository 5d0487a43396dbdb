"""Build a Transformer up from counts, one part at a time, and see which parts matter on two small tasks.

The tasks: reverse eight digits, and translate dates of the built-in corpus from English to German. Each part is added
in turn, then left out of the complete model; every model is trained for the same steps and must write held-out texts.
docs/build-up.md has the results. About five minutes on one core. Run it: python examples/build_up.py -o DIR
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from babel import Locale
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

import clearhead as ch
from clearhead.data.demo_corpus import KINDS
from clearhead.errors import ClearheadError
from clearhead.inspection.canvas import require_plots
from clearhead.inspection.pictures import HeadGrid
from clearhead.inspection.plots import LinePlot, Panel, Series, draw
from clearhead.model.initial_weights import draw_initial_weights
from clearhead.model.residual import Residual

PAD, BOS, EOS = 0, 1, 2
PAIRS, HELD_OUT, BATCH, STEPS, RATE = 6_000, 300, 32, 300, 3e-3
D_MODEL, D_FF, NUM_HEADS = 64, 256, 4
POINTS = 30
"""Points of a loss curve, each the mean of the steps since the last."""
TOLERANCE = 5.0
"""Percentage points of whole texts that a part costs at most if it does not matter."""

PARTS = ("scale", "positions", "mask", "heads", "residual", "norm", "feed-forward")
"""What is added to a Transformer of one attention head, in this order."""
STAGES = {"one head": frozenset(), **{f"+ {part}": frozenset(PARTS[: n + 1]) for n, part in enumerate(PARTS)}}
"""Parts of each model that is built up, after the counts."""
LEFT_OUT = {"nothing": frozenset(PARTS), **{part: frozenset(PARTS) - {part} for part in PARTS}}
"""Parts of each model that lacks one."""


def digits(rng: Random) -> tuple[list[str], list[str]]:
    """Return eight digits and their reverse."""
    drawn = [str(rng.randrange(10)) for _ in range(8)]
    return drawn, drawn[::-1]


def dates(rng: Random) -> tuple[list[str], list[str]]:
    """Return a date in English and in German, in words, digits and signs."""
    [kind] = [one for one in KINDS if one.name == "date"]
    day = kind.sample(rng)
    english, german = (re.findall(r"\d|[^\W\d]+|[^\w\s]", kind.render(day, Locale(code))) for code in ("en", "de"))
    return english, german


TASKS = {"digits": digits, "dates": dates}


class Data:
    """Pairs of a task as ids, all different; the first are held out."""

    def __init__(self, draw_pair: Callable[[Random], tuple[list[str], list[str]]]) -> None:
        rng = Random(0)
        drawn = [draw_pair(rng) for _ in range(PAIRS)]
        pairs = list({tuple(source): (source, target) for source, target in drawn}.values())
        self.words = ["<pad>", "<s>", "</s>", *sorted({word for pair in pairs for side in pair for word in side})]
        ids = {word: number for number, word in enumerate(self.words)}
        self.source, self.target = (
            pad_sequence([torch.tensor([*(ids[word] for word in side), EOS]) for side in sides], batch_first=True)
            for sides in zip(*pairs, strict=True)
        )  # (pairs, S), (pairs, T)

    def text(self, ids: Tensor) -> str:
        """Return the words of a side."""
        return " ".join(self.words[number] for number in ids.tolist() if number > EOS)


class Counts(nn.Module):
    """How often each word followed, given the word before it and the source's word at the same position."""

    def __init__(self, data: Data) -> None:
        super().__init__()
        source, target = data.source[HELD_OUT:], data.target[HELD_OUT:]
        size = len(data.words)
        self.counts = torch.zeros(size, size, size)
        cells = (shifted(target), aligned(source, target.size(1)), target)
        self.counts.index_put_(tuple(ids[target != PAD] for ids in cells), torch.tensor(1.0), accumulate=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logarithms of the counts, each increased by one."""
        return self.counts[target, aligned(source, target.size(1))].add(1).log()


def shifted(target: Tensor) -> Tensor:
    """Return what the decoder reads: the start token, then the target without its last token."""
    return torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)


def aligned(source: Tensor, length: int) -> Tensor:
    """Return a source cut or padded to a length."""
    return nn.functional.pad(source, (0, max(0, length - source.size(1))), value=PAD)[:, :length]


class SeesTheFuture(ch.MultiHeadAttention):
    """Self-attention of a decoder without its mask."""

    def attend(self, *args: Any, is_causal: bool = False, **kwargs: Any) -> Tensor:
        """Attend to all positions."""
        return super().attend(*args, **kwargs)


class NotAdded(Residual):
    """A sub-layer whose input is not added to its output."""

    def add_and_norm(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return LayerNorm(Sublayer(x))."""
        return self.norm(sublayer(x))


class LeftOut(Residual):
    """No sub-layer at all."""

    def add_and_norm(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x."""
        return x


def build(parts: Collection[str], vocab_size: int, num_layers: int = 1) -> ch.Transformer:
    """Return a Transformer with these parts alone, its weights drawn."""
    config = ch.ModelConfig(
        vocab_size=vocab_size,
        d_model=D_MODEL,
        d_ff=D_FF,
        num_heads=NUM_HEADS if "heads" in parts else 1,
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        dropout=0.0,
        positions="sinusoidal" if "positions" in parts else "none",
    )
    model = ch.Transformer(config)
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        for name, around in [one for one in layer.named_children() if isinstance(one[1], Residual)]:
            kind = Residual if "residual" in parts else NotAdded
            if name == "feed_forward_residual" and "feed-forward" not in parts:
                kind = LeftOut
            setattr(layer, name, kind(around.norm if "norm" in parts else nn.Identity(), dropout=0.0))
    if "mask" not in parts:
        for layer in model.decoder.layers:
            layer.self_attn = SeesTheFuture(d_model=D_MODEL, num_heads=config.num_heads)
    draw_initial_weights(model, config)
    for module in model.modules():  # after drawing, which would make queries smaller to compensate
        if isinstance(module, ch.MultiHeadAttention):
            module.scale = "scale" in parts
    return model


def train(model: nn.Module, data: Data, steps: int) -> list[float]:
    """Train a model; return its loss curve."""
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step in range(1, steps + 1):
        rows = torch.randint(HELD_OUT, len(data.source), (BATCH,))
        loss = loss_of(model, data.source[rows], data.target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = RATE * min(5 * step / steps, 1 - step / steps)
        optimizer.step()
        losses.append(loss.item())
    return [part.mean().item() for part in torch.tensor(losses).chunk(POINTS)]


def loss_of(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy of a target token, given the right tokens before it, in nats."""
    logits = model(source, shifted(target))
    return cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def write(model: nn.Module, source: Tensor, length: int) -> Tensor:
    """Return the most probable token after those already written, one at a time."""
    written = source.new_full((len(source), 1), BOS)
    for _ in range(length):
        written = torch.cat([written, model(source, written)[:, -1:].argmax(dim=-1)], dim=1)
    return written[:, 1:]


@dataclass(frozen=True)
class Result:
    """How one model did on held-out texts."""

    loss: float
    """Cross-entropy of a token, given the right tokens before it, in nats."""
    right: float
    """Percentage of tokens that are right, given the right tokens before them."""
    exact: float
    """Percentage of texts that the model writes without a mistake."""
    curve: Sequence[float]
    """Loss in training."""
    attention: np.ndarray
    """Cross-attention of the first held-out text, the mean of all heads of the last layer: [T, S]."""


def measure(model: nn.Module, data: Data, steps: int) -> Result:
    """Train a model and test it; counts need no training."""
    curve = train(model, data, steps) if isinstance(model, ch.Transformer) else []
    source, target = data.source[:HELD_OUT], data.target[:HELD_OUT]
    is_word, attention = target != PAD, np.zeros((0, 0))
    with torch.no_grad():
        loss = loss_of(model, source, target).item()
        is_right = model(source, shifted(target)).argmax(dim=-1) == target
        is_written = write(model, source, target.size(1)) == target
        if isinstance(model, ch.Transformer):
            rows, columns = int(is_word[0].sum()), int((source[0] != PAD).sum())
            weights = model.attention_weights(source[:1, :columns], shifted(target)[:1, :rows]).cross[-1]
            attention = weights[0].mean(dim=0).numpy()
    exact = (is_written | ~is_word).all(dim=1)
    return Result(
        loss, 100 * is_right[is_word].float().mean().item(), 100 * exact.float().mean().item(), curve, attention
    )


Results = dict[tuple[str, frozenset[str] | None], list[Result]]
"""Results of all seeds, by task and parts; without parts those of the counts."""


def table(results: Results, first: str, rows: dict[str, frozenset[str] | None]) -> str:
    """Return a table of models in Markdown: means of the seeds, and of whole texts the lowest and the highest share."""
    tasks = list(dict.fromkeys(task for task, _ in results))
    head = [first, *(cell for task in tasks for cell in (f"{task}: loss", "next token", "whole text"))]
    lines = [head, ["---"] * len(head)]
    for name, parts in rows.items():
        cells = [name]
        for task in tasks:
            runs = results[task, parts]
            low, high = min(run.exact for run in runs), max(run.exact for run in runs)
            cells.append(f"{np.mean([run.loss for run in runs]):.3f}")
            cells.append(f"{np.mean([run.right for run in runs]):.0f}%")
            cells.append(f"{low:.0f}%" if f"{low:.0f}" == f"{high:.0f}" else f"{low:.0f}% to {high:.0f}%")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def conclusion(results: Results, task: str) -> str:
    """Return which parts a task does not need: without one of them, no seed writes much fewer whole texts."""
    lowest = {name: min(run.exact for run in results[task, parts]) for name, parts in LEFT_OUT.items()}
    if lowest["nothing"] < 50:
        return f"{task}: not learned in these steps, so nothing is known about single parts"
    found = [part for part in PARTS if lowest[part] >= lowest["nothing"] - TOLERANCE]
    return f"{task}: did not matter, if left out alone: {', '.join(found) or 'none'}"


def loss_picture(results: Results, steps: int) -> LinePlot:
    """Return the loss of each stage in training, and that of the counts."""
    panels = []
    for name, parts in STAGES.items():
        lines = []
        for colour, task in enumerate(dict.fromkeys(task for task, _ in results)):
            for number, run in enumerate(results[task, parts]):
                x = [steps * (point + 1) / len(run.curve) for point in range(len(run.curve))]
                lines.append(Series("" if number else task, x, run.curve, colour=colour))
            counts = results[task, None][0].loss
            lines.append(Series(f"counts, {task}", [0, steps], [counts, counts], style="dotted", colour=colour))
        panels.append(Panel(name, "step", "loss", lines, y_scale="log"))
    return LinePlot("Loss in training after each stage, a line for each seed", panels)


def attention_picture(results: Results, texts: dict[str, str]) -> HeadGrid:
    """Return the cross-attention of the first held-out text of each task after each stage, a row for each seed."""
    shown = []
    for task, text in texts.items():
        runs = [results[task, parts] for parts in STAGES.values()]
        maps = np.array([[run.attention for run in of_stage] for of_stage in runs])  # (stages, seeds, T, S)
        shown.append((text, maps.swapaxes(0, 1)))
    seeds = [f"seed {number + 1}" for number in range(len(runs[0]))]
    return HeadGrid(
        "Cross-attention after each stage",
        shown,
        "Rows of a map: what is written, from top to bottom; columns: what is read",
        row_names=seeds,
        column_names=list(STAGES),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train every model, print the tables, and draw the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-o", metavar="DIR", type=Path, help="directory for the pictures; none are drawn without it")
    parser.add_argument("--tasks", choices=TASKS, nargs="+", default=list(TASKS), help="default: all")
    parser.add_argument("--seeds", type=int, default=3, help="models of each kind; default: 3")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps of training; default: {STEPS}")
    parser.add_argument("--layers", type=int, default=1, help="layers of encoder and decoder; default: 1")
    chosen = parser.parse_args(arguments)
    if min(chosen.seeds, chosen.steps, chosen.layers) < 1:
        parser.error("--seeds, --steps and --layers must be at least 1")
    if chosen.o:
        try:
            require_plots()
            chosen.o.mkdir(parents=True, exist_ok=True)
        except (ClearheadError, OSError) as error:
            parser.error(str(error))
    results: Results = {}
    texts = {}
    for task in chosen.tasks:
        data = Data(TASKS[task])
        texts[task] = " → ".join(data.text(side[0]) for side in (data.source, data.target))
        for name, parts in {"counts": None, **STAGES, **LEFT_OUT}.items():
            if (task, parts) in results:  # all parts, and all but the last
                continue
            start, runs = time.monotonic(), []
            for seed in range(1, chosen.seeds + 1):
                torch.manual_seed(seed)
                model = Counts(data) if parts is None else build(parts, len(data.words), chosen.layers)
                runs.append(measure(model, data, chosen.steps))
            results[task, parts] = runs
            which = name if name in STAGES or parts is None else f"without {name}"
            print(f"{task}: {which}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(table(results, "built up", {"counts": None, **STAGES}), end="\n\n")
    print(table(results, "left out", LEFT_OUT), end="\n\n")
    for task in chosen.tasks:
        print(conclusion(results, task))
    if chosen.o:
        (chosen.o / "build-up-loss.svg").write_bytes(draw(loss_picture(results, chosen.steps), "svg"))
        (chosen.o / "build-up-attention.svg").write_bytes(draw(attention_picture(results, texts), "svg"))


if __name__ == "__main__":
    torch.set_num_threads(1)  # these products are too small for more
    main()
