"""The page that shows one explanation: a single HTML file that needs no other file, no script of others, no network."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from clearhead.inspection.statistics import STATISTICS
from clearhead.pages import content_policy, data_block, fill, script, style

__all__ = ["MAX_PAGE_WEIGHTS", "render_frame", "render_page"]

MAX_PAGE_WEIGHTS = 5_000_000
"""Attention weights that a page holds: at 8/3 bytes each, what a browser still opens readily."""


def render_page(explanation: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        explanation: What `Explanation.to_dict(packed=True)` returns.
    """
    css, code = style("explain.css"), script("explain/main.js")
    source, translation = explanation["source"], explanation["translation"]
    return fill(
        "explain.html",
        policy=content_policy(style=css, script=code),
        title=f"{_shortened(source)} · attention",
        style=css,
        script=code,
        data=data_block({**explanation, "statistics_meaning": STATISTICS}),
        source=source,
        translation=translation,
    )


def render_frame(page: str) -> str:
    """Return the page as a frame that a notebook can show among its own content."""
    # Without allow-same-origin the page's script cannot reach into the notebook.
    return (
        f'<iframe srcdoc="{html.escape(page)}" title="Attention" sandbox="allow-scripts" '
        f'style="width: 100%; height: 45rem; border: 0"></iframe>'
    )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"
