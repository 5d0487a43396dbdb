"""Table 1: stated complexity and path length beside counted operations and measured path length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from clearhead.inspection.plots import LinePlot, Panel, Series
from clearhead.paper.growth import (
    KERNEL,
    LAYERS,
    Layer,
    counted_layer_flops,
    exponent,
    operators_called,
    separable_convolution,
)
from clearhead.paper.parts import Check, ModelPart, aligned, paragraph, part_text
from clearhead.paper.path_length import LENGTHS as PATH_LENGTHS
from clearhead.paper.path_length import PathLength, path_lengths

PAPER_TABLE_1 = (
    ("Self-Attention", "O(n^2 d)", "O(1)", "O(1)"),
    ("Recurrent", "O(n d^2)", "O(n)", "O(n)"),
    ("Convolutional", "O(k n d^2)", "O(1)", "O(log_k n)"),
    ("Self-Attention (restricted)", "O(r n d)", "O(1)", "O(n/r)"),
)
"""Table 1 as printed: layer type, complexity per layer, sequential operations, maximum path length."""

EQUATION_1, STEPWISE, FUSED, RNN, LSTM, CONVOLUTION, RESTRICTED = LAYERS

LENGTHS = (64, 128, 256, 512, 1024, 2048)
WIDTH = 64
WIDTHS = (64, 128, 256, 512, 1024)
LENGTH = 512
_COUNTED = (32, 64, 128)
"""Values of n and d at which the formulas are compared with PyTorch's counter, which is slow on recurrent layers."""
FITTED = 3
"""Number of largest sizes used to fit a growth exponent; at small sizes fixed costs hide the growth."""

_SEPARABLE, _ATTENTION_AND_MATRIX = "separable (k = n)", "equation 1, then one d x d matrix"


@dataclass(frozen=True)
class Sweep:
    """One quantity of one layer at increasing sizes."""

    by_length: Sequence[float]
    by_width: Sequence[float]

    @property
    def axes(self) -> tuple[Sequence[float], Sequence[float]]:
        """The values for increasing n, then those for increasing d."""
        return self.by_length, self.by_width

    @property
    def exponents(self) -> tuple[float, float]:
        """Growth exponents in n and in d, fitted to the largest sizes."""
        return (
            exponent(LENGTHS[-FITTED:], self.by_length[-FITTED:]),
            exponent(WIDTHS[-FITTED:], self.by_width[-FITTED:]),
        )


def table1() -> ModelPart:
    """Return Table 1 with counted operations, and path lengths found by gradients."""
    flops = sweeps(lambda layer, n, d: layer.flops(n, d))
    paths = path_lengths()
    checks = [*_count_checks(), *_sequential_checks(), *_path_checks(paths)]
    lines = [
        "As printed (n positions, d width, k kernel, r neighbourhood):",
        *aligned(["layer", "complexity", "sequential", "max. path"], PAPER_TABLE_1, left=4),
        *_operations_text(flops),
        *_separable_text(),
        *_path_text(paths),
    ]
    return ModelPart(
        title="Table 1: complexity, sequential operations and path length",
        text=part_text(lines, checks),
        figures={"table1": _figure(flops)},
        data={
            "lengths": list(LENGTHS),
            "at_width": WIDTH,
            "widths": list(WIDTHS),
            "at_length": LENGTH,
            "layers": {
                name: {
                    "stated_exponents": list(layer.stated),
                    "flops": _plain(flops[name]),
                }
                for name, layer in LAYERS.items()
            },
            "layers_to_connect": [
                {"layer": path.name, "lengths": list(PATH_LENGTHS), "layers": list(path.length)} for path in paths
            ],
        },
        checks=tuple(checks),
    )


def sweeps(measure: Callable[[Layer, int, int], float]) -> dict[str, Sweep]:
    """Return the sweep of each layer, of a quantity measured at n and d."""
    return {
        name: Sweep([measure(layer, n, WIDTH) for n in LENGTHS], [measure(layer, LENGTH, d) for d in WIDTHS])
        for name, layer in LAYERS.items()
    }


def _plain(sweep: Sweep) -> dict[str, list[float]]:
    return {
        "by_length": list(sweep.by_length),
        "by_width": list(sweep.by_width),
        "exponents": [round(power, 3) for power in sweep.exponents],
    }


def _operations_text(flops: Mapping[str, Sweep]) -> list[str]:
    header = ["layer", "formula", "n^ stated", "here", "d^ stated", "here"]
    rows = []
    for name, layer in LAYERS.items():
        (n_stated, d_stated), (by_length, by_width) = layer.stated, flops[name].exponents
        rows.append([name, layer.formula, str(n_stated), f"{by_length:.2f}", str(d_stated), f"{by_width:.2f}"])
    return [
        *paragraph(
            f"""Operations of the matrix products, a multiplication and an addition being two, by formulas that the
            counter of PyTorch confirms. Exponents are fitted through the {FITTED} largest of n = {_span(LENGTHS)} at
            d = {WIDTH} and of d = {_span(WIDTHS)} at n = {LENGTH}:"""
        ),
        *aligned(header, rows, left=2),
        *paragraph(
            f"""The paper's n^2 d is equation 1 alone. A whole layer also has its four projections, 8~n~d^2, which Table
            1 leaves out; they are the larger part while n~<~2~d, and at base (d = 512, n = 50) they are
            {_projection_share(50, 512):.0%} of it. "Cheaper than recurrent while n~<~d" is exact for equation 1
            against a plain recurrent layer (4~n^2~d~<~4~n~d^2). Whole layers: self-attention never needs fewer
            operations than a plain recurrent layer, and fewer than an LSTM (16~n~d^2) while n~<~2~d."""
        ),
    ]


def _separable_text() -> list[str]:
    rows = [[name, formula, *(f"{flops(n):,}" for n in LENGTHS)] for name, (formula, flops) in _separable().items()]
    return [
        *paragraph(
            f"""Separable convolutions (section 4), operations at d = {WIDTH}. The depthwise part takes the place of
            equation 1, so with k~=~n both have the terms n^2~d and n~d^2. The paper calls this equal: it is, up to
            the constant of n^2~d, as equation 1 has two such products (with the keys, and with the values):"""
        ),
        *aligned(["layer", "formula", *(f"n={n}" for n in LENGTHS)], rows, left=2),
    ]


def _separable() -> dict[str, tuple[str, Callable[[int], int]]]:
    """Return the layers of section 4's sentence about separable convolutions: formula, and operations from n."""
    d, small = WIDTH, separable_convolution(KERNEL)
    return {
        CONVOLUTION: (LAYERS[CONVOLUTION].formula, lambda n: LAYERS[CONVOLUTION].flops(n, d)),
        f"separable (k = {KERNEL})": (small.formula, lambda n: small.flops(n, d)),
        _SEPARABLE: ("2 n^2 d + 2 n d^2", lambda n: separable_convolution(n).flops(n, d)),
        _ATTENTION_AND_MATRIX: ("4 n^2 d + 2 n d^2", lambda n: LAYERS[EQUATION_1].flops(n, d) + 2 * n * d * d),
    }


def _projection_share(n: int, d: int) -> float:
    layer, alone = LAYERS[STEPWISE].flops(n, d), LAYERS[EQUATION_1].flops(n, d)
    return (layer - alone) / layer


def _path_text(paths: Sequence[PathLength]) -> list[str]:
    rows = [[path.name, path.formula, *map(str, path.length)] for path in paths]
    return [
        *paragraph(
            """Path length: layers (of the recurrent one, steps) until the last position's output depends on the first
            position's input, found by gradients. The paper's O(log_k n) needs dilated windows; contiguous ones need
            O(n/k), as its section 4 says."""
        ),
        *aligned(["layer", "formula", *(f"n={n}" for n in PATH_LENGTHS)], rows, left=2),
    ]


def _count_checks() -> list[Check]:
    sizes = [(layer, n, d) for layer in LAYERS.values() for n, d in product(_COUNTED, _COUNTED)]
    same = sum(counted_layer_flops(layer, n, d) == layer.flops(n, d) for layer, n, d in sizes)
    d = WIDTH
    crossing = next(n for n in range(1, 8 * d) if LAYERS[EQUATION_1].flops(n, d) >= LAYERS[RNN].flops(n, d))
    whole = next(n for n in range(1, 8 * d) if LAYERS[STEPWISE].flops(n, d) >= LAYERS[LSTM].flops(n, d))
    return [
        Check(
            "the formulas are what PyTorch's counter counts",
            same == len(sizes),
            f"{same} of {len(sizes)} layers and sizes, n and d = {_span(_COUNTED)}",
        ),
        Check(
            "equation 1 is cheaper than a recurrent layer while n < d",
            crossing == d,
            f"at d = {d} the counts meet at n = {crossing}",
        ),
        Check(
            "a whole self-attention layer is cheaper than an LSTM while n < 2 d",
            whole == 2 * d,
            f"at d = {d} the counts meet at n = {whole}",
        ),
        *_convolution_checks(),
    ]


def _convolution_checks() -> list[Check]:
    """Return what section 4 says of the cost of convolutions."""
    layers = [(separable_convolution(k), n, d) for n, d in product(_COUNTED, _COUNTED) for k in (KERNEL, n)]
    same = sum(counted_layer_flops(layer, n, d) == layer.flops(n, d) for layer, n, d in layers)
    convolution, recurrent = (LAYERS[name].flops(LENGTH, WIDTH) for name in (CONVOLUTION, RNN))
    separable, attention = (_separable()[name][1] for name in (_SEPARABLE, _ATTENTION_AND_MATRIX))
    shares = [separable(n) / attention(n) for n in LENGTHS]
    return [
        Check(
            "a convolution needs k times the operations of one matrix a step; nn.RNN has two, so k / 2 times its",
            2 * convolution == KERNEL * recurrent,
            f"{convolution:,} and {recurrent:,} at n = {LENGTH}, d = {WIDTH}, k = {KERNEL}",
        ),
        Check(
            "the formula of separable convolutions is what PyTorch's counter counts",
            same == len(layers),
            f"{same} of {len(layers)} kernels and sizes, k = {KERNEL} and k = n",
        ),
        Check(
            "a separable convolution with k = n grows as equation 1 and a d x d matrix do",
            all(0.5 <= share <= 1 for share in shares),
            f"{shares[0]:.2f} to {shares[-1]:.2f} of its operations at n = {_span(LENGTHS)}",
        ),
    ]


def _sequential_checks() -> list[Check]:
    checks = []
    for name in (EQUATION_1, STEPWISE, RNN, CONVOLUTION, RESTRICTED):
        short, long = (operators_called(LAYERS[name], n, 8) for n in (64, 128))
        grows = name == RNN
        checks.append(
            Check(
                f"sequential operations of {name}: {'O(n)' if grows else 'O(1)'}",
                long - short >= 64 if grows else short == long,
                f"{short} operators at n = 64, {long} at n = 128",
            )
        )
    return checks


def _path_checks(paths: Sequence[PathLength]) -> list[Check]:
    return [
        Check(
            f"path length of {path.name}",
            path.length == path.expected,
            f"{path.length[0]} and {path.length[1]} at n = {PATH_LENGTHS[0]} and {PATH_LENGTHS[1]}; by formula "
            f"{path.expected[0]} and {path.expected[1]}",
        )
        for path in paths
    ]


STATED: Mapping[str, tuple[int, int]] = {
    name: LAYERS[name].stated for name in (EQUATION_1, RNN, CONVOLUTION, RESTRICTED)
}
"""Exponents of n and d of the rows of Table 1."""


def _figure(flops: Mapping[str, Sweep]) -> LinePlot:
    """Return plots of the operations, with lines of the paper's slope through each series' last point."""
    title = "operations, by formula"
    return LinePlot(
        title="Table 1: growth by formula (points), beside the stated slopes (dashed)",
        panels=[growth_panel(axis, title, "multiplications and additions", flops, STATED) for axis in (0, 1)],
        caption="Each dashed line passes through the last point, with the paper's exponent; whole attention layers, "
        "which add four projections to equation 1, are in the text.",
    )


def growth_panel(
    axis: int, title: str, y_label: str, values: Mapping[str, Sweep], slopes: Mapping[str, tuple[int, int]]
) -> Panel:
    """Return a plot of the growth of a quantity with n (axis 0) or d (axis 1), with a line of each layer's slope."""
    sizes = WIDTHS if axis else LENGTHS
    series = []
    for name, powers in slopes.items():
        points = values[name].axes[axis]
        guide = [points[-1] * (size / sizes[-1]) ** powers[axis] for size in sizes]
        colour = tuple(LAYERS).index(name)
        series.append(Series(f"{name}: slope {powers[axis]}", sizes, points, "points", colour))
        series.append(Series("", sizes, guide, "dashed", colour))
    fixed = f"n = {LENGTH}" if axis else f"d = {WIDTH}"
    x_label = "d, width" if axis else "n, positions"
    return Panel(f"{title}: {fixed}", x_label, y_label, series, "log", "log", sizes, room_for_legend=True)


def _span(sizes: Sequence[int]) -> str:
    return f"{sizes[0]} .. {sizes[-1]}"
