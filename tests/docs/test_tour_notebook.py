"""The tour of the paper runs from its first cell to its last, and is stored so that its diffs stay readable."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient

TOUR = Path(__file__).parents[2] / "docs" / "tour.ipynb"


@pytest.fixture(scope="module")
def tour() -> nbformat.NotebookNode:
    return nbformat.read(TOUR, as_version=4)


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory) -> Path:
    """Return a run like the demo's, on two languages and a few hundred steps: seconds instead of minutes."""
    from clearhead.data.demo_corpus import generate
    from clearhead.formats import write_tsv
    from clearhead.text.language_names import LOCALES
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


def execute(notebook: nbformat.NotebookNode, demo: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Run every cell in a process of its own and return what each showed; a cell that fails raises."""
    monkeypatch.setenv("CLEARHEAD_DEMO", str(demo))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own draws into the notebook
    copy = nbformat.from_dict(notebook)
    client = NotebookClient(
        copy, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(TOUR.parent)}}
    )
    asyncio.run(client.async_execute())  # `execute` leaves its event loop behind
    return {cell.id: cell.outputs for cell in copy.cells if cell.cell_type == "code"}


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


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of PyTorch beside NumPy 2
@pytest.mark.usefixtures("fonts")
def test_the_cells_run_on_a_demo_model(tour, small_demo, monkeypatch, capsys):
    monkeypatch.setenv("CLEARHEAD_DEMO", str(small_demo))
    monkeypatch.setenv("MPLBACKEND", "agg")
    try:
        shown = run_here(tour)
    finally:
        torch.set_grad_enabled(True)
    assert sum(len(of_cell) > 1 for of_cell in shown.values()) >= 9
    assert "<iframe" in shown["s6-1-page"][-1]._repr_html_()
    for cell in ("s3-figure1-drawn", "s3-2-2-figure2"):
        assert "<svg" in shown[cell][-1]._repr_svg_()
    printed = capsys.readouterr()
    assert "63,045,632" in printed.out
    assert printed.err == ""


@pytest.mark.slow
@pytest.mark.usefixtures("fonts")
def test_the_tour_runs_on_a_demo_model(tour, small_demo, monkeypatch):
    outputs = execute(tour, small_demo, monkeypatch)
    pictures = [name for name, shown in outputs.items() if any("image/png" in part.get("data", {}) for part in shown)]
    assert len(pictures) >= 9
    assert "63,045,632" in str(outputs["s6-2-table3"])
    assert "<iframe" in outputs["s6-1-page"][0]["data"]["text/html"]
    complaints = [part.text for shown in outputs.values() for part in shown if part.get("name") == "stderr"]
    assert complaints == []


@pytest.mark.slow
@pytest.mark.usefixtures("fonts")
def test_the_tour_trains_a_model_where_there_is_none(tour, tmp_path, monkeypatch):
    # The other cells need more than a minute of a busy machine makes of a model.
    first = {**tour, "cells": tour.cells[: 1 + [cell.id for cell in tour.cells].index("model")]}
    outputs = execute(first, tmp_path / "demo", monkeypatch)
    assert "Exact match on 1,000 held-out sentences" in str(outputs["model"])


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
