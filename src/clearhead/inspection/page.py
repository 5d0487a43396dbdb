"""Self-contained HTML pages of an explanation and of a comparison of two, their frame in a notebook, and their data.

Arrays are nested lists in JSON, or compact base-64 encodings in a page.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.errors import DataError
from clearhead.inspection.head_statistics import STATISTICS
from clearhead.pages import Html, constants_module, content_policy, data_block, fill, script, style
from clearhead.text.lines import LINE_ENDS, WHITE_SPACE, shortened
from clearhead.text.word_links import UNSPACED

if TYPE_CHECKING:
    from jaxtyping import Float


TEXT_RULES = "translate/text_rules.js"
"""A module that is no file: what Python knows of words and lines, for `pages/translate/words.js`."""

MAX_PAGE_WEIGHTS = 5_000_000
"""Most attention weights in a page, at 8/3 bytes each: a size that browsers still open readily."""


def render_page(explanation: Mapping[str, Any]) -> str:
    """Return the HTML page of an explanation.

    Args:
        explanation: The result of `Explanation.to_dict(packed=True)`.
    """
    source, translation = explanation["source"], explanation["translation"]
    return _filled(
        "explain",
        ["explain.css"],
        {**explanation, "statistics_meaning": STATISTICS},
        title=f"{_shortened(source)} · attention",
        view=explain_view(f"{source} → {translation}. This page needs JavaScript, which this browser does not run."),
    )


def explain_view(before: str) -> Html:
    """Return the markup of the explanation view; a script fills it.

    Args:
        before: Text shown until the script runs.
    """
    return fill("explain_view.html", before=before)


def view_scripts(instead: Mapping[str, str] = MappingProxyType({})) -> dict[str, Html]:
    """Return the scripts of a page that translates and shows explanations, by name.

    Args:
        instead: Modules that take the place of others.
    """
    mains = {"theme": "translate/theme.js", "translate": "translate/main.js", "inside": "translate/inside.js"}
    made = {TEXT_RULES: text_rules_module()}
    return {name: script(main, instead, made) for name, main in {**mains, "explain": "explain/main.js"}.items()}


def text_rules_module() -> str:
    """Return the text of `translate/text_rules.js`."""
    return constants_module("TEXT_RULES", {"SPACE": WHITE_SPACE, "LINE_END": LINE_ENDS, "UNSPACED": UNSPACED})


def render_comparison(comparison: Mapping[str, Any]) -> str:
    """Return the HTML page of a comparison.

    Args:
        comparison: The result of `ExplanationComparison.to_dict(packed=True)`.
    """
    first, second = (f"{one['source']} → {one['translation']}" for one in (comparison["first"], comparison["second"]))
    title = f"{_shortened(comparison['first']['source'])} · two compared"
    return _filled("compare", ["explain.css", "compare.css"], comparison, title=title, first=first, second=second)


def _filled(name: str, styles: Sequence[str], data: Mapping[str, Any], **values: str) -> str:
    css, code = style(*styles), script(f"{name}/main.js")
    policy = content_policy(styles=[css], scripts=[code])
    return fill(f"{name}.html", policy=policy, style=css, script=code, data=data_block(data), **values)


def framed(page: Callable[[], str]) -> str:
    """Return a page as a frame for a notebook, or the error message if it cannot be created.

    Args:
        page: Returns the HTML page.
    """
    try:
        text = page()
    except DataError as error:
        return f"<p>{html.escape(str(error))}</p>"
    # Without allow-same-origin the page's script cannot access the notebook.
    return (
        f'<iframe srcdoc="{html.escape(text)}" title="Attention" sandbox="allow-scripts" '
        f'style="width: 100%; height: 45rem; border: 0"></iframe>'
    )


def _shortened(text: str) -> str:
    return shortened(" ".join(text.split()), 60)


_DIGITS = 6


def plain_values(value: Any, *, digits: int | None = None) -> Any:
    """Return dataclasses as objects and tuples as lists, as they are after a round trip through JSON.

    Args:
        value: Plain values, and dataclasses and tuples of them.
        digits: Decimal places of floats; None keeps all.
    """
    if is_dataclass(value):
        return {field.name: plain_values(getattr(value, field.name), digits=digits) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [plain_values(item, digits=digits) for item in value]
    return round(value, digits) if isinstance(value, float) and digits is not None else value


def plain(values: Float[np.ndarray, "*shape"]) -> list[Any]:
    """Return nested lists, rounded to six decimal places."""
    return np.round(values.astype(np.float64), _DIGITS).tolist()


def packed(values: Float[np.ndarray, "*shape"]) -> dict[str, Any]:
    """Return `float24`: each number is a float32 without its lowest byte, three bytes, little-endian, in base 64.

    The relative error is at most 2^-16, about 0.000015.
    """
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4").astype(np.uint64) + 0x80  # round to nearest
    three = ((bits >> 8) & 0xFFFFFF).astype("<u4")[..., None].view(np.uint8)[..., :3]
    return {"type": "float24", "shape": list(values.shape), "data": _base64(three)}


def packed_weights(values: Float[np.ndarray, "*shape"]) -> dict[str, Any]:
    """Return `root16`: 65535 times the fourth root of each number from 0 to 1, in two bytes, little-endian, in base 64.

    The error is at most 2^-15 w^(3/4) for a number w: the relative error of small weights is small, too, so that scores
    can be computed from their logarithms. A page holds so many weights that saving the third byte of `float24` matters.
    """
    roots = np.rint(65535 * np.sqrt(np.sqrt(values.astype(np.float64)))).astype("<u2")
    return {"type": "root16", "shape": list(values.shape), "data": _base64(roots)}


def packed_rows(values: Float[np.ndarray, "*shape width"]) -> dict[str, Any]:
    """Return `int8`: rows of signed bytes, each to be multiplied by its row's scale; `scales` has these as `float24`.

    A row's largest number is 127 times its scale; the others are rounded to a 254th of it.
    """
    scales = np.abs(values).max(axis=-1) / 127
    rows = np.rint(values / np.where(scales > 0, scales, 1.0)[..., None]).astype(np.int8)
    return {"type": "int8", "shape": list(values.shape), "data": _base64(rows), "scales": packed(scales)}


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()
