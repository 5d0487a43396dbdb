"""Self-contained HTML pages of an explanation and of a comparison of two, and their frame in a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clearhead.errors import DataError
from clearhead.inspection.head_statistics import STATISTICS
from clearhead.pages import Html, content_policy, data_block, fill, script, style
from clearhead.text.shortening import shortened

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
