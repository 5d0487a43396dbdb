"""Runs side by side: what is read of each, what differs, and the page of their curves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from well_formed import Page

from clearhead.errors import ConfigError
from clearhead.files import read_json
from clearhead.pages.charts import MOST_CURVES
from clearhead.training.evaluations import evaluations, record_evaluation
from clearhead.training.log import read_metrics
from clearhead.training.runs import (
    differences,
    find_runs,
    not_comparable,
    read_run,
    scores_on_test_sets,
    write_runs_page,
)


@pytest.fixture
def run(quick_run, tmp_path) -> Path:
    return Path(shutil.copytree(quick_run, tmp_path / "runs" / "one"))


@pytest.fixture
def other(run) -> Path:
    """Return a copy of the run, with another learning rate and one step fewer."""
    other = Path(shutil.copytree(run, run.parent / "deep" / "other"))
    settings = (other / "config.toml").read_text(encoding="utf-8")
    (other / "config.toml").write_text(
        settings.replace("learning_rate = 0.003", "learning_rate = 0.005"), encoding="utf-8"
    )
    log = (other / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in log if json.loads(line)["step"] < 4 or json.loads(line)["split"] == "valid"]
    (other / "metrics.jsonl").write_text("".join(kept).replace('"step": 4', '"step": 3'), encoding="utf-8")
    return other


def evaluate(run: Path, *, model_sha256: str, bleu: float) -> None:
    metrics = {"BLEU": {"score": bleu, "interval": [bleu - 1.5, bleu + 1.25]}}
    options = {"files": ["a/test.de"], "options": {}, "sentences": 7, "notice": pytest.fail}
    record_evaluation(run, model_sha256=model_sha256, metrics=metrics, **options)


def test_runs_are_found_two_folders_below_and_by_name(run, other):
    assert find_runs([run.parent]) == [other, run]
    assert find_runs([run, run.parent]) == [run, other]
    (run.parent / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty holds no run .a directory with config.toml"):
        find_runs([run, run.parent / "empty"])
    with pytest.raises(ConfigError, match=r"metrics\.jsonl is no directory"):
        find_runs([run / "metrics.jsonl"])


def test_links_and_folders_that_cannot_be_read_do_not_hide_or_repeat_runs(run, other, monkeypatch):
    (run.parent / "zz").symlink_to(run.parent)
    locked = run.parent / "locked"
    locked.mkdir()
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if path.parent == locked:
            raise PermissionError(13, "Permission denied")
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    assert find_runs([run.parent]) == [other, run]
    with pytest.raises(ConfigError, match=r"cannot look into .*locked: Permission denied"):
        find_runs([locked])


def test_missing_parts_of_a_report_or_a_model_are_left_out(run, tmp_path):
    model, report = run / "model" / "config.json", run / "data" / "report.json"
    values = read_json(model, ConfigError)
    del values["info"]["metrics"]["valid_bleu"]
    model.write_text(json.dumps(values), encoding="utf-8")
    report.write_text('{"train": []}', encoding="utf-8")
    summary = read_run(run)
    assert (list(summary.validation), summary.num_pairs) == (["chrF"], None)
    write_runs_page(tmp_path / "page.html", [summary])


def test_a_run_has_its_scores_and_the_test_sets_of_its_published_model(run):
    published = read_json(run / "model" / "config.json", ConfigError)
    evaluate(run, model_sha256="of an earlier model", bleu=11.0)
    evaluate(run, model_sha256=published["checksums"]["model.safetensors"], bleu=12.5)
    summary = read_run(run)
    metrics = published["info"]["metrics"]
    assert summary.validation == {"BLEU": metrics["valid_bleu"], "chrF": metrics["valid_chrf"]}
    assert scores_on_test_sets(summary) == ["BLEU 12.50 (11.00 to 13.75) on test.de"]
    assert (summary.is_finished, summary.num_pairs, summary.steps, summary.problems) == (True, 189, 4, [])


def test_a_run_without_a_model_has_the_scores_of_its_last_validation(run):
    shutil.rmtree(run / "model")
    last = next(record for record in read_metrics(run / "metrics.jsonl")[::-1] if record["split"] == "valid")
    summary = read_run(run)
    assert summary.validation == {"BLEU": round(last["bleu"], 2), "chrF": round(last["chrf"], 2)}
    assert not summary.is_finished


def test_unreadable_parts_of_a_run_are_its_problems(run):
    (run / "metrics.jsonl").write_text('damaged\n{"split": "train", "step": 1}\n', encoding="utf-8")
    (run / "data" / "report.json").write_text("{", encoding="utf-8")
    (run / "evaluations.jsonl").write_text("{}\n", encoding="utf-8")
    (run / "tokenizer.json").unlink()
    (run / "tokenizer.json").mkdir()
    report, scores, vocabulary, metrics = read_run(run).problems
    assert "report.json" in report
    assert scores == "evaluations.jsonl: 1 damaged lines"
    assert f"cannot read {run / 'tokenizer.json'}: " in vocabulary
    assert "metrics.jsonl, line 1 is damaged" in metrics


def test_evaluations_that_cannot_be_read_are_a_problem_and_not_absent(run):
    (run / "evaluations.jsonl").mkdir()
    (problem,) = read_run(run).problems
    assert problem.startswith(f"cannot read {run / 'evaluations.jsonl'}: ")
    assert problem in evaluations(run, "of any model")


def test_differences_are_those_of_data_steps_and_settings(run, other):
    runs = [read_run(run), read_run(other)]
    assert differences(runs) == {"steps": ["4", "3"], "train.learning_rate": ["0.003", "0.005"]}
    assert differences([runs[0], runs[0]]) == {}
    assert not_comparable(runs) is None
    (other / "tokenizer.json").write_text("other", encoding="utf-8")
    log = (other / "metrics.jsonl").read_text(encoding="utf-8")
    (other / "metrics.jsonl").write_text(log.replace(runs[0].measured_on, "of other text"), encoding="utf-8")
    runs[1] = read_run(other)
    assert differences(runs)["vocabulary"][1].startswith("300 bpe pieces, ")
    assert differences(runs)["validated on"][1] == "of other"
    assert "validation scores cannot be compared" in not_comparable(runs)


def test_a_page_has_a_curve_of_each_run_and_what_differs(run, other, tmp_path):
    runs = [read_run(run), read_run(other)]
    write_runs_page(tmp_path / "runs.html", runs)
    text = (tmp_path / "runs.html").read_text(encoding="utf-8")
    Page(text)  # well-formed, and loads nothing
    assert text.count(f"{other}, step 3: ") == text.count(f"{run}, step 4: ") == 3
    assert "train.learning_rate" in text
    with pytest.raises(ConfigError, match=f"at most {MOST_CURVES} runs, and these are {MOST_CURVES + 1}"):
        write_runs_page(tmp_path / "many.html", runs[:1] * (MOST_CURVES + 1))
