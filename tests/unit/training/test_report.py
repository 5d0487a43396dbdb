"""`report.html`: one well-formed file that loads nothing and shows text as text."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import numpy as np
import pytest
from well_formed import Page

from clearhead.config import Config
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.inspection.explanation import Explanation
from clearhead.text.quality_flags import KINDS, Flag
from clearhead.training import report
from clearhead.training.report import Answer, Judged, LearnedPair, write_report
from clearhead.translation.result import Translation

EVIL = "<script>alert(\"x\")</script> & 'quoted'"
TRAIN = {"split": "train", "step": 25, "nll": 3.5, "lr": 1e-3, "tokens_per_second": 4321.0}
VALID = {"split": "valid", "step": 30, "nll": 3.25, "bleu": 12.5}


def judged(text: str, chrf: float = 50.0) -> Judged:
    return Judged(Translation(text, text, -1.234, (text,)), text, chrf)


def explanation(text: str) -> Explanation:
    weights = np.full((2, 3, 2, 2), 0.5, dtype=np.float32)
    return Explanation(text, text, -1.0, [text, "</s>"], [text, "</s>"], weights, weights, weights, [])


def page_of(
    tmp_path,
    metrics=(TRAIN, VALID),
    text="ein Satz",
    name="run",
    samples=None,
    learned=(),
    doubt="",
    verdict=None,
    chosen=(),
) -> Page:
    (tmp_path / name).mkdir()
    path = tmp_path / name / "report.html"
    write_report(
        path,
        config=Config(preset=text, out=text),
        answer=Answer(text, doubt, {text: "31.4"}, [text] if verdict is None else verdict, "5a", chosen),
        made={text: text},
        metrics=list(metrics),
        judged=[judged(text)] if samples is None else samples,
        lengths={"source": np.array([3, 5, 40]), "target": np.array([2, 2, 9])},
        head=AlignmentHead(1, 0),
        explanations=[explanation(text)],
        learned=[LearnedPair([text, "</s>"], [text, "</s>"], learned)] if learned else [],
        data_lines=[text, text],
    )
    assert os.listdir(tmp_path / name) == ["report.html"]
    return Page(path.read_text(encoding="utf-8"))


def test_text_from_outside_is_shown_as_text(tmp_path):
    page = page_of(tmp_path, text=EVIL, name="<b>run&")
    assert "script" not in page.elements
    assert "b" not in page.elements
    shown = page.text
    assert shown.count('<script>alert("x")</script>') >= 11
    assert "clearhead: <b>run&" in shown


def test_report_loads_no_external_resources(tmp_path):
    page = page_of(tmp_path)
    assert page.links == []
    assert not {"script", "link", "iframe", "img", "object"} & set(page.elements)
    styles = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "url(" not in styles
    assert "@import" not in styles


def test_report_shows_samples_with_their_references(tmp_path):
    texts = page_of(tmp_path).texts
    assert texts.count("ein Satz") >= 3
    assert "-1.23" in texts


@pytest.mark.parametrize("metrics", [[], [TRAIN], [VALID], [TRAIN, VALID, {"split": "valid", "step": 60, "nll": 3.25}]])
def test_a_run_of_any_length_has_a_report(tmp_path, metrics):
    page = page_of(tmp_path, metrics)
    curves = {name for record in metrics for name in record if name in ("nll", "bleu", "lr", "tokens_per_second")}
    assert page.elements.count("svg") == len(curves) + 3  # two of lengths, one of attention


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


def test_report_lists_the_worst_sentences(tmp_path):
    samples = [judged(f"Satz {number}", chrf=100.0 - number) for number in range(60)]
    texts = page_of(tmp_path, samples=samples).texts
    worst = texts[texts.index("The worst of 60 by chrF") :]
    found = [text for text in worst[: worst.index("The best of 60 by chrF")] if text.startswith("Satz")]
    assert worst.index("Satz 58") < worst.index("8 more") < worst.index("Satz 57")
    assert found == [f"Satz {number}" for number in range(59, 49, -1) for _ in range(3)]
    assert "41.0" in worst


def test_report_lists_the_best_sentences(tmp_path):
    texts = page_of(tmp_path, samples=[judged(f"Satz {number}", chrf=float(number)) for number in range(60)]).texts
    best = texts[texts.index("The best of 60 by chrF") :]
    found = [text for text in best[: best.index("What looks wrong with the 60")] if text.startswith("Satz")]
    assert found == [f"Satz {number}" for number in range(59, 49, -1) for _ in range(3)]


def test_attention_is_shown_as_it_was_learned_of_the_head_that_aligns(tmp_path):
    cross = np.full((2, 3, 2, 2), 0.25, dtype=np.float32)
    learned = [(step, cross.copy()) for step in range(10, 81, 10)]
    for step, weights in learned:
        weights[1, 0] = [[step / 100, 0.0], [0.0, 1.0]]  # of this head alone, more and more
    page = page_of(tmp_path, text=EVIL, learned=learned)
    steps = [text for text in page.texts if text.startswith("step ")]
    assert steps == [f"step {step}" for step in (10, 20, 40, 50, 70, 80)]  # of eight, evenly spread
    assert "script" not in page.elements
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8").split("How attention became")[1]
    drawn = [re.findall(r'opacity="([\d.]+)"', part) for part in report.split("<figure>")[1:]]
    assert drawn == [[f"{step / 100:.2f}", "1.00"] for step in (10, 20, 40, 50, 70, 80)]
    assert "head 1 of layer 2" in page.text


def test_report_counts_warnings_with_examples(tmp_path):
    flags = [(Flag("unseen_characters", "🙂"),), (Flag("unseen_characters", "<ß>"), Flag("numbers", "2016")), ()]
    found = [replace(judged("Satz"), translation=replace(judged("Satz").translation, warnings=each)) for each in flags]
    texts = page_of(tmp_path, samples=found).texts
    table = texts[texts.index("What looks wrong with the 3") : texts.index("More")]
    assert [text for text in table[table.index("1") :] if text.strip()] == [
        "1",
        KINDS["numbers"].meaning,
        "2016",
        "2",
        KINDS["unseen_characters"].meaning,
        "🙂",
        "<ß>",
    ]


def test_report_without_warnings_says_so(tmp_path):
    assert "Nothing." in page_of(tmp_path).texts


def test_without_samples_there_is_still_a_report(tmp_path):
    texts = page_of(tmp_path, samples=[]).texts
    assert "The worst of 0 by chrF" in texts
    assert texts.count("No validation sentence was translated.") == 3


def test_quality_by_length_is_of_groups_of_equal_number():
    samples = [judged("x" * number, chrf=float(number)) for number in range(1, 11)]
    bars = report._by_length(samples)
    assert {label: bar["mean chrF"] for label, bar in bars.items()} == {
        "1-3": 2.0,
        "4-5": 4.5,
        "6-7": 6.5,
        "8-9": 8.5,
        "10-10": 10.0,
    }


def test_the_histogram_counts_every_pair_once():
    lengths = {"source": np.arange(1, 201), "target": np.full(200, 7)}
    bars = report._histogram(lengths)
    assert sum(bar["source"] for bar in bars.values()) == pytest.approx(100)
    assert [label for label, bar in bars.items() if bar["target"]] == ["1-29"]
    assert list(bars)[-1] == "204+"
    assert report._histogram({"source": np.array([1])}) == {
        **{str(number): {"source": 100.0 * (number == 1)} for number in range(1, 8)},
        "8+": {"source": 0.0},
    }


def test_a_curve_that_hardly_moves_looks_so(tmp_path):
    page_of(tmp_path, [{"split": "valid", "step": step, "nll": 2.0 + step / 1e6} for step in (10, 20, 30)])
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    heights = [float(point.split(",")[1]) for point in page.split('points="')[2].split('"')[0].split()]
    assert max(heights) - min(heights) < 1


def test_report_starts_with_a_sample_scores_and_the_verdict(tmp_path):
    verdict = ["still improving", "too few pairs", "`clearhead corpus check` shows <them>"]
    page = page_of(tmp_path, doubt="probably, by the text", verdict=verdict)
    texts = [text.strip() for text in page.texts if text.strip()]
    start = texts.index("Training report: run")
    assert texts[start : texts.index("Learning curves")] == [
        "Training report: run",
        "ein Satz",
        "(probably, by the text)",
        "ein Satz",
        "31.4",
        "No test set yet: the scores of clearhead evaluate are added here.",
        "still improving",
        "too few pairs",
        "More on this",
        "clearhead corpus check",
        "shows <them>",
    ]


def test_samples_are_drawn_across_lengths(tmp_path):
    samples = [judged(f"{number:03} " + "x" * number) for number in reversed(range(190))]
    texts = page_of(tmp_path, samples=samples).texts
    start = texts.index("Translations of validation sentences, from short to long")
    rows = texts[start : texts.index("The worst of 190 by chrF")]
    found = [int(text[:3]) for text in rows if text[3:4] == " " and text[:3].isdigit()][::3]
    at_even_distances = [round(place * 189 / 19) for place in range(20)]
    assert found[:3] == [0, at_even_distances[10], 189]  # shown at first
    assert sorted(found) == at_even_distances


def test_long_texts_of_the_report_are_cut_with_the_rest_folded(tmp_path):
    whole = "Wort " * 100
    texts = page_of(tmp_path, samples=[judged(whole)]).texts
    assert whole in texts
    assert f"{whole[:120]} … " in texts
    assert "show all 500 characters" in texts


def test_the_axis_ends_with_the_data_and_values_are_shown_on_pointing(tmp_path):
    metrics = [
        {"split": "valid", "step": step, "chrf": value, "bleu": 5.0} for step, value in ((10, 10.0), (1113, 40.0))
    ]
    page = page_of(tmp_path, metrics, chosen=[1113])
    chart = (tmp_path / "run" / "report.html").read_text(encoding="utf-8").split("<svg")[1]
    [path] = re.findall(r'stroke="var\(--b\)" stroke-width="2" points="([^"]*)"', chart)
    assert path.split()[-1] == "436.0,14.0"  # the upper right corner
    assert ">1,113</text>" in chart
    assert ">50</text>" not in chart
    assert "chrF, step 1,113: 40" in page.texts
    assert "published: step 1,113" in page.texts


def test_report_without_records_says_what_is_missing(tmp_path):
    texts = page_of(tmp_path, []).texts
    assert "No scores: the run has no record of a validation that translated." in texts
    assert "No loss: the run ended before its first record." in texts
