"""The page of a run in progress in a real browser: it changes by itself, and what was unfolded stays so."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from browsers import serious
from clearhead.config import Config
from clearhead.serving.watch import watched
from clearhead.training.report import progress_page

VALID = {"split": "valid", "measured_on": "5a", "nll": 2.5, "ppl": 12.2, "bleu": 9.5, "chrf": 31.25, "elapsed": 90.0}
TRAIN = {"split": "train", "nll": 3.0, "lr": 0.1, "tokens_per_second": 9.0, "elapsed": 60.0}


@pytest.fixture
def run(tmp_path) -> Path:
    (tmp_path / "config.toml").write_text(Config.from_dict({"train": {"max_steps": 70}}).to_toml(), encoding="utf-8")
    return tmp_path


def log(run: Path, step: int) -> None:
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**record, "step": step}) + "\n" for record in (TRAIN, VALID))


def size(run: Path) -> int:
    return (run / "metrics.jsonl").stat().st_size if (run / "metrics.jsonl").exists() else 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_of_a_run_in_progress_follows_its_log(browser, run, theme):
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=theme)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    with watched(0, "clearhead: run", lambda: progress_page(run), lambda: size(run)) as address:
        page.goto(address)
        assert page.get_by_role("status").inner_text().startswith("Preparing the text")
        log(run, 25)
        page.get_by_text("Step 25 of 70, 1.5 minutes").wait_for()
        page.get_by_text("More curves").click()
        log(run, 50)
        page.get_by_text("Step 50 of 70").wait_for()
        assert page.get_by_text("Learning rate").first.is_visible()
        assert page.locator("dl.scores dd").all_inner_texts() == ["9.5", "31.2", "12.2"]
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert serious(Axe().run(page)) == []
    page.get_by_text("Training has ended").wait_for()
    assert complaints == []
    page.close()


def test_a_change_between_a_page_and_its_stream_of_changes_is_told_by_the_stream(run):
    with watched(0, "clearhead: run", lambda: progress_page(run), lambda: size(run)) as address:
        assert httpx.get(address).status_code == 200
        log(run, 25)
        with httpx.stream("GET", f"{address}events") as stream:
            assert next(stream.iter_lines()) == "data: changed"
