"""Shared matplotlib canvas: one style, and figures rendered in memory as PNG or SVG with deterministic bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from clearhead.errors import ClearheadError
from clearhead.inspection.tokens import visible
from clearhead.runtime.installation import pip_install

PictureFormat = Literal["png", "svg"]

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # included in matplotlib
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "figure.titlesize": 13.0,
    "svg.fonttype": "none",  # text stays text: searchable, and in the reader's fonts
    "svg.hashsalt": "clearhead",
}
_OTHER_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans", "WenQuanYi Zen Hei", "Droid Sans Fallback"),
    *("Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Yu Gothic", "Noto Sans Devanagari", "Noto Sans Thai"),
)
"""Fallback fonts for characters that DejaVu lacks; only installed ones are used."""
_DPI = 130
SHARE_TICKS = (0.0, 0.05, 0.25, 0.5, 1.0)
"""Ticks of the colour bar of `share_colours`."""


def require_plots() -> None:
    """Raise an error unless figures can be drawn.

    Raises:
        ClearheadError: If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ClearheadError(f"figures need matplotlib, which is not installed: {pip_install('plots')}") from None


def share_colours() -> Any:
    """Return a square-root colour scale from 0 to 1: half of the colours are for values below a quarter."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, 0.0, 1.0)


def legend_of(height: float) -> dict[str, Any]:
    """Return size and place of the colour bar beside a picture of a height in inches: at most 3 inches high."""
    return {"pad": 0.02, "aspect": 20, "shrink": min(1.0, 3.0 / height), "anchor": (0.0, 1.0)}


def hatch(axes: Any) -> None:
    """Hatch what an image leaves transparent: the masked cells, whose value is NaN."""
    axes.patch.set(facecolor="white", edgecolor="#aaaaaa", hatch="////", linewidth=0)


def ink_on(image: Any, value: float) -> str:
    """Return the colour of text that is readable on a value's colour, by its perceived brightness (ITU-R BT.601)."""
    red, green, blue, _ = image.to_rgba(value)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def token_label(token: str) -> str:
    """Return a token as an axis label."""
    return literal(visible(token))


def literal(text: str) -> str:
    """Return a text with dollar signs escaped, so that matplotlib does not parse formulas."""
    return text.replace("$", r"\$")


@contextmanager
def canvas(
    size: tuple[float, float], title: str, caption: str, form: PictureFormat = "png"
) -> Iterator[tuple[Any, io.BytesIO]]:
    """Open an empty figure of a size in inches; when the block ends it is written to the buffer."""
    require_plots()
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    written = io.BytesIO()
    installed = set(font_manager.get_font_names())
    families = [_STYLE["font.family"], *(name for name in _OTHER_FONTS if name in installed)]
    with matplotlib.rc_context({**_STYLE, "font.family": families}):
        # Not pyplot: it keeps every figure it makes, and looks for a display.
        figure = Canvas(figsize=size, dpi=_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title)
        if caption:
            figure.supxlabel(caption, fontsize=8.5, color="#444444")
        yield figure, written
        with warnings.catch_warnings():
            # A character that no font here has is drawn as a box; SVG leaves it to the reader's fonts.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(written, format=form, metadata={"Software": None} if form == "png" else {"Date": None})
