"""The reports of a run, a corpus and translations in a real browser: short at first sight, and whole when unfolded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from browsers import serious
from clearhead.config import Config
from clearhead.data.doctor import examine
from clearhead.data.doctor.page import render_page
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.formats import SentencePair
from clearhead.inspection.explanation import Explanation
from clearhead.text.quality_flags import KINDS, Flag
from clearhead.training.report import Answer, Judged, LearnedPair, write_report
from clearhead.training.runs import RunSummary, write_runs_page
from clearhead.translation.report import TranslationReport
from clearhead.translation.result import Translation
from clearhead.translation.test_set import ModelEvaluation
from clearhead.translation.test_sets import JudgedSet, write_table
from every_run import slow

SCREENS = 6 * 844
"""Pixels of six screens of a phone."""
LONG = "Ein sehr langer Satz mit vielen Wörtern. " * 70


def run_report(path: Path) -> None:
    long = [Translation(LONG[: 40 * number], LONG[: 41 * number], -1.0, ()) for number in range(1, 70)]
    flagged = [Translation("a", "b", -1.0, (), warnings=(Flag(kind, LONG[:80]),)) for kind in KINDS]
    weights = np.full((2, 3, 9, 9), 0.5, dtype=np.float32)
    tokens = [f"Wort{number}" for number in range(9)]
    metrics = [
        {
            "split": split,
            "step": 25 * step,
            "nll": 3.0,
            "lr": 0.1,
            "tokens_per_second": 9.0,
            "bleu": 5.0,
            "chrf": step / 2,
        }
        for step in range(1, 80)
        for split in ("train", "valid")
    ]
    write_report(
        path,
        config=Config(),
        answer=Answer("German → English", "probably, by the text", {"BLEU": "1.0"}, [LONG[:300]] * 5, "", [1975]),
        made={"text": LONG},
        metrics=metrics,
        judged=[Judged(one, LONG, 50.0) for one in [*long, *flagged]],
        lengths={"source": np.arange(1, 90), "target": np.arange(1, 90)},
        head=AlignmentHead(1, 0),
        explanations=[Explanation(LONG, LONG, -1.0, tokens, tokens, weights, weights, weights, [])] * 3,
        learned=[LearnedPair(tokens, tokens, [(step, weights) for step in range(9)])] * 3,
        data_lines=[LONG] * 30,
    )


def doctor_report(path: Path) -> None:
    rows = [
        (f"Das ist der Satz {number} mit Wörtern.", f"This is sentence {number} with words.") for number in range(300)
    ]
    wrong = [
        *[("a", "")] * 9,
        *[(LONG[:2_000], LONG[:2_000])] * 9,
        ("Viele GrÃ¼ÃŸe {name} (", "Kind regards 7"),
        (LONG[:2_500], "short"),
        ("&amp; <b>\u200b", "犬 %d"),
    ]
    pairs = [SentencePair(*row, f"a/long/path/to/a/file.tsv:{number}") for number, row in enumerate([*rows, *wrong])]
    path.write_text(render_page(examine(pairs), [LONG] * 9, title="corpus"), encoding="utf-8")


def translation_report(path: Path) -> None:
    report = TranslationReport()
    flags = tuple(Flag(kind, LONG[:60]) for kind in KINDS)
    found = [
        Translation(LONG[: 40 * number], LONG[: 30 * number], -1.0, (), warnings=flags[number % 3 :: 4])
        for number in range(1, 70)
    ]
    report.add([(f"line {number}", one) for number, one in enumerate(found, start=1)], name="a/long/path.txt")
    path.write_text(report.page("path.txt"), encoding="utf-8")


def runs_page(path: Path) -> None:
    def summary(number: int) -> RunSummary:
        metrics = [
            {
                "split": split,
                "step": 25 * step,
                "measured_on": "5a",
                "nll": 3.0 / number,
                "bleu": 5.0,
                "chrf": step / number,
            }
            for step in range(1, 9)
            for split in ("train", "valid")
        ]
        settings = {"data": {"pairs": [f"{LONG[:90]}-{number}.tsv"]}, "train": {"seed": number}}
        return RunSummary(
            path=Path(f"runs/a-long-name-of-a-run-{number}"),
            config=Config.from_dict(settings),
            is_finished=number % 2 == 0,
            num_pairs=10_000 * number,
            vocabulary="5a" * 32,
            records=metrics,
            published={},
            evaluations=[],
            problems=[LONG[:200]] if number == 2 else [],
        )

    write_runs_page(path, [summary(number) for number in range(1, 7)])


def sets_page(path: Path) -> None:
    def judged(number: int, text: str) -> JudgedSet:
        evaluation = ModelEvaluation.of_texts([text, "a dog"], ["two dogs run", "a dog"], intervals=True)
        if text != "one dog":
            evaluation = evaluation.compared_with(judged(number, "one dog").evaluation, ("first", text))
        return JudgedSet(f"a-long-name-of-a-test-set-{number}.tsv", [], f"runs/{text * 4}", evaluation)

    write_table(str(path), [judged(number, text) for number in range(7) for text in ("one dog", "two dogs", "cats")])


REPORTS = {
    "run": run_report,
    "runs": runs_page,
    "doctor": doctor_report,
    "translation": translation_report,
    "test sets": sets_page,
}


@pytest.fixture(params=REPORTS)
def address(request, tmp_path) -> str:
    make: Callable[[Path], None] = REPORTS[request.param]
    path = tmp_path / "report.html"
    make(path)
    return path.as_uri()


@pytest.mark.parametrize(
    ("width", "theme"), [(390, "light"), slow(1280, "dark"), slow(390, "dark"), slow(1280, "light")]
)
def test_a_report_is_short_until_it_is_unfolded_and_no_rule_of_axe_is_broken(browser, address, width, theme):
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=theme)
    page.goto(address)
    height, reach = page.evaluate("[document.documentElement.scrollHeight, document.documentElement.scrollWidth]")
    assert height <= SCREENS
    assert reach == width
    assert serious(Axe().run(page)) == []
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("document.documentElement.scrollHeight") > height
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert serious(Axe().run(page)) == []
    page.close()


def test_all_segments_are_shown_on_request_and_those_of_a_reason_at_once(browser, tmp_path):
    translation_report(tmp_path / "report.html")
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    segments = page.locator(".segment:visible")
    assert segments.count() == 5
    page.get_by_label("Show all 69 segments").check()
    assert segments.count() == 69
    page.get_by_label("Show all 69 segments").uncheck()
    kind = next(iter(KINDS))
    page.locator(f"#only-{kind}").check()
    assert segments.count() == page.locator(f".segment.is-{kind}").count() > 5
    page.close()
