"""Positions (paper section 3.5): the sinusoids, their shift property, and why order is invisible without them.

Run it: python examples/positions.py
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import clearhead as ch
from clearhead.model.positions import sinusoidal_positions

D_MODEL, LENGTH = 16, 48
SHADES = " .:-=+*#%@"


def shift_matrix(k: int) -> Tensor:
    """Return M_k with PE(pos + k) = M_k PE(pos): one rotation for each pair of sine and cosine, whatever pos is."""
    blocks = []
    for i in range(D_MODEL // 2):
        angle = k / 10_000 ** (2 * i / D_MODEL)
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]))
    return torch.block_diag(*blocks)


def main() -> None:
    """Draw the table, then check what section 3.5 says of it."""
    table = sinusoidal_positions(LENGTH, D_MODEL)  # (T, D)
    print(f"PE, {LENGTH} positions from left to right, {D_MODEL} dimensions from top to bottom ('@' is 1, ' ' is -1)")
    for dimension, row in enumerate(table.T.tolist()):
        wavelength = 2 * math.pi * 10_000 ** (2 * (dimension // 2) / D_MODEL)
        shades = "".join(SHADES[round((value + 1) / 2 * (len(SHADES) - 1))] for value in row)
        print(f"  {dimension:>2} {'cos' if dimension % 2 else 'sin'} |{shades}| wavelength {wavelength:10,.1f}")
    pos, i = 7, 3  # the formula itself, at one place
    assert math.isclose(table[pos, 2 * i].item(), math.sin(pos / 10_000 ** (2 * i / D_MODEL)), rel_tol=1e-6)
    assert math.isclose(table[pos, 2 * i + 1].item(), math.cos(pos / 10_000 ** (2 * i / D_MODEL)), rel_tol=1e-6)

    # "for any fixed offset k, PE(pos+k) can be represented as a linear function of PE(pos)"
    for k in (1, 5, 20):
        error = (table[: LENGTH - k] @ shift_matrix(k).T - table[k:]).abs().max().item()
        print(f"shift by {k:>2}: one matrix moves all {LENGTH - k} positions, largest error {error:.1e}")
        assert error < 1e-5
    # So the product of two encodings depends on their distance alone.
    products = table @ table.T  # (T, T)
    for distance in (0, 1, 4, 16):
        diagonal = products.diagonal(distance)
        print(f"PE(pos) . PE(pos + {distance:>2}) = {diagonal.mean():5.2f} at every position")
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=0)

    # Attention itself does not know the order: permute the words, and the outputs are permuted, nothing else.
    torch.manual_seed(0)
    layer = ch.MultiHeadAttention(d_model=D_MODEL, num_heads=4)
    words = torch.randn(1, 3, D_MODEL)  # dog bites man
    order = [2, 1, 0]  # man bites dog
    without = layer(words, words)[:, order] - layer(words[:, order], words[:, order])
    placed, swapped = words + table[:3], words[:, order] + table[:3]
    with_positions = layer(placed, placed)[:, order] - layer(swapped, swapped)
    print("'dog bites man' against 'man bites dog', the outputs of the same words differ by")
    print(f"  {without.abs().max():.1e} without positions, {with_positions.abs().max():.2f} with them")
    assert without.abs().max() < 1e-6
    assert with_positions.abs().max() > 0.1


if __name__ == "__main__":
    main()
