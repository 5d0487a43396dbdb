"""Parts that the report pages share: the frame, scores, tables, lists, folded parts, and the filter by kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Literal

from clearhead.pages import Html, fill, joined, style

Severity = Literal["serious", "moderate", "mild"]
"""How much a finding matters."""

SEVERITY_WEIGHTS: dict[Severity, int] = {"serious": 9, "moderate": 3, "mild": 1}
"""Weights that rank findings: one finding outweighs two of the next lower severity."""

_PARTS = "report_parts.html"
_MOST_CHARACTERS, _SHOWN_CHARACTERS = 200, 120


def report_page(template: str, *, title: str, rules: Html = Html(), **values: object) -> Html:
    """Return a report page: one file without scripts.

    Args:
        template: File of its content.
        title: Title of the page.
        rules: Style rules of this page alone, after the shared ones.
        values: Values of the content, besides the title.
    """
    return fill(
        "report.html",
        title=title,
        style=joined([style("report.css"), rules]),
        content=fill(template, title=title, **values),
    )


def paragraph(text: str) -> Html:
    """Return a paragraph of explanation."""
    return fill(f"{_PARTS}#paragraph", text=text)


def with_code(text: str) -> Html:
    """Return text of ours, in which a command between backticks is shown as code."""
    return Html(re.sub("`([^`]+)`", r"<code>\1</code>", escape(text)))


def scores(values: Mapping[str, str]) -> Html:
    """Return a few numbers, large, each with its name."""
    return fill(
        f"{_PARTS}#scores",
        scores=joined(fill(f"{_PARTS}#score", name=name, value=value) for name, value in values.items()),
    )


def folded(title: str, content: Html) -> Html:
    """Return content that a reader unfolds; nothing if it is empty."""
    return fill(f"{_PARTS}#folded", title=title, content=content) if content else Html()


def long_text(text: str, shown: Callable[[str], Html] = lambda text: Html(escape(text))) -> Html:
    """Return a text; of one that would fill a screen of a phone, the beginning, which unfolds to the whole.

    Args:
        text: The text.
        shown: How a text is shown.
    """
    if len(text) <= _MOST_CHARACTERS:
        return shown(text)
    more = f"show all {len(text):,} characters"
    return fill(f"{_PARTS}#long", start=shown(text[:_SHOWN_CHARACTERS]), more=more, text=shown(text))


def bullets(texts: Iterable[str]) -> Html:
    """Return a list of texts."""
    return fill(f"{_PARTS}#list", items=joined(fill(f"{_PARTS}#item", text=text) for text in texts))


def lines(texts: Iterable[str]) -> Html:
    """Return texts below each other."""
    return Html("<br>".join(map(escape, texts)))


def table(
    kinds: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    heads: Sequence[str] = (),
    caption: str = "",
    classes: str = "",
    shown: int | None = None,
) -> Html:
    """Return a table.

    Args:
        kinds: Kind of each column: `text`, `number` or `severity`; `row` or `row number` for the heading of a row.
        rows: Values of the cells.
        heads: Headings of the columns; empty for none.
        caption: Caption; empty for none.
        classes: Classes of the table. On a phone `stacked` shows the cells of a row below each other, and with `texts`
            each with its heading.
        shown: Number of rows that are shown at first, the rest folded; None for all.
    """
    rows = list(rows)
    if shown is not None and len(rows) > shown:
        first, rest = (
            table(kinds, part, heads=heads, caption=title, classes=classes)
            for part, title in ((rows[:shown], caption), (rows[shown:], ""))
        )
        return joined([first, folded(f"{len(rows) - shown:,} more", rest)])

    def cell(kind: str, value: object, title: str) -> Html:
        names = "titled_cell" if title and "texts" in classes else "cell"
        part = kind if kind == "severity" else "row_head" if kind.startswith("row") else names
        return fill(f"{_PARTS}#{part}", kind=kind, value=value, title=title)

    titles = heads or [""] * len(kinds)
    head_cells = (fill(f"{_PARTS}#head", kind=kind, value=head) for kind, head in zip(kinds, heads, strict=False))
    return fill(
        f"{_PARTS}#table",
        classes=fill(f"{_PARTS}#classes", names=classes) if classes else Html(),
        caption=fill(f"{_PARTS}#caption", text=caption) if caption else Html(),
        heads=fill(f"{_PARTS}#heads", cells=joined(head_cells)) if heads else Html(),
        rows=joined(fill(f"{_PARTS}#row", cells=joined(map(cell, kinds, row, titles))) for row in rows),
    )


def kind_filter(kinds: Mapping[str, Sequence[object]], total: Sequence[object], *, heads: Sequence[str]) -> Html:
    """Return a filter: a table of kinds, of which a reader chooses one to see only its segments.

    The segments have the class `is-` and the name of each of their kinds, and the page has `filter_rules`.

    Args:
        kinds: For each kind: its meaning, its severity (empty for none) and some numbers.
        total: The numbers of all segments together.
        heads: Headings of the columns.
    """
    all_row = (fill(f"{_PARTS}#choose_all"), "", *total)
    rows = [
        (fill(f"{_PARTS}#choose_kind", kind=kind, meaning=meaning), *values)
        for kind, (meaning, *values) in kinds.items()
    ]
    columns = ("text", "severity", *("number" for _ in total))
    return fill(f"{_PARTS}#filter", table=table(columns, [all_row, *rows], heads=heads))


def filter_rules(kinds: Iterable[str]) -> Html:
    """Return the style rules with which a `kind_filter` works."""
    return joined(fill(f"{_PARTS}#choice_rule", kind=kind) for kind in kinds)


def figure(caption: str, content: Html) -> Html:
    """Return a picture with its caption."""
    return fill(f"{_PARTS}#figure", caption=caption, content=content)


def figures_in_a_row(figures: Iterable[Html]) -> Html:
    """Return figures beside each other, the last of them large."""
    return fill(f"{_PARTS}#figures_in_a_row", figures=joined(figures))
