"""Scores on test sets: `clearhead evaluate` records them in the run, and the run's report shows them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from clearhead.bundle.model_directory import model_directory
from clearhead.errors import ClearheadError, DataError, ModelError
from clearhead.files import open_own, os_error_as, read_json, read_json_lines, read_text, write_text
from clearhead.pages import Html, fill, joined
from clearhead.pages.parts import folded, lines, paragraph, scores, table

EVALUATIONS_FILE = "evaluations.jsonl"
"""Name of the file of a run with its scores on test sets, a JSON object a line, the latest last."""

_MOST_SHOWN = 50
_BEGIN, _END = "<!-- evaluations -->\n", "<!-- end of evaluations -->\n"
_NONE = "No test set yet: the scores of clearhead evaluate are added here."


class _Score(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    score: float
    interval: tuple[float, float] | None = None


class Evaluation(BaseModel):
    """Scores of a model on a test set: a line of the file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    date: str
    files: list[str]
    model_sha256: str
    options: dict[str, Any]
    sentences: int
    scores: dict[str, _Score]


def record_evaluation(
    run: Path,
    *,
    model_sha256: str,
    files: Sequence[str],
    options: Mapping[str, Any],
    sentences: int,
    metrics: Mapping[str, Any],
    notice: Callable[[str], None],
) -> None:
    """Append an evaluation of a run's model to the run, and renew its report.

    Args:
        run: A model's path; if it is not a run directory, nothing happens.
        model_sha256: Checksum of the evaluated weights; a run in progress may have published others since.
        files: Paths of the test set; their names are recorded.
        options: Settings of decoding and of the metrics that differed from the usual ones.
        sentences: Number of lines.
        metrics: Score, interval and signature of each metric, by its title.
        notice: Called if the evaluation cannot be written.
    """
    if not (run / "config.toml").is_file():
        return
    line = {
        "date": time.strftime("%Y-%m-%d"),
        "files": [Path(path).name for path in files],
        "model_sha256": model_sha256,
        "options": dict(options),
        "sentences": sentences,
        "scores": dict(metrics),
    }
    try:
        _append(run / EVALUATIONS_FILE, json.dumps(line))
    except OSError as error:
        notice(f"cannot write {run / EVALUATIONS_FILE}, so these scores are not kept: {error.strerror or error}")
        return
    with suppress(OSError, ValueError, KeyError, ClearheadError):  # there is no report, or it cannot be written
        page = read_text(run / "report.html")
        before, begin, rest = page.partition(_BEGIN)
        _, end, after = rest.partition(_END)
        if begin and end:  # otherwise it is another page
            published = read_json(model_directory(run) / "config.json", ModelError)["checksums"]["model.safetensors"]
            write_text(run / "report.html", before + evaluations(run, published) + after)


def _append(path: Path, line: str) -> None:
    """Append a line to a file, also if its last line was cut off."""
    with open_own(path, os.O_RDWR | os.O_CREAT) as file:
        is_cut = file.seek(0, os.SEEK_END) > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        file.write(b"\n" * is_cut + line.encode() + b"\n")


def evaluations(run: Path, model_sha256: str) -> Html:
    """Return the part of the report: the latest scores of the published model, large, and all scores folded.

    Args:
        run: Run directory.
        model_sha256: Checksum of the published weights.
    """
    try:
        recorded, damaged = read_evaluations(run)
    except DataError as error:
        return fill("training_report_parts.html#evaluations", content=paragraph(str(error)))
    own = [evaluation for evaluation in recorded if evaluation.model_sha256 == model_sha256]
    latest = {
        f"{name}, test: {_names(last)}": f"{score.score:.1f}"
        for last in own[-1:]
        for name, score in last.scores.items()
    }
    parts = [scores(latest) if latest else paragraph(_NONE)]
    if recorded:
        titles = list(dict.fromkeys(name for evaluation in recorded for name in evaluation.scores))
        rows = [
            (
                evaluation.date,
                _names(evaluation),
                f"{evaluation.sentences:,}",
                "published" if evaluation.model_sha256 == model_sha256 else "earlier",
                ", ".join(f"{name} {value}" for name, value in evaluation.options.items()) or "the model's own",
                *(_score(evaluation.scores.get(name)) for name in titles),
            )
            for evaluation in recorded[: -_MOST_SHOWN - 1 : -1]
        ]
        heads = ("date", "test set", "sentences", "model", "settings", *titles)
        kinds = ("text", "text", "number", "text", "text", *("number" for _ in titles))
        more = len(recorded) - len(rows)
        parts.append(
            folded(
                f"Scores on test sets ({len(recorded):,})",
                joined(
                    [
                        table(kinds, rows, heads=heads, classes="stacked texts"),
                        paragraph(f"{more:,} earlier ones are in {EVALUATIONS_FILE}.") if more else Html(),
                    ]
                ),
            )
        )
    if damaged:
        parts.append(paragraph(f"{EVALUATIONS_FILE}: lines that are damaged, and not shown: {damaged:,}."))
    return fill("training_report_parts.html#evaluations", content=joined(parts))


def read_evaluations(run: Path) -> tuple[list[Evaluation], int]:
    """Return the evaluations of a run, and the number of damaged lines.

    Raises:
        DataError: If there is a file of evaluations that cannot be read.
    """
    recorded, damaged = [], 0
    with os_error_as(DataError, f"cannot read {run / EVALUATIONS_FILE}"), suppress(FileNotFoundError):
        for _, value in read_json_lines(run / EVALUATIONS_FILE):
            try:
                recorded.append(Evaluation.model_validate(value))
            except ValidationError:
                damaged += 1
    return recorded, damaged


def _names(evaluation: Evaluation) -> str:
    return ", ".join(evaluation.files)


def _score(score: _Score | None) -> Html:
    if score is None:
        return Html()
    return lines([f"{score.score:.2f}", *(["{:.2f} to {:.2f}".format(*score.interval)] if score.interval else [])])
