"""Figures are drawn as described: every series in a colour of its own, every value where it belongs, always alike."""

from __future__ import annotations

import io
import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from clearhead.errors import ClearheadError
from clearhead.inspection import canvas, plots
from clearhead.inspection.canvas import require_plots
from clearhead.inspection.plots import HeatMap, LinePlot, Panel, Series, draw, draw_heatmap, draw_lines
from clearhead.runtime.installation import pip_install


def pixels(png: bytes) -> np.ndarray:
    """Return red, green and blue of every pixel, 0 to 255."""
    from matplotlib.image import imread

    assert png.startswith(b"\x89PNG\r\n")
    return np.round(imread(io.BytesIO(png))[..., :3] * 255).astype(int)


def count(image: np.ndarray, colour: str) -> int:
    """Return how many pixels have exactly this colour, written as #rrggbb."""
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return int((image == wanted).all(axis=-1).sum())


def lines(**changes: object) -> LinePlot:
    series = [
        Series("first", [1, 2, 4], [1, 4, 16]),
        Series("second", [1, 2, 4], [3, 3, 3], "dashed"),
        Series("third", [1, 2, 4], [9, 5, 2], "points"),
    ]
    panel = {"title": "panel", "x_label": "size, n", "y_label": "time, ms", "series": series, **changes}
    return LinePlot("a figure", [Panel(**panel)])


def test_every_series_is_drawn_in_its_own_colour():
    image = pixels(draw_lines(lines()))
    for colour in ("#0072B2", "#D55E00", "#009E73"):
        assert count(image, colour) > 30
    assert count(image, "#CC79A7") == 0


def test_a_series_may_take_the_colour_of_another():
    shared = [Series("points", [1, 2], [1, 2], "points", 3), Series("", [1, 2], [2, 1], "dotted", 3)]
    image = pixels(draw_lines(lines(series=shared)))
    assert count(image, "#CC79A7") > 30
    assert count(image, "#0072B2") == 0


def test_logarithmic_axes_make_a_power_a_straight_line():
    # The curve y = x^2 from corner to corner: in the middle of its columns it is in the middle of its rows.
    curve = [Series("", list(range(1, 101)), [x**2 for x in range(1, 101)])]

    def middle(scale):
        image = pixels(draw_lines(lines(series=curve, x_scale=scale, y_scale=scale)))
        rows, columns = (image == [0x00, 0x72, 0xB2]).all(axis=-1).nonzero()
        centre = rows[columns == (columns.min() + columns.max()) // 2].mean()
        return (rows.max() - centre) / (rows.max() - rows.min())

    assert middle("log") == pytest.approx(0.5, abs=0.03)
    assert middle("linear") == pytest.approx(0.25, abs=0.03)


def test_lines_fill_a_logarithmic_axis_unless_the_legend_needs_room():
    level = [Series(name, [1, 2, 3], [1, 1, 1], colour=0) for name in ("first", "second", "third", "fourth")]
    falling = Series("fifth", [1, 2, 3], [1, 1e-30, 1e-60])

    def share_above(**changes):
        """Return the part of the picture above the level lines."""
        image = pixels(draw_lines(lines(series=[*level, falling], y_scale="log", **changes)))
        return (image == [0x00, 0x72, 0xB2]).all(axis=-1).sum(axis=1).argmax() / len(image)

    assert share_above() < 0.2 < 0.3 < share_above(room_for_legend=True)


def test_panels_are_drawn_side_by_side_three_to_a_row():
    (panel,) = lines().panels
    shapes = [pixels(draw_lines(LinePlot("a figure", [panel] * number))).shape for number in (2, 3, 4)]
    assert shapes[0][1] < shapes[1][1] == shapes[2][1]
    assert shapes[0][0] == shapes[1][0] < shapes[2][0]


def test_heat_maps_begin_at_the_top_left():
    values = [[float(row == 0 and column == 0) for column in range(40)] for row in range(30)]
    image = pixels(draw_heatmap(HeatMap("a map", values, "column", "row", "value")))
    # The ends of the colour scale; the rest of the map has the lower one.
    dark = (image == [68, 1, 84]).all(axis=-1)
    rows, columns = dark.nonzero()
    top, left = rows.min(), columns.min()
    corner = image[top + 3, left + 3]
    assert corner[0] > 200  # yellow
    assert dark[rows.max() - 3, left + 3]


def test_diverging_colours_are_white_at_zero():
    heat = {"x_label": "x", "y_label": "y", "value_label": "value", "diverging": True}
    values = [[0.0] * 20 for _ in range(20)]
    values[0][0] = -3.0  # the scale reaches as far up as down
    image = pixels(draw_heatmap(HeatMap("a map", values, **heat)))
    middle = image[image.shape[0] // 2, image.shape[1] // 2]
    assert middle.min() > 240


def test_small_maps_show_their_values():
    def white_within_dark_cells(size):
        values = [[0.0] * size for _ in range(size)]
        values[-1][-1] = 1.0
        image = pixels(draw_heatmap(HeatMap("a map", values, "x", "y", "value")))
        image = image[:, : image.shape[1] // 2]  # without the colour bar
        rows, columns = (image == [68, 1, 84]).all(axis=-1).nonzero()
        cells = image[rows.min() : rows.max(), columns.min() : columns.max()]
        return int((cells.min(axis=-1) > 240).sum())

    assert white_within_dark_cells(3) > 30
    assert white_within_dark_cells(20) == 0


@pytest.mark.parametrize("size", [3, 20])
def test_masked_cells_are_hatched_and_have_no_number(size):
    values = [[float("nan") if column > row else 1.0 for column in range(size)] for row in range(size)]
    heat = HeatMap("a map", values, "key", "query", "weight", are_shares=True)
    svg = draw_heatmap(heat, "svg").decode()
    assert "hatched: masked" in svg
    assert "nan" not in svg
    image = pixels(draw_heatmap(heat))
    cells = (abs(image - [253, 231, 37]) <= 2).all(axis=-1)  # the colour of 1
    rows, columns = cells[:, : image.shape[1] * 3 // 4].nonzero()
    corner = image[rows.min() + 5 : rows.min() + 25, columns.max() - 45 : columns.max() - 5]
    assert corner.max() == 255
    assert corner.min() < 200
    assert "hatched" not in draw_heatmap(HeatMap("a map", [[0.5]], "key", "query", "weight"), "svg").decode()


def test_ticks_may_have_names():
    svg = draw_lines(lines(x_ticks=[1, 2, 4], x_names=["one", "two", "four"]), "svg").decode()
    assert [name for name in ("one", "two", "four") if f">{name}<" in svg] == ["one", "two", "four"]


def test_rows_and_columns_may_have_names():
    values = [[0.25, 0.75], [1.0, 0.0]]
    forms = [{}, *({side: names} for side in ("x_names", "y_names") for names in (["a", "b"], ["c", "d"]))]
    drawn = {draw_heatmap(HeatMap("a map", values, "key", "query", "weight", **form)) for form in forms}
    assert len(drawn) == 5


def test_draw_chooses_by_the_description():
    heat = HeatMap("a map", [[1.0, 2.0]], "x", "y", "value", caption="below")
    for description, of_its_kind in ((lines(), draw_lines), (heat, draw_heatmap)):
        assert draw(description) == of_its_kind(description)


def test_drawing_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    draw(lines())
    assert dict(matplotlib.rcParams) == before


def test_drawing_needs_no_pyplot_which_keeps_figures_and_looks_for_a_display(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    draw(lines())
    places = [getattr(value, "__module__", "") or "" for module in (plots, canvas) for value in vars(module).values()]
    assert [place for place in places if place.startswith("matplotlib")] == []  # it is imported when it draws


@pytest.mark.slow
def test_matplotlib_is_imported_when_it_draws_and_pyplot_never():
    code = (
        "import sys; from clearhead.inspection import plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.draw(plots.HeatMap('t', [[1.0, 2.0]], 'x', 'y', 'v'))\n"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot keeps figures and looks for a display'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_matplotlib_error_names_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for action in (require_plots, lambda: draw(lines())):
        with pytest.raises(ClearheadError) as caught:
            action()
        assert str(caught.value) == f"figures need matplotlib, which is not installed: {pip_install('plots')}"
