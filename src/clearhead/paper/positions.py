"""The part "positions": heat map, wavelengths, shifts as linear maps, other layouts (paper section 3.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.config.choices import SinusoidLayout
from clearhead.inspection.plots import HeatMap, LinePlot, Panel, Series
from clearhead.model.positions import sinusoidal_positions
from clearhead.paper.parts import Check, ModelPart, aligned, magnitude, paragraph, part_text
from clearhead.paper.plain import position_encoding

_D_MODEL = 512
_LENGTH = 1_000
_SHIFTS = (1, 2, 10, 100, 500, -3)
_PICTURE = (100, 128)
_TOLERANCE = 5e-7
"""Tolerance for a float32 table: values up to 1 are rounded to 6e-8, and M_k adds two of them."""


@dataclass(frozen=True)
class _Layout:
    """A column layout of sines and cosines in well-known code."""

    name: SinusoidLayout
    where: str
    order: str
    longest: float
    """Longest wavelength divided by 2 pi."""


_LAYOUTS: tuple[_Layout, ...] = (
    _Layout("sinusoidal", "the paper, as printed", "sine, cosine, sine, cosine", 10_000 ** ((_D_MODEL - 2) / _D_MODEL)),
    _Layout("sinusoidal_halves", "Marian", "all sines, all cosines", 10_000 ** ((_D_MODEL - 2) / _D_MODEL)),
    _Layout("sinusoidal_t2t", "tensor2tensor, fairseq", "all sines, all cosines", 10_000.0),
)


def shift_matrix(shift: int, d_model: int) -> Float[Tensor, "D D"]:
    """Return M_k with PE(pos + k) = M_k PE(pos) for every pos: a rotation of each pair of sine and cosine.

    sin(w (pos + k)) = cos(w k) sin(w pos) + sin(w k) cos(w pos), and similarly for the cosine.

    Args:
        shift: Shift k in positions; may be negative.
        d_model: Width of the encodings.
    """
    rotations = []
    for pair in range(d_model // 2):
        angle = shift / 10_000 ** (2 * pair / d_model)
        cosine, sine = math.cos(angle), math.sin(angle)
        rotations.append(torch.tensor([[cosine, sine], [-sine, cosine]], dtype=torch.float64))
    return torch.block_diag(*rotations)


def interleaved_order(d_model: int) -> list[int]:
    """Return, for each column of the halves layout, its column in the paper's: sines are even, cosines odd.

    >>> interleaved_order(6)
    [0, 2, 4, 1, 3, 5]
    """
    return [*range(0, d_model, 2), *range(1, d_model, 2)]


def positions() -> ModelPart:
    """Return the figure of the encodings, their wavelengths, the shift property and the layouts of other code."""
    table = sinusoidal_positions(_LENGTH, _D_MODEL).double()
    shifts = {shift: _shift_error(table, shift) for shift in _SHIFTS}
    checks = [
        _formula_check(table),
        *_wavelength_checks(),
        *(
            Check(
                f"PE(pos + k) = M_k PE(pos) for k = {shift}",
                error < _TOLERANCE,
                f"largest difference over {_LENGTH - abs(shift)} positions {magnitude(error)}",
            )
            for shift, error in shifts.items()
        ),
        *_layout_checks(table),
    ]
    shortest, longest = 1.0, _LAYOUTS[0].longest
    lines = [
        "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same)",
        "clearhead.model.positions:sinusoidal_positions",
        *paragraph(
            f"""Wavelengths at d_model = {_D_MODEL}: from {shortest:g} * 2 pi = {2 * math.pi:.4f} positions to
            10000^({_D_MODEL - 2}/{_D_MODEL}) * 2 pi = {longest * 2 * math.pi:,.1f}. The paper says "to 10000 * 2 pi"
            (= {10_000 * 2 * math.pi:,.1f}): that would be 2i = d_model, one pair further than there is."""
        ),
        *paragraph(
            f"""A shift by k is one matrix M_k for all positions, with a rotation by k / 10000^(2i/d_model) for each
            pair; so a linear layer can look k positions back. Largest difference between PE(pos + k) and M_k PE(pos),
            over all pos below {_LENGTH} (the table is float32):"""
        ),
        *aligned(["k", "difference"], [[str(shift), f"{error:.1e}"] for shift, error in shifts.items()], left=0),
        *paragraph("How it is laid out elsewhere, and what that changes:"),
        *_layout_table(),
        *paragraph(
            """Halves hold the same columns in another order: every dot product between positions is the same, and a
            model trained with one layout runs with the other once the rows and columns of its weights are permuted
            alike. tensor2tensor's exponents run to 1, over d_model/2 - 1 instead of d_model/2: other wavelengths, so
            other dot products, and no reordering makes them the paper's."""
        ),
    ]
    return ModelPart(
        title="Section 3.5: positional encoding",
        text=part_text(lines, checks),
        figures={"positions": _picture(), "positions-distance": _distances()},
        data={
            "d_model": _D_MODEL,
            "shortest_wavelength": 2 * math.pi,
            "longest_wavelength": longest * 2 * math.pi,
            "shift_errors": {str(shift): error for shift, error in shifts.items()},
            "layouts": [
                {"name": layout.name, "used_by": layout.where, "longest_wavelength": layout.longest * 2 * math.pi}
                for layout in _LAYOUTS
            ],
        },
        checks=tuple(checks),
    )


def _layout_table() -> list[str]:
    """Return the layouts of other code with their longest wave and two products, as a table."""
    return aligned(
        ["layout", "used by", "columns", "longest wave / 2 pi", "PE(0).PE(1)", "PE(0).PE(10)"],
        [
            [
                layout.name,
                layout.where,
                layout.order,
                f"{layout.longest:,.1f}",
                *(f"{_products(layout, distance + 1)[distance]:.4f}" for distance in (1, 10)),
            ]
            for layout in _LAYOUTS
        ],
        left=3,
    )


def _formula_check(table: Float[Tensor, "T D"]) -> Check:
    """Compare the table with the printed formula, entry by entry in plain Python."""
    worst = 0.0
    for position in (0, 1, 2, 17, 513, _LENGTH - 1):
        for column, value in enumerate(table[position].tolist()):
            worst = max(worst, abs(value - position_encoding(position, column, _D_MODEL)))
    return Check("the table is the printed formula", worst < _TOLERANCE, f"largest difference {magnitude(worst)}")


def _wavelength_checks() -> list[Check]:
    """Check each layout's longest wavelength against the angle of its slowest wave at the last position."""
    checks = []
    for layout in _LAYOUTS:
        last = sinusoidal_positions(_LENGTH, _D_MODEL, layout.name)[-1].double()
        # The last sine column is the last but one if interleaved, and in the middle if in halves.
        column = _D_MODEL - 2 if layout.name == "sinusoidal" else _D_MODEL // 2 - 1
        turned = math.asin(float(last[column]))  # less than a quarter turn after a thousand positions
        longest = (_LENGTH - 1) / turned
        checks.append(
            Check(
                f"longest wave of {layout.name} is {layout.longest:,.1f} * 2 pi",
                abs(longest / layout.longest - 1.0) < 1e-5,
                f"from the angle at position {_LENGTH - 1}: {longest:,.1f}",
            )
        )
    return checks


def _shift_error(table: Float[Tensor, "T D"], shift: int) -> float:
    matrix = shift_matrix(shift, _D_MODEL)
    start = table[max(0, -shift) : _LENGTH - max(0, shift)]
    shifted = table[max(0, shift) : _LENGTH - max(0, -shift)]
    return float((start @ matrix.T - shifted).abs().max())


def _layout_checks(table: Float[Tensor, "T D"]) -> list[Check]:
    halves = sinusoidal_positions(_LENGTH, _D_MODEL, "sinusoidal_halves").double()
    t2t = sinusoidal_positions(_LENGTH, _D_MODEL, "sinusoidal_t2t").double()
    reordered = float((table[:, interleaved_order(_D_MODEL)] - halves).abs().max())
    products = float((table @ table.T - halves @ halves.T).abs().max())
    others = float((table @ table.T - t2t @ t2t.T).abs().max())
    return [
        Check("halves are the paper's columns in another order", reordered == 0.0, f"largest difference {reordered:g}"),
        Check(
            "halves leave every dot product of two positions as it is",
            products < 1e-10,
            f"largest difference {magnitude(products)} of at most {_D_MODEL // 2}",
        ),
        Check(
            "tensor2tensor's wavelengths change the dot products",
            others > 0.1,
            f"largest difference {others:.2f} of at most {_D_MODEL // 2}",
        ),
    ]


def _picture() -> HeatMap:
    length, d_model = _PICTURE
    return HeatMap(
        title="Positional encoding (section 3.5)",
        values=sinusoidal_positions(length, d_model).tolist(),
        x_label=f"dimension (d_model = {d_model}; even: sine, odd: cosine)",
        y_label="position",
        value_label="PE(position, dimension)",
        diverging=True,
    )


def _distances() -> LinePlot:
    """Return the dot products of the paper's layout, and how much those of tensor2tensor differ."""
    distances = list(range(101))
    paper, t2t = (_products(_LAYOUTS[place], len(distances)) for place in (0, 2))
    difference = [other - ours for other, ours in zip(t2t, paper, strict=True)]
    return LinePlot(
        title=f"Dot product of two positional encodings, d_model = {_D_MODEL}; the same from every position on",
        panels=[
            Panel(
                title="paper (interleaved) and Marian (halves)",
                x_label="distance, positions",
                y_label="PE(pos) · PE(pos + distance)",
                series=[Series("", distances, paper)],
            ),
            Panel(
                title="tensor2tensor and fairseq, minus the paper",
                x_label="distance, positions",
                y_label="difference of the dot products",
                series=[Series("", distances, difference, colour=1)],
            ),
        ],
    )


def _products(layout: _Layout, length: int) -> list[float]:
    table = sinusoidal_positions(length, _D_MODEL, layout.name).double()
    products: list[float] = (table @ table[0]).tolist()
    return products
