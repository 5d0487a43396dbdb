"""What is said of a fine-tuned model beside the one that it started from."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from clearhead.bundle import save_bundle
from clearhead.evaluation import Comparison, MetricComparison
from clearhead.training.outcome import outcome, unchanged
from clearhead.translation.result import Translation

REFERENCES = [f"the {word} number {number}" for number in range(25) for word in ("red", "old", "long", "new")]
RIGHT_IN = {"none": 0, "some": 10, "all": 100}


@pytest.fixture
def told(make_bundle, monkeypatch, tmp_path):
    """Return a function from how many of some references the model before and the one now write to the outcome."""
    bundle = make_bundle()
    save_bundle(tmp_path / "model-before", bundle, card="")

    def write(right, count=100):
        texts = [text if number < right else "x y z" for number, text in enumerate(REFERENCES[:count])]
        return [Translation(source="s", text=text, score=-1.0, tokens=[], warnings=()) for text in texts]

    def tell(before, now, count=100):
        monkeypatch.setattr(
            "clearhead.training.outcome.Translator",
            lambda bundle: SimpleNamespace(translate=lambda sources, raw: write(before, count)),
        )
        return outcome(tmp_path, SimpleNamespace(bundle=bundle), write(now, count), REFERENCES[:count])

    return tell


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (10, 90, "better than before: chrF "),
        (90, 10, "worse than before: chrF "),
        (50, 51, "no clear difference, chance may explain it: chrF "),
        (50, 50, "no clear difference, chance may explain it: chrF "),
    ],
)
def test_a_difference_counts_if_chance_does_not_explain_it(told, before, now, words, tmp_path):
    line = told(before, now)
    assert line.startswith(words)
    assert ", with beam 4, on 100 validation pairs (paired bootstrap: p = " in line
    assert line.endswith(f"; the model before is kept in {tmp_path / 'model-before'}")


def test_a_significant_difference_below_what_is_shown_has_its_sign(told, monkeypatch):
    chrf = MetricComparison("chrF", 50.0, 50.0, 0.001, 0.01, (49.0, 51.0), (49.0, 51.0), "signature")
    monkeypatch.setattr("clearhead.training.outcome.compare", lambda *_, **__: Comparison(100, {"chrf": chrf}))
    assert told(50, 51).startswith("better than before: chrF 50.0 before, 50.0 now")


def test_few_pairs_decide_nothing_however_large_the_difference(told):
    line = told(10, 90, count=99)
    assert line.startswith("undecided, for 99 pairs are too few: chrF ")
    assert line.endswith(": try both, or name more validation text")


def test_a_run_from_random_weights_has_no_outcome(tmp_path):
    assert outcome(tmp_path, None, [Translation("s", "t", -1.0, [], ())], ["t"]) is None


def test_a_damaged_model_before_does_not_keep_a_run_from_its_end(told, tmp_path):
    (tmp_path / "model-before" / "model.safetensors").write_bytes(b"x")
    assert told(10, 90).startswith(f"not compared with the model before: {tmp_path}/model-before/model.safetensors is ")


def test_unchanged_says_that_the_starting_model_was_published():
    line = unchanged([{"chrf": 40.0}, {"chrf": 30.0}, {"chrf": 39.1}])
    assert line.startswith("no better than the model it started from, which is published as it was: chrF 40.0, and at")
    assert "at most 39.1 after training; more text helps, or a lower rate" in line
