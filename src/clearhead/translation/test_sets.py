"""Models on test sets in one table: as text, JSON values, CSV and a page."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clearhead.files import open_output
from clearhead.pages.parts import bullets, lines, report_page, table
from clearhead.translation.test_set import TITLES, ModelEvaluation, aligned

_FIRST_SHOWN = 15
"""Rows of the page that are not folded."""


class JudgedSet(NamedTuple):
    """A model on a test set."""

    name: str
    """Name of the test set."""
    files: Sequence[str]
    model: str
    evaluation: ModelEvaluation
    """Compared with the first model (`compared_with`), except that model's own."""


class Score(NamedTuple):
    """A row of the CSV: a metric of a model on a test set, with its difference to the first model."""

    test_set: str
    sentences: int
    metric: str
    model: str
    score: float
    low: float | None
    """Lower end of the 95 percent confidence interval, and below its upper end; None for too many sentences."""
    high: float | None
    difference: float | None
    """None for the first model, like the next two."""
    p_value: float | None
    significant: bool | None
    signature: str

    def words(self) -> tuple[str, str, str, str]:
        """Return score, interval, difference and whether chance may explain it, as text."""
        interval = "" if self.low is None else f"{self.low:.2f} to {self.high:.2f}"
        if self.difference is None:
            return f"{self.score:.2f}", interval, "", ""
        doubt = f"p = {self.p_value:.4f}, {'' if self.significant else 'not '}significant"
        return f"{self.score:.2f}", interval, f"{self.difference:+.2f}", doubt


def scores_of(judged: JudgedSet) -> Iterator[Score]:
    """Yield the scores of a model on a test set: one for each metric."""
    compared = judged.evaluation.compared
    for name, metric in judged.evaluation.scores.metrics.items():
        low, high = metric.interval or (None, None)
        found = None if compared is None else compared[-1].metrics[name]
        yield Score(
            test_set=judged.name,
            sentences=judged.evaluation.scores.sentences,
            metric=TITLES[name],
            model=judged.model,
            score=round(metric.score, 2),
            low=low,
            high=high,
            difference=None if found is None else round(found.difference, 4),
            p_value=None if found is None else round(found.p_value, 4),
            significant=None if found is None else found.significant,
            signature=metric.signature,
        )


def _sorted_scores(judged: Sequence[JudgedSet]) -> list[Score]:
    """Return all scores by test set and metric, so that those to compare are below each other."""
    scores = [score for one in judged for score in scores_of(one)]
    order = {(score.test_set, score.metric): None for score in scores}
    sets = list(dict.fromkeys(name for name, _ in order))
    metrics = list(dict.fromkeys(metric for _, metric in order))
    return sorted(scores, key=lambda score: (sets.index(score.test_set), metrics.index(score.metric)))


def _remarks(judged: Sequence[JudgedSet]) -> list[str]:
    """Return what the numbers are, and the signature of each metric with the test sets that were measured so."""
    measured: dict[tuple[str, str], dict[str, None]] = {}
    for score in _sorted_scores(judged):
        measured.setdefault((score.metric, score.signature), {})[score.test_set] = None
    signatures = [f"{metric} on {', '.join(sets)}: {signature}" for (metric, signature), sets in measured.items()]
    first, remarks = judged[0].model, ["ranges are 95 % confidence intervals (bootstrap)"]
    if any(one.model != first for one in judged):
        remarks.append(f"differences are to {first} (paired bootstrap); one that is not significant may be chance")
    return [*remarks, *signatures]


def table_lines(judged: Sequence[JudgedSet]) -> list[str]:
    """Return the table as lines for a reader, and remarks below it."""
    heads = ("test set", "sentences", "metric", "model", "score", "95 %", "difference", "")
    rows = [
        (score.test_set, f"{score.sentences:,}", score.metric, score.model, *score.words())
        for score in _sorted_scores(judged)
    ]
    return [*aligned([heads, *rows], numbers=(1, 4, 6)), "", *_remarks(judged)]


def as_values(judged: Sequence[JudgedSet]) -> dict[str, object]:
    """Return the table as JSON values: for each model and test set those of `ModelEvaluation.to_dict`."""
    results: list[dict[str, Any]] = [
        {"set": one.name, "files": list(one.files), "model": one.model, **one.evaluation.to_dict()} for one in judged
    ]
    return {"baseline": judged[0].model, "results": results}


def write_table(path: str, judged: Sequence[JudgedSet]) -> None:
    """Write the table: as CSV if the name of the file ends in `.csv`, otherwise as a page.

    Raises:
        DataError: If the file cannot be written.
    """
    with open_output(path) as file:
        if not path.lower().endswith(".csv"):
            file.write(_page(judged))
            return
        rows = csv.writer(file)
        rows.writerow(Score._fields)
        rows.writerows(_sorted_scores(judged))


def _page(judged: Sequence[JudgedSet]) -> str:
    metrics = [score.metric for score in scores_of(judged[0])]
    sets = list(dict.fromkeys(one.name for one in judged))
    rows = [
        (one.name, f"{one.evaluation.scores.sentences:,}", one.model, *(_cell(score) for score in scores_of(one)))
        for one in sorted(judged, key=lambda one: sets.index(one.name))
    ]
    return report_page(
        "test_sets.html",
        title="clearhead: models on test sets",
        scores=table(
            ("row", "number", "text", *("number" for _ in metrics)),
            rows,
            heads=("test set", "sentences", "model", *metrics),
            classes="stacked texts wrapped",
            shown=_FIRST_SHOWN,
        ),
        remarks=bullets(_remarks(judged)),
    )


def _cell(score: Score) -> str:
    value, interval, *doubt = score.words()
    return lines(filter(None, [value, interval, ", ".join(filter(None, doubt))]))
