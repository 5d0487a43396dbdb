"""A Transformer learns to reverse strings of digits in seconds on a CPU, and its attention shows how.

It sees nothing but pairs such as 1414 -> 4141. To write digit t it must look at digit n - t, so the cross-attention of
a model that has understood is an anti-diagonal. Run it: python examples/reverse_digits.py [--png attention.png]
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import clearhead as ch
from clearhead.decoding import SearchOptions, decode
from clearhead.inspection.plots import HeatMap, draw

BOS, EOS, ZERO = 1, 2, 3  # ids: 0 is padding, digit d is ZERO + d
STEPS, SHADES = 1_000, " .:-=+*#%@"


def draw_pairs(count: int, generator: torch.Generator, *, held_out: bool) -> tuple[torch.Tensor, ...]:
    """Return up to `count` strings of one random length, what the decoder reads, and what it must write.

    Strings whose digits sum to a multiple of 7 are held out: training never sees them, the test sees nothing else.
    """
    length = int(torch.randint(3, 11, (), generator=generator))
    digits = torch.randint(10, (count, length), generator=generator)
    digits = digits[(digits.sum(dim=1) % 7 == 0) == held_out] + ZERO
    start, end = torch.full((len(digits), 1), BOS), torch.full((len(digits), 1), EOS)
    return torch.cat([digits, end], 1), torch.cat([start, digits.flip(1)], 1), torch.cat([digits.flip(1), end], 1)


def main() -> None:
    """Train, test on strings never seen, and draw where each digit came from."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--png", metavar="FILE", type=Path, help="also draw the attention with matplotlib")
    png = parser.parse_args().png
    if png and not (find_spec("matplotlib") and os.access(png.parent, os.W_OK)):
        parser.error("argument --png: needs matplotlib (install clearhead[plots]) and a folder that can be written to")
    generator = torch.manual_seed(1)
    config = ch.ModelConfig(vocab_size=ZERO + 10, d_model=64, d_ff=128, num_heads=1, dropout=0.0)
    model = ch.Transformer(config.model_copy(update={"num_encoder_layers": 2, "num_decoder_layers": 1}))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, STEPS + 1):
        source, shifted, target = draw_pairs(64, generator, held_out=False)
        loss = cross_entropy(model(source, shifted).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 3e-3 * min(step / 200, 1 - step / STEPS)  # climbs, then falls to zero
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step:>5}  loss {loss.item():.4f}")

    model.eval()
    results, greedy = [], SearchOptions(ch.Config().decode.with_changes({"beam_size": 1}))
    for source, _, target in (draw_pairs(300, generator, held_out=True) for _ in range(20)):
        found = decode(model, source.tolist(), greedy)
        results += [best.tokens == tuple(row) for (best,), row in zip(found, target.tolist(), strict=True)]
    print(f"{sum(results) / len(results):.1%} of {len(results)} held-out strings are reversed without a mistake")
    assert sum(results) > 0.95 * len(results)

    digits = [1, 4, 1, 4, 2, 1, 3, 5]  # sums to 21: held out
    source, shifted = torch.tensor([[*digits, EOS - ZERO]]) + ZERO, torch.tensor([[BOS - ZERO, *digits[::-1]]]) + ZERO
    weights = model.attention_weights(source, shifted).cross[0][0, 0].detach()  # (T, S)
    print("what it looks at (columns) to write each digit (rows); '@' is a weight of 1\n    ", *digits, "</s>")
    for digit, row in zip(digits[::-1], weights.tolist(), strict=False):
        print(f"   {digit} " + " ".join(SHADES[round(weight * 9)] for weight in row))
    assert weights[:8].argmax(dim=1).tolist() == [7, 6, 5, 4, 3, 2, 1, 0], "the anti-diagonal"
    if png:
        xs, ys = [*map(str, digits), "</s>"], [*map(str, digits[::-1]), "</s>"]
        png.write_bytes(draw(HeatMap("Weights", weights.tolist(), "read", "written", "weight", x_names=xs, y_names=ys)))


if __name__ == "__main__":
    main()
