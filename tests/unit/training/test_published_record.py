"""A model's own record of its quality, and what may be said of other weights beside it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from clearhead.config import Config
from clearhead.data.prepare import open_prepared
from clearhead.files import json_sha256
from clearhead.training.publish import Published, PublishedScores, read_published
from clearhead.training.validation import Validation


@pytest.fixture
def record(finished_run) -> Published:
    found = read_published(finished_run / "model")
    assert found is not None
    return found


@pytest.fixture
def measured(finished_run):
    """Return a function from likelihood loss and chrF to what weights of that run would be measured as."""
    metrics = json.loads((finished_run / "model" / "config.json").read_text(encoding="utf-8"))["info"]["metrics"]

    def make(nll: float, chrf: float) -> Validation:
        return Validation(nll, 0.0, metrics["bleu_signature"], chrf, metrics["chrf_signature"])

    return make


def test_the_record_is_the_one_of_the_directory(finished_run, record):
    metrics = json.loads((finished_run / "model" / "config.json").read_text(encoding="utf-8"))["info"]["metrics"]
    assert record.scores == PublishedScores(metrics["valid_nll"], metrics["valid_chrf"])
    assert f"chrF {metrics['valid_chrf']:.2f}, perplexity {metrics['valid_ppl']:.2f}" in record.words
    assert read_published(finished_run / "checkpoints") is None


@pytest.mark.parametrize(
    ("nll", "chrf", "words"),
    [
        (0.0, 0.01, "better than"),
        (0.0, -0.01, "worse than"),
        (0.0, 0.0, "as good as"),
        (-0.001, 0.0, "better than"),
        (0.001, 0.0, "worse than"),
        (0.001, 0.01, "better than"),
        (0.00001, 0.001, "as good as"),  # below what a record holds
    ],
)
def test_weights_are_ranked_by_chrf_then_by_likelihood(finished_run, record, measured, nll, chrf, words):
    data, config = open_prepared(finished_run / "data"), Config.load(finished_run / "config.toml")
    validation = measured(record.scores.nll + nll, record.scores.chrf + chrf)
    assert record.verdict(validation, data, config) == words


def test_verdict_does_not_compare_scores_of_other_text_or_settings(finished_run, record, measured):
    data, config = open_prepared(finished_run / "data"), Config.load(finished_run / "config.toml")
    best = measured(0.0, 100.0)
    other_text = {**data.report, "checksums": {**data.report["checksums"], "valid.arrow": "0" * 64}}
    other_number = Config.from_dict(
        {**config.model_dump(), "train": {**config.train.model_dump(), "validate_sentences": 3}}
    )
    other_metric = replace(best, chrf_signature="nrefs:1|case:lc")
    other_decode = Config.from_dict(
        {**config.model_dump(), "decode": {**config.decode.model_dump(), "extra_length": 7}}
    )
    for validation, report, settings in (
        (best, data.report, other_decode),
        (best, other_text, config),
        (best, data.report, other_number),
        (other_metric, data.report, config),
    ):
        words = record.verdict(validation, replace(data, report=report), settings)
        assert words == "measured on other validation text than"
    assert Published("damaged").verdict(best, data, config) == "not to be compared with"


@pytest.mark.parametrize(("part", "words"), [("metrics", "its quality is not known"), (None, "it cannot be read: ")])
def test_read_published_without_info_has_no_scores(finished_run, tmp_path, part, words):
    directory = Path(shutil.copytree(finished_run / "model", tmp_path / "model"))
    settings = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    if part is None:
        (directory / "config.json").write_text("{}", encoding="utf-8")
    else:
        del settings["info"][part]
        settings["checksums"] = {**settings["checksums"], "config.json": json_sha256(without_checksums(settings))}
        (directory / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    found = read_published(directory)
    assert found is not None
    assert found.words.startswith(words)
    assert found.scores is None


def without_checksums(settings: dict) -> dict:
    return {name: value for name, value in settings.items() if name != "checksums"}
