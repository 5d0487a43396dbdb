"""`report.html`: one well-formed file that loads nothing and shows text as text."""

from __future__ import annotations

import os

import pytest
from report_page import Page

from clearhead.config import Config
from clearhead.training.report import write_report
from clearhead.translator import Translation

EVIL = "<script>alert(\"x\")</script> & 'quoted'"
TRAIN = {"split": "train", "step": 25, "nll": 3.5, "lr": 1e-3, "tokens_per_second": 4321.0}
VALID = {"split": "valid", "step": 30, "nll": 3.25, "bleu": 12.5}


def page_of(tmp_path, metrics=(TRAIN, VALID), text="ein Satz", name="run") -> Page:
    (tmp_path / name).mkdir()
    path = tmp_path / name / "report.html"
    write_report(
        path,
        config=Config(preset=text, out=text),
        summary={text: text},
        metrics=list(metrics),
        samples=[(Translation(text, text, -1.234, (text,)), text)],
        data_lines=[text, text],
    )
    assert os.listdir(tmp_path / name) == ["report.html"]
    return Page(path.read_text(encoding="utf-8"))


def test_text_from_outside_is_shown_as_text(tmp_path):
    page = page_of(tmp_path, text=EVIL, name="<b>run&")
    assert "script" not in page.elements
    assert "b" not in page.elements
    shown = "".join(page.texts)
    assert shown.count('<script>alert("x")</script>') >= 7
    assert "clearhead: <b>run&" in shown


def test_nothing_is_loaded_from_anywhere(tmp_path):
    page = page_of(tmp_path)
    assert page.loads == []
    assert not {"script", "link", "iframe", "img", "object"} & set(page.elements)
    styles = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "url(" not in styles
    assert "@import" not in styles


def test_samples_stand_beside_their_references(tmp_path):
    texts = page_of(tmp_path).texts
    assert texts.count("ein Satz") >= 3
    assert "-1.23" in texts


@pytest.mark.parametrize("metrics", [[], [TRAIN], [VALID], [TRAIN, VALID, {"split": "valid", "step": 60, "nll": 3.25}]])
def test_a_run_of_any_length_has_a_report(tmp_path, metrics):
    page = page_of(tmp_path, metrics)
    assert page.elements.count("svg") == len(
        {name for record in metrics for name in record if name in ("nll", "bleu", "lr", "tokens_per_second")}
    )


def test_curves_stay_within_their_axes(tmp_path):
    metrics = [{"split": "train", "step": 25 * n, "nll": 9.0 / n, "lr": 1e-3 / n} for n in range(1, 40)]
    page_of(tmp_path, metrics)
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    points = [
        tuple(map(float, point.split(",")))
        for line in report.split('points="')[1:]
        for point in line.split('"')[0].split()
    ]
    assert len(points) == 2 * 39
    assert all(52 <= x <= 448 and 14 <= y <= 206 for x, y in points)
    assert len({x for x, _ in points}) == 39
