"""The tour of the paper runs from its first cell to its last, and is stored so that its diffs stay readable."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
import torch

TOUR = Path(__file__).parents[2] / "docs" / "tour.ipynb"


@pytest.fixture(scope="module")
def tour() -> nbformat.NotebookNode:
    return nbformat.read(TOUR, as_version=4)


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory) -> Path:
    """Return a run like the demo's, on two languages and a few hundred steps: seconds instead of minutes."""
    from clearhead.data.demo_corpus import generate
    from clearhead.formats import write_tsv
    from clearhead.text.languages import LOCALES
    from clearhead.training.run import train_from_values

    run = tmp_path_factory.mktemp("tour") / "demo"
    corpus = generate(2_500, seed=1, num_test=20, locales=("en", "de"))
    files = {name: str(run.parent / f"{name}.tsv") for name in ("train", "valid")}
    write_tsv(files["train"], corpus.train)
    write_tsv(files["valid"], corpus.test)
    train_from_values(
        {
            "out": str(run),
            "preset": "tiny",
            "device": "cpu",
            "data": {"pairs": [files["train"]], "valid_pairs": [files["valid"]]},
            "tokenizer": {"language_tags": list(LOCALES), "vocab_size": 1_000, "split_digits": False},
            "model": {"d_model": 64, "d_ff": 128, "num_encoder_layers": 2, "num_decoder_layers": 1, "dropout": 0.0},
            "train": {
                "max_steps": 150,
                "batch_tokens": 384,
                "warmup_steps": 40,
                "average_last": 1,
                "validate_every": 150,
            },
            "decode": {"target_lang": "de"},
        }
    )
    return run


def execute(
    build_tour: ModuleType, notebook: nbformat.NotebookNode, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Run every cell in a process of its own and return the notebook with outputs; a cell that fails raises."""
    monkeypatch.setenv("CLEARHEAD_DEMO", str(demo))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own draws into the notebook
    return build_tour.executed(notebook)


def outputs_of(notebook: nbformat.NotebookNode) -> dict[str, list[Any]]:
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def run_here(notebook: nbformat.NotebookNode) -> dict[str, list[Any]]:
    """Run every cell in this process; return the pictures that each drew, and the value of its last expression."""
    from matplotlib import pyplot

    names: dict[str, Any] = {}
    shown = {}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        code = ast.parse(cell.source, cell.id)
        last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
        exec(compile(code, cell.id, "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), cell.id, "eval"), names)
        pictures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        for picture in pictures:
            picture.canvas.draw()
        pyplot.close("all")
        shown[cell.id] = [*pictures, value]
    return shown


def without_names(picture: Any) -> list[str]:
    """Return the axes of a picture without a name, and matrices of colours without a bar that has one."""
    bars = [axes for axes in picture.axes if axes.get_label() == "<colorbar>"]
    plots = [axes for axes in picture.axes if axes not in bars]
    found = [axes.get_title() for axes in plots if not (axes.get_xlabel() and axes.get_ylabel())]
    return [
        *found,
        *["a colour bar" for bar in bars if not bar.get_ylabel()],
        *["a matrix" for _ in range(sum(bool(axes.images) for axes in plots) - len(bars))],
    ]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of PyTorch beside NumPy 2
@pytest.mark.usefixtures("fonts")
def test_the_cells_run_on_a_demo_model(tour, small_demo, monkeypatch, capsys):
    monkeypatch.setenv("CLEARHEAD_DEMO", str(small_demo))
    monkeypatch.setenv("MPLBACKEND", "agg")
    try:
        shown = run_here(tour)
    finally:
        torch.set_grad_enabled(True)
    pictures = {name: picture for name, (*drawn, _) in shown.items() for picture in drawn}
    assert len(pictures) >= 9
    assert {name: nameless for name, picture in pictures.items() if (nameless := without_names(picture))} == {}
    assert "<iframe" in shown["s6-1-page"][-1]._repr_html_()
    for cell in ("s3-figure1-drawn", "s3-2-2-figure2"):
        assert "<svg" in shown[cell][-1]._repr_svg_()
    printed = capsys.readouterr()
    assert "63,045,632" in printed.out
    assert printed.err == ""


@pytest.mark.slow
@pytest.mark.usefixtures("fonts")
def test_the_tour_runs_on_a_demo_model_and_becomes_a_page(build_tour, tour, small_demo, monkeypatch):
    done = execute(build_tour, tour, small_demo, monkeypatch)
    outputs = outputs_of(done)
    pictures = [name for name, shown in outputs.items() if any("image/png" in part.get("data", {}) for part in shown)]
    assert len(pictures) >= 9
    assert "63,045,632" in str(outputs["s6-2-table3"])
    assert "<iframe" in outputs["s6-1-page"][0]["data"]["text/html"]
    complaints = [part.text for shown in outputs.values() for part in shown if part.get("name") == "stderr"]
    assert complaints == []
    page = build_tour.page(done, docs="../docs")
    assert page.count('src="data:image/png;base64,') == len(pictures)
    assert page.count("<math") > 50
    assert "$" not in re.sub(r"<pre.*?</pre>|<iframe.*?</iframe>|<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert loads(page) == []


@pytest.mark.slow
@pytest.mark.usefixtures("fonts")
def test_the_tour_trains_a_model_where_there_is_none(build_tour, tour, tmp_path, monkeypatch):
    # The other cells need more than a minute of a busy machine makes of a model.
    first = {**tour, "cells": tour.cells[: 1 + [cell.id for cell in tour.cells].index("model")]}
    outputs = outputs_of(execute(build_tour, first, tmp_path / "demo", monkeypatch))
    assert "Exact match on 1,000 held-out sentences" in str(outputs["model"])


def loads(page: str) -> list[str]:
    """Return what a page would load from elsewhere, or run outside of a frame."""
    return re.findall(r'<(?:script|link|object|embed)|(?:src|srcset|poster)="(?!data:)|url\((?!data:|#)|@import', page)


def test_a_page_has_what_cells_showed_and_loads_nothing(build_tour):
    v4 = nbformat.v4
    code = v4.new_code_cell(
        "print('<2>')",
        outputs=[
            v4.new_output("stream", text="<2>\n"),
            v4.new_output("display_data", {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"}),
            v4.new_output("execute_result", {"image/svg+xml": '<svg><a href="../src/a.py#L1">a</a></svg>'}),
            v4.new_output("execute_result", {"text/plain": "{1 < 2}"}),
            v4.new_output("execute_result", {"text/html": "<b>shown</b>", "text/plain": "unseen"}),
        ],
    )
    text = v4.new_markdown_cell(
        "# A title\n\n## 1 Part\n\nOf $d_k$ and\n\n$$\\frac{1}{2}$$\n\n[code](../src/a.py) [part](#1-part)"
    )
    page = build_tour.page(v4.new_notebook(cells=[text, code]), docs="../docs")
    assert "<h1" in page
    assert '<a href="#1-part">1 Part</a>' in page
    assert page.count("<math") == 2
    assert "<msub><mi>d</mi><mi>k</mi></msub>" in page
    assert "<mfrac>" in page
    assert 'href="../docs/../src/a.py">code' in page
    assert 'href="../docs/../src/a.py#L1">a' in page
    assert 'alt="Plots: 1 Part" src="data:image/png;base64,iVBORw0KGgo="' in page
    for shown in ("&lt;2&gt;\n</pre>", "{1 &lt; 2}</pre>", "<b>shown</b>"):
        assert shown in page
    assert "unseen" not in page
    assert "prefers-color-scheme: dark" in page
    assert loads(page) == []
    assert loads(page + '<img src="https://example.org/a.png">') != []


def test_every_cell_compiles(tour):
    for cell in tour.cells:
        if cell.cell_type == "code":
            compile(cell.source, cell.id, "exec")


def test_the_tour_is_stored_without_outputs_under_stable_names(tour):
    nbformat.validate(tour)
    assert (tour.nbformat, tour.nbformat_minor) == (4, 5)
    names = [cell.id for cell in tour.cells]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"title|imports|model|s\d[\w-]*", name) for name in names)
    code = [cell for cell in tour.cells if cell.cell_type == "code"]
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []


def test_the_tour_walks_every_section_of_the_paper_in_its_order(tour):
    headings = re.findall(
        r"^#+ (\d(?:\.\d)*) ",
        "\n".join(cell.source for cell in tour.cells if cell.cell_type == "markdown"),
        flags=re.MULTILINE,
    )
    sections = "1 2 3 3.1 3.2 3.2.1 3.2.2 3.2.3 3.3 3.4 3.5 4 5 5.1 5.2 5.3 5.4 6 6.1 6.2 6.3 7"
    assert headings == sections.split()


def test_links_of_the_tour_lead_somewhere(tour):
    text = "\n".join(cell.source for cell in tour.cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert links
    assert [link for link in links if not (TOUR.parent / link).exists()] == []
