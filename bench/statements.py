"""Statements of the paper that need training or a clock: attention functions, and texts longer than those in training.

    python bench/statements.py additive         # 3.2.1: additive attention beside dot products, time and memory
    python bench/statements.py scale            # 3.2.1: what the scale 1 / sqrt(d_k) does for learning
    python bench/statements.py extrapolation    # 3.5: sinusoids and learned positions on longer texts
    python bench/statements.py curves RUN RUN2 --output recipe.svg    # 5.3: rate and loss of training runs, drawn

The first three run on one thread; each prints the table that docs/paper.md shows. With several seeds, a cell has their
mean, and the lowest and the highest in brackets.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import clearhead as ch
from clearhead.decoding import SearchOptions, decode
from clearhead.inspection.plots import LinePlot, Panel, Series, draw
from clearhead.paper.growth import LAYERS, Apply
from layers import bytes_kept

Score = Callable[[Tensor, Tensor], Tensor]
"""Maps queries [..., T, K] and keys [..., S, K] to scores [..., T, S]."""


class Additive(nn.Module):
    """The scores of additive attention, v . tanh(W q + U k): a network with one hidden layer (Bahdanau et al. 2015)."""

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.of_query, self.of_key = nn.Linear(d_k, d_k, bias=False), nn.Linear(d_k, d_k, bias=False)
        self.v = nn.Parameter(torch.randn(d_k) / math.sqrt(d_k))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the score of each query for each key."""
        return torch.tanh(self.of_query(q)[..., :, None, :] + self.of_key(k)[..., None, :, :]) @ self.v


class AdditiveAttention(nn.Module):
    """Attention of a text to itself with additive scores, without projections, as equation 1 alone."""

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.score = Additive(d_k)

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sums of x."""
        return self.score(x, x).softmax(dim=-1) @ x


SCORES: Mapping[str, Callable[[int], Score]] = {
    "additive": Additive,
    "q . k": lambda d_k: lambda q, k: q @ k.transpose(-2, -1),
    "q . k / sqrt(d_k)": lambda d_k: lambda q, k: q @ k.transpose(-2, -1) / math.sqrt(d_k),
}


def print_additive(lengths: Sequence[int] = (64, 256, 1024), width: int = 64, rounds: int = 9) -> None:
    """Print time and memory of both attention functions, without projections, at a width of one head of the paper."""
    print_row("positions", "q . k, ms", "additive, ms", "times", "q . k, KiB", "additive, KiB", "times")
    print_row(*["---"] * 7)
    equation_1 = LAYERS["self-attention, equation 1 alone"]
    layers = (equation_1, replace(equation_1, build=AdditiveAttention))
    for n in lengths:
        dot, additive = seconds_in_turn([layer.build(width) for layer in layers], torch.randn(1, n, width), rounds)
        kept, more = (bytes_kept(layer, n, width) for layer in layers)
        times = (f"{1e3 * dot:.2f}", f"{1e3 * additive:.1f}", f"{additive / dot:.0f}")
        print_row(n, *times, f"{kept / 1024:,.0f}", f"{more / 1024:,.0f}", f"{more / kept:.0f}")


def seconds_in_turn(layers: Sequence[Apply], x: Tensor, rounds: int) -> list[float]:
    """Return the least seconds of processor time that each layer took; they take turns."""
    taken: list[list[float]] = [[] for _ in layers]
    with torch.no_grad():
        for _ in range(rounds):
            for layer, seconds in zip(layers, taken, strict=True):
                start = time.process_time()
                layer(x)
                seconds.append(time.process_time() - start)
    return [*map(min, taken)]


class LookUp(nn.Module):
    """A model that looks up: of some pairs, it finds the one whose key belongs to a query, and names its value."""

    PAIRS, SYMBOLS, WIDTH = 16, 64, 64

    def __init__(self, d_k: int, score: Score) -> None:
        super().__init__()
        self.keys, self.queries, self.values = (nn.Embedding(self.SYMBOLS, self.WIDTH) for _ in range(3))
        self.k_proj, self.q_proj = (nn.Linear(self.WIDTH, d_k, bias=False) for _ in range(2))
        for projection in (self.k_proj, self.q_proj):  # the components of q and k have variance 1, as in footnote 4
            nn.init.normal_(projection.weight, std=self.WIDTH**-0.5)
        self.score, self.output = score, nn.Linear(self.WIDTH, self.SYMBOLS)

    def forward(self, keys: Tensor, values: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the value of each query, [B, SYMBOLS]."""
        q, k = self.q_proj(self.queries(query)), self.k_proj(self.keys(keys))
        return self.output(self.score(q, k).softmax(dim=-1) @ self.values(values))[:, 0]

    def draw(self, count: int) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
        """Return keys, values and queries, and the values to be named."""
        keys = torch.rand(count, self.SYMBOLS).argsort(dim=1)[:, : self.PAIRS]
        values, place = torch.randint(self.SYMBOLS, keys.shape), torch.randint(self.PAIRS, (count, 1))
        return (keys, values, keys.gather(1, place)), values.gather(1, place)[:, 0]


def look_up_accuracy(d_k: int, kind: str, seed: int, steps: int) -> float:
    """Train on new pairs at every step; return the share of right answers to 1,000 others."""
    torch.manual_seed(seed)
    model = LookUp(d_k, SCORES[kind](d_k))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        given, answer = model.draw(64)
        loss = cross_entropy(model(*given), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        given, answer = model.draw(1_000)
        return float((model(*given).argmax(dim=-1) == answer).float().mean())


def print_scale(seeds: int = 3, steps: int = 300, widths: Sequence[int] = (4, 16, 64, 256)) -> None:
    print_row("d_k", *SCORES)
    print_row(*["---"] * (1 + len(SCORES)))
    for d_k in widths:
        print_row(
            d_k, *(spread([look_up_accuracy(d_k, kind, seed, steps) for seed in range(seeds)]) for kind in SCORES)
        )


BOS, EOS, ZERO = 1, 2, 3  # ids: 0 is padding, digit d is ZERO + d
TRAINED, TESTED = 10, (8, 9, 10, 11, 12, 13, 14, 16)
"""Digits of the longest training text; digits of the texts of each test."""


def copies(count: int, shortest: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return strings of digits, what the decoder reads, and what it must write: the same digits."""
    lengths = torch.randint(shortest, longest + 1, (count, 1))
    places, digits = torch.arange(longest + 1), torch.randint(ZERO, ZERO + 10, (count, longest + 1))
    text = torch.where(places < lengths, digits, torch.where(places == lengths, EOS, 0))
    shifted = torch.cat([torch.full((count, 1), BOS), text[:, :-1].where(text[:, :-1] != EOS, 0)], dim=1)
    return text, shifted, text


def copy_accuracy(positions: str, seed: int, steps: int) -> list[float]:
    """Train a model on short texts; return, for each length of the test, the share of texts without a mistake."""
    torch.manual_seed(seed)
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "dropout": 0.0}
    config = ch.ModelConfig(vocab_size=ZERO + 10, d_model=64, d_ff=128, **layers)
    model = ch.Transformer(config.model_copy(update={"positions": positions, "max_positions": 64}))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, steps + 1):
        source, shifted, target = copies(64, 1, TRAINED)
        loss = cross_entropy(model(source, shifted).flatten(0, 1), target.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 2e-3 * min(step / 100, 1 - step / (steps + 1))  # climbs, then falls to zero
        optimizer.step()
    model.eval()
    greedy, right = SearchOptions(ch.Config().decode.with_changes({"beam_size": 1})), []
    for length in TESTED:
        source, _, target = copies(100, length, length)
        found = decode(model, source.tolist(), greedy)
        right.append(mean(best.tokens == tuple(row) for (best,), row in zip(found, target.tolist(), strict=True)))
    return right


def print_extrapolation(seeds: int = 3, steps: int = 600) -> None:
    print_row("positions", *(f"{length} digits" for length in TESTED))
    print_row(*["---"] * (1 + len(TESTED)))
    for positions in ("sinusoidal", "learned"):
        found = [copy_accuracy(positions, seed, steps) for seed in range(seeds)]
        print_row(positions, *(spread(column) for column in zip(*found, strict=True)))


def draw_curves(runs: Sequence[Path], output: Path) -> None:
    """Draw the learning rate and the training loss of runs over their steps, each named by its warm-up."""
    series: dict[str, list[Series]] = {"lr": [], "loss": []}
    for colour, run in enumerate(runs):
        settings = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        trained = [row for row in rows if row["split"] == "train"]
        for key, lines in series.items():
            values = [row[key] for row in trained]
            name = f"warm-up of {settings['train']['warmup_steps']:,} steps"
            lines.append(Series(name, [row["step"] for row in trained], values, colour=colour))
    panels = [Panel("", "step", label, series[key]) for key, label in (("lr", "learning rate"), ("loss", "loss"))]
    output.write_bytes(draw(LinePlot("The recipe of the paper at a small size", panels), "svg"))


def spread(shares: Sequence[float]) -> str:
    """Return the mean of several shares, with the lowest and the highest if they differ.

    >>> spread([0.5, 1.0]), spread([1.0, 1.0])
    ('75 % (50 to 100)', '100 %')
    """
    low, high = f"{min(shares):.0%}"[:-1], f"{max(shares):.0%}"[:-1]
    return f"{100 * mean(shares):.0f} %" + ("" if low == high else f" ({low} to {high})")


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


PARTS = {"additive": print_additive, "scale": print_scale, "extrapolation": print_extrapolation}


def main() -> None:
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "curves"])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="training runs whose curves to draw")
    parser.add_argument("--output", type=Path, default=Path("recipe.svg"), metavar="FILE", help="SVG of the curves")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "curves":
        draw_curves(options.runs, options.output)
    else:
        PARTS[options.part]()


if __name__ == "__main__":
    main()
