"""Positions (section 3.5): the sinusoids, their shift property, and why order is invisible without them.

Run it: python examples/positions.py
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import clearhead as ch
from clearhead.inspection.plots import HeatMap
from clearhead.model.positions import sinusoidal_positions

D_MODEL, LENGTH = 16, 48


def shift_matrix(k: int) -> Tensor:
    """Return M_k with PE(pos + k) = M_k PE(pos): one rotation for each pair of sine and cosine, whatever pos is."""
    angles = [k / 10_000 ** (2 * i / D_MODEL) for i in range(D_MODEL // 2)]
    turns = [[[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]] for angle in angles]
    return torch.block_diag(*map(torch.tensor, turns))


def main() -> HeatMap:
    """Check what section 3.5 says of the table, and draw it."""
    table = sinusoidal_positions(LENGTH, D_MODEL)  # (T, D)
    for i in range(D_MODEL // 2):
        rate = 1 / 10_000 ** (2 * i / D_MODEL)
        first = " ".join(f"{math.sin(pos * rate):6.3f} {math.cos(pos * rate):6.3f}" for pos in range(4))
        print(f"numbers {2 * i:>2}, {2 * i + 1:>2}: wavelength {2 * math.pi / rate:9,.1f}, positions 0 to 3: {first}")
        torch.testing.assert_close(table[:4, 2 * i], torch.arange(4.0).mul(rate).sin())
        torch.testing.assert_close(table[:4, 2 * i + 1], torch.arange(4.0).mul(rate).cos())

    for k in (1, 5, 20):  # "for any fixed offset k, PE(pos+k) can be represented as a linear function of PE(pos)"
        error = (table[: LENGTH - k] @ shift_matrix(k).T - table[k:]).abs().max().item()
        print(f"shift by {k:>2}: one matrix moves all {LENGTH - k} positions, largest error below 1e-5")
        assert error < 1e-5
    for distance in (0, 1, 3, 6, 20):  # so the product of two encodings depends on their distance alone, in waves
        diagonal = (table @ table.T).diagonal(distance)
        print(f"PE(pos) . PE(pos + {distance:>2}) = {diagonal.mean():5.2f} at every position")
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=0)

    torch.manual_seed(0)  # attention itself does not know the order: permuted words have permuted outputs
    layer = ch.MultiHeadAttention(d_model=D_MODEL, num_heads=4)
    words, order = torch.randn(1, 3, D_MODEL), [2, 1, 0]  # dog bites man -> man bites dog
    for name, added in (("without positions", torch.zeros(3, D_MODEL)), ("with positions", table[:3])):
        x, swapped = words + added, words[:, order] + added
        difference = (layer(x, x)[:, order] - layer(swapped, swapped)).abs().max().item()
        print(f"'dog bites man', 'man bites dog': {name} the outputs of a word differ by {difference:.2f}")
        assert (difference > 0.1) == (name == "with positions")
    return HeatMap("Positional encodings", table.T.tolist(), "position", "dimension", "value", diverging=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
