"""Run the tour of the paper and write it as one HTML page: `python docs/build_tour.py OUT.html`, or `make tour`.

The page has all outputs, and loads nothing: formulas are MathML, pictures are in the file. `CLEARHEAD_DEMO` names the
run whose model it uses, as in the notebook.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

import nbformat
from build_site import tour_mark
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.anchors import anchors_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbclient import NotebookClient
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from clearhead.files import open_output
from clearhead.pages import Html, fill, style

DOCS = Path(__file__).parent
TOUR = DOCS / "tour.ipynb"


def executed(notebook: NotebookNode) -> NotebookNode:
    """Return a copy of a notebook of this folder with its outputs; a cell that fails raises.

    The cells run in a process of their own.
    """
    copy = nbformat.from_dict(notebook)
    resources = {"metadata": {"path": str(DOCS)}}
    client = NotebookClient(copy, timeout=600, kernel_name="python3", resources=resources)
    asyncio.run(client.async_execute())  # `execute` leaves its event loop behind
    return copy


def page(notebook: NotebookNode, *, docs: str) -> str:
    """Return a notebook with outputs as an HTML page.

    Args:
        notebook: The notebook, which has been run.
        docs: Address of this folder, from where the page will be; relative links begin there.
    """
    markdown = MarkdownIt("commonmark").enable("table")
    markdown.use(anchors_plugin, max_level=4).use(dollarmath_plugin, renderer=_formula)
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = re.findall(r'<h[2-4] id="([^"]+)">(.*?)</h', markdown.render(text))
    links = "".join(f'<li><a href="#{anchor}">{heading}</a></li>' for anchor, heading in headings)
    cells, heading = [], ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.*)", cell.source, re.MULTILINE) or [heading])[-1]
            cells.append(markdown.render(cell.source))
        else:
            cells += [_code(cell.source), *(f'<div class="output">{shown}</div>' for shown in _outputs(cell, heading))]
    title, *others = cells
    content = "\n".join([title, f'<nav aria-label="Sections"><ol>{links}</ol></nav>', *others])
    content = re.sub(r'(href=")(?![a-z]+:|#)', rf"\1{docs}/", content)
    return fill("report.html", title="A tour of Attention Is All You Need", style=_style(), content=Html(content))


def _formula(formula: str, options: dict[str, bool]) -> str:
    return convert(formula, display="block" if options["display_mode"] else "inline")


def _code(source: str) -> str:
    code = highlight(source, PythonLexer(), HtmlFormatter(nowrap=True))
    return f'<div class="source"><pre tabindex="0" aria-label="Code">{code}</pre></div>'


def _outputs(cell: NotebookNode, heading: str) -> Iterator[str]:
    """Yield what a cell printed and showed."""
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "stream":
            yield f'<pre tabindex="0" aria-label="Output">{escape(output.text)}</pre>'
        elif "text/html" in data:
            yield data["text/html"]
        elif "image/svg+xml" in data:
            yield f'<div class="picture" tabindex="0">{data["image/svg+xml"]}</div>'
        elif "image/png" in data:
            width = output.metadata.get("image/png", {}).get("width", 0)
            image = f'<img alt="Plots: {escape(heading)}" src="data:image/png;base64,{data["image/png"].strip()}">'
            yield f'<div class="picture" tabindex="0" style="--width: {width}px">{image}</div>'
        else:
            yield f'<pre tabindex="0" aria-label="Output">{escape(data["text/plain"])}</pre>'


def _style() -> Html:
    """Return the style sheet, in which code has colours for light and for dark."""
    colours = "\n".join(
        f"@media (prefers-color-scheme: {scheme}) {{ {rules} }}"
        for scheme, name in (("light", "xcode"), ("dark", "github-dark"))
        for rules in ["\n".join(_rules(name))]
    )
    return Html(f"{style()}{(DOCS / 'tour.css').read_text(encoding='utf-8')}{colours}\n")


def _rules(name: str) -> list[str]:
    return [
        rule
        for rule in HtmlFormatter(style=name).get_style_defs(".source").splitlines()
        if rule.startswith(".source .")
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run the tour of the paper and write it as one HTML page.")
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument("--docs", help="address of docs/, where links begin; by default relative to the file")
    options = parser.parse_args()
    tour = nbformat.read(TOUR, as_version=4)
    sharp = nbformat.v4.new_code_cell("%config InlineBackend.figure_formats = ['retina']")
    _, *cells = executed({**tour, "cells": [sharp, *tour.cells]}).cells
    docs = options.docs or Path(os.path.relpath(DOCS, options.out.parent.resolve())).as_posix()
    with open_output(str(options.out)) as out:
        out.write(page(nbformat.from_dict({**tour, "cells": cells}), docs=docs) + tour_mark())
