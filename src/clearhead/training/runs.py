"""Several runs side by side: their data, settings and scores, what differs between them, and a page of their curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.bundle.model_directory import model_directory, read_config
from clearhead.config import Config
from clearhead.config.nested import flat
from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.files import file_sha256, os_error_as, read_json, readable_version, write_text
from clearhead.pages import Html, joined
from clearhead.pages.charts import MOST_CURVES, Curve, line_chart
from clearhead.pages.parts import bullets, folded, paragraph, report_page, table
from clearhead.runtime.lazy import cached_property
from clearhead.training.evaluations import Evaluation, read_evaluations
from clearhead.training.layers import origins
from clearhead.training.log import read_metrics
from clearhead.training.run_directory import is_finished

_FOLDERS_DEEP = 2
"""Levels of directories that are searched for runs below a named one."""
_FIRST_DIGITS = 8
_CLASSES = "stacked texts wrapped"
_NOT_COMPARED = ("out", "golden")
"""Settings that say where a run is, and what its model is checked with, not how it was trained."""


@dataclass(frozen=True)
class RunSummary:
    """Settings, data, scores and log of a run; `problems` are messages about unreadable files."""

    path: Path
    config: Config
    is_finished: bool
    num_pairs: int | None
    """Training pairs; None before the data is prepared."""
    vocabulary: str | None
    """Checksum of `tokenizer.json`; None before it exists, or if it cannot be read."""
    records: Sequence[Mapping[str, Any]]
    """Records of `metrics.jsonl`."""
    published: Mapping[str, Any]
    """The scores in the published model's `info`; empty without a model."""
    evaluations: Sequence[Evaluation]
    """Scores of the published model on test sets."""
    problems: Sequence[str]

    @property
    def steps(self) -> int:
        """Optimiser steps that were recorded."""
        return max((record["step"] for record in self.records), default=0)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings by dotted name."""
        return {name: value for name, value in flat(self.config.model_dump(mode="json")).items() if value is not None}

    @property
    def given(self) -> dict[str, Any]:
        """The settings that the run's commands gave, or that were derived from its corpus."""
        layers = origins(self.config)
        return {name: value for name, value in self.settings.items() if layers[name] == "saved"}

    @property
    def validation(self) -> dict[str, float]:
        """Validation BLEU and chrF of the published model, or else of the last validation; empty without one."""
        if self.published:
            published = {name: self.published.get(f"valid_{name.lower()}") for name in ("BLEU", "chrF")}
            return {name: score for name, score in published.items() if isinstance(score, int | float)}
        last = next((record for record in reversed(self.records) if record["split"] == "valid"), None)
        return {} if last is None else {name: round(last[name.lower()], 2) for name in ("BLEU", "chrF")}

    @property
    def measured_on(self) -> str | None:
        """Identity of the text and settings of the last validation."""
        return next((str(one["measured_on"]) for one in reversed(self.records) if one["split"] == "valid"), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain JSON values."""
        return {
            "run": str(self.path),
            "state": "finished" if self.is_finished else "unfinished",
            "preset": self.config.preset,
            "training_pairs": self.num_pairs,
            "vocabulary_sha256": self.vocabulary,
            "steps": self.steps,
            "validation": self.validation,
            "evaluations": [evaluation.model_dump(mode="json") for evaluation in self.evaluations],
            "settings": self.given,
            "problems": list(self.problems),
        }


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return run directories: those that are named, and those within the folders that are named, sorted.

    Args:
        paths: Run directories, or folders that hold some, also two levels below.

    Raises:
        ConfigError: If a path is no directory, or holds no run.
    """
    runs: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path} is no directory; name a run, or a folder of runs")
        inside = list(_runs_within(path, _FOLDERS_DEEP))
        if not inside:
            raise ConfigError(f"{path} holds no run (a directory with config.toml, as `clearhead train` makes it)")
        for run in inside:
            runs.setdefault(run.resolve(), run)  # links can lead to a run in several ways
    return list(runs.values())


def _runs_within(path: Path, depth: int) -> Iterator[Path]:
    try:
        if is_run := (path / "config.toml").is_file():
            yield path
        is_searched = depth and not is_run
        inside = path.iterdir() if is_searched else ()
        folders = sorted(inner for inner in inside if inner.is_dir() and not inner.name.startswith("."))
    except OSError as error:
        if depth < _FOLDERS_DEEP:
            return  # the folder of another user beside one's own
        raise ConfigError(f"cannot look into {path}: {error.strerror}") from None
    for inner in folders:
        yield from _runs_within(inner, depth - 1)


def read_run(path: Path) -> RunSummary:
    """Read what is recorded of a run, which may be training meanwhile.

    Raises:
        ConfigError: If its `config.toml` cannot be read; everything else that cannot be read is a problem of the run.
    """
    problems: list[str] = []

    def read(what: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return what()
        except ClearheadError as error:
            problems.append(str(error))
            return otherwise

    config = Config.load(path / "config.toml")
    report_file, vocabulary = path / "data" / "report.json", path / "tokenizer.json"
    report = read(lambda: read_json(report_file, DataError), {}) if report_file.exists() else {}
    model = {}
    if (readable_version(path / "model") / "config.json").is_file():
        model = read(lambda: read_config(model_directory(path)), {})
    evaluations, damaged = read(lambda: read_evaluations(path), ([], 0))
    if damaged:
        problems.append(f"evaluations.jsonl: {damaged} damaged lines")
    own = model.get("checksums", {}).get("model.safetensors")
    return RunSummary(
        path=path,
        config=config,
        is_finished=is_finished(path),
        num_pairs=trained["kept"] if isinstance(trained := report.get("train"), dict) and "kept" in trained else None,
        vocabulary=read(lambda: _sha256(vocabulary), None) if vocabulary.exists() else None,
        records=read(lambda: read_metrics(path / "metrics.jsonl"), []),
        published=model.get("info", {}).get("metrics", {}),
        evaluations=[evaluation for evaluation in evaluations if evaluation.model_sha256 == own],
        problems=problems,
    )


def _sha256(path: Path) -> str:
    with os_error_as(DataError, f"cannot read {path}"):
        return file_sha256(path)


def differing_settings(runs: Sequence[RunSummary]) -> dict[str, list[str]]:
    """Return the settings that are not the same in all runs, apart from those of the place: the value in each run."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in _NOT_COMPARED)
    return _different({name: [_plain(run.settings.get(name)) for run in runs] for name in names})


def differences(runs: Sequence[RunSummary]) -> dict[str, list[str]]:
    """Return what is not the same in all runs: for each fact or setting by name, its value in each run."""
    facts = {
        "training pairs": [_count(run.num_pairs) for run in runs],
        "vocabulary": [_vocabulary(run) for run in runs],
        "steps": [_count(run.steps) for run in runs],
        "validated on": [(run.measured_on or "-")[:_FIRST_DIGITS] for run in runs],
    }
    return {**_different(facts), **differing_settings(runs)}


def _different(values: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: of_runs for name, of_runs in values.items() if len(set(of_runs)) > 1}


def not_comparable(runs: Sequence[RunSummary]) -> str | None:
    """Return a warning if the validation scores of runs were not measured on the same text in the same way."""
    if len({run.measured_on for run in runs if run.measured_on}) < 2:
        return None
    return (
        "these runs were validated on different text or with different settings, so their validation scores cannot "
        "be compared; `clearhead evaluate` with one test set can"
    )


def scores_on_test_sets(run: RunSummary) -> list[str]:
    """Return the latest scores of a run on each test set, with their intervals, in words."""
    latest = {tuple(evaluation.files): evaluation for evaluation in run.evaluations}
    return [
        f"{name} {score.score:.2f}{' ({:.2f} to {:.2f})'.format(*score.interval) if score.interval else ''} "
        f"on {', '.join(evaluation.files)}"
        for evaluation in latest.values()
        for name, score in evaluation.scores.items()
    ]


def write_runs_page(path: Path, runs: Sequence[RunSummary]) -> None:
    """Write a page with the scores of runs, their curves over each other, and what differs between them.

    Raises:
        ConfigError: If there are more runs than curves can be told apart.
    """
    if len(runs) > MOST_CURVES:
        raise ConfigError(f"a page shows at most {MOST_CURVES} runs, and these are {len(runs)}; name those to show")
    names = [str(run.path) for run in runs]
    rows = [
        (
            name,
            "finished" if run.is_finished else "unfinished",
            _count(run.num_pairs),
            _count(run.steps),
            *(f"{run.validation[metric]:.2f}" if metric in run.validation else "-" for metric in ("BLEU", "chrF")),
            "; ".join(scores_on_test_sets(run)) or "-",
        )
        for name, run in zip(names, runs, strict=True)
    ]
    heads = ("run", "state", "training pairs", "steps", "validation BLEU", "validation chrF", "test sets")
    kinds = ("row", "text", "number", "number", "number", "number", "text")
    different = [(name, *values) for name, values in differences(runs).items()]
    warnings = [text for text in (not_comparable(runs), *(text for run in runs for text in run.problems)) if text]
    page = report_page(
        "runs.html",
        title="clearhead: runs",
        warnings=bullets(warnings) if warnings else Html(),
        scores=table(kinds, rows, heads=heads, classes=_CLASSES),
        curves=joined(_curves(runs, names, *chart) for chart in _CHARTS),
        more_curves=folded("More curves", joined(_curves(runs, names, *chart) for chart in _MORE_CHARTS)),
        differences=table(kinds[:1] + ("text",) * len(runs), different, heads=("", *names), classes=_CLASSES)
        if different
        else paragraph("Nothing: data, vocabulary, steps and settings are the same."),
    )
    write_text(path, page)


_CHARTS = (("Validation BLEU, greedy", "valid", "bleu"), ("Validation loss per target token (nats)", "valid", "nll"))
_MORE_CHARTS = (
    ("Validation chrF, greedy", "valid", "chrf"),
    ("Training loss per target token (nats)", "train", "nll"),
    ("Learning rate", "train", "lr"),
    ("Target tokens per second", "train", "tokens_per_second"),
)
"""Title, split and name of what a chart shows."""


def _curves(runs: Sequence[RunSummary], names: Sequence[str], title: str, split: str, key: str) -> Html:
    curves: dict[str, Curve] = {
        name: [(one["step"], one[key]) for one in run.records if one["split"] == split and key in one]
        for name, run in zip(names, runs, strict=True)
    }
    return line_chart(title, curves)


def _vocabulary(run: RunSummary) -> str:
    if run.vocabulary is None:
        return "-"
    tokenizer = run.config.tokenizer
    return f"{_count(tokenizer.vocab_size)} {tokenizer.kind} pieces, {run.vocabulary[:_FIRST_DIGITS]}"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _plain(value: Any) -> str:
    if value in (None, [], {}):
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
