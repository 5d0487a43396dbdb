"""The paired bootstrap: equal systems, clear winners, and sacreBLEU's own numbers."""

from __future__ import annotations

import json
from random import Random

import pytest
import sacrebleu
from sacrebleu.significance import Result

from clearhead.errors import DataError
from clearhead.evaluation import compare
from clearhead.evaluation.comparison import _metric_comparison

WORDS = ["the", "a", "dog", "cat", "man", "runs", "sees", "sits", "on", "under", "house", "tree", "big", "small", "red"]


def lines(number: int, seed: int) -> list[str]:
    draw = Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(5, 11))) for _ in range(number)]


def damaged(references: list[str], every: int) -> list[str]:
    """Replace every n-th word."""
    return [
        " ".join("xyz" if place % every == 0 else word for place, word in enumerate(line.split(), start=1))
        for line in references
    ]


@pytest.fixture(scope="module")
def references() -> list[str]:
    return lines(83, seed=3)


def test_identical_systems_do_not_differ(references):
    outputs = damaged(references, every=5)
    comparison = compare(references, outputs, outputs)
    for metric in comparison.metrics.values():
        assert metric.baseline == metric.system
        assert metric.baseline_interval == metric.system_interval
        assert metric.difference == 0.0
        assert metric.p_value == 1.0
        assert not metric.significant


def test_a_clearly_better_system_is_significant_and_the_difference_has_its_sign(references):
    worse, better = damaged(references, every=3), damaged(references, every=7)
    up, down = compare(references, worse, better), compare(references, better, worse)
    for forth, back in zip(up.metrics.values(), down.metrics.values(), strict=True):
        assert forth.difference > 5
        assert forth.p_value < 0.01
        assert forth.significant
        assert back.difference == -forth.difference
        assert (back.baseline, back.system) == (forth.system, forth.baseline)


def test_scores_are_sacrebleus_and_lie_within_their_intervals(references):
    worse, better = damaged(references, every=3), damaged(references, every=7)
    comparison = compare(references, worse, better)
    assert comparison.sentences == 83
    assert comparison.metrics["bleu"].baseline == round(sacrebleu.corpus_bleu(worse, [references]).score, 2)
    assert comparison.metrics["bleu"].system == round(sacrebleu.corpus_bleu(better, [references]).score, 2)
    assert comparison.metrics["chrf"].system == round(sacrebleu.corpus_chrf(better, [references]).score, 2)
    for metric in comparison.metrics.values():
        for score, (low, high) in (
            (metric.baseline, metric.baseline_interval),
            (metric.system, metric.system_interval),
        ):
            assert low < score < high
            assert high - low < 20


def test_a_difference_that_chance_explains_is_not_significant(references):
    draw = Random(11)
    one, other = damaged(references, every=4), damaged(references, every=4)
    for index in draw.sample(range(len(references)), 14):
        better = one if index % 2 else other
        better[index] = references[index]
    comparison = compare(references, one, other)
    assert comparison.metrics["bleu"].difference != 0
    assert comparison.metrics["bleu"].p_value > 0.05
    assert "chance" in "\n".join(comparison.lines())


@pytest.mark.parametrize(("count", "least"), [(1, 1.0), (2, 0.5), (5, 0.0625), (6, 0.03125)])
def test_few_sentences_are_not_significant(count, least):
    """The least p-value of an exact test is 2 / 2 ** n: of all exchanges of n pairs, one each way is as extreme."""
    found = compare(
        [f"the dog number {n}" for n in range(count)], ["x"] * count, [f"the dog number {n}" for n in range(count)]
    )
    for metric in found.metrics.values():
        assert metric.p_value == pytest.approx(least)
        assert metric.significant == (count >= 6)
    assert count >= 6 or "chance may explain it" in "\n".join(found.lines())


def test_sentences_that_both_translate_alike_do_not_count(references):
    outputs = damaged(references, every=5)
    found = compare(references, outputs, [references[0], *outputs[1:]])
    assert not any(metric.significant for metric in found.metrics.values())


def test_a_small_difference_is_decided_by_its_exact_value():
    """Of a million characters ten more are right: below what is shown of a score, and yet a difference."""
    found = (
        Result(score=50.001, p_value=0.04996, mean=50.0, ci=0.1),
        Result(score=50.0, p_value=None, mean=50.0, ci=0.1),
    )
    better = _metric_comparison("chrF", "signature", [found[1], found[0]], 1_000)
    assert (better.baseline, better.system) == (50.0, 50.0)
    assert better.difference == pytest.approx(0.001)
    assert better.significant


def test_the_draws_are_the_same_in_every_call(references):
    worse, better = damaged(references, every=5), damaged(references, every=6)
    assert compare(references, worse, better) == compare(references, worse, better)


def test_the_lines_show_both_scores_the_difference_and_the_signature(references):
    comparison = compare(references, damaged(references, every=3), damaged(references, every=7))
    text = "\n".join(comparison.lines())
    for metric in comparison.metrics.values():
        assert f"{metric.baseline:.2f}" in text
        assert f"{metric.system:.2f}" in text
        assert f"difference +{metric.difference:.2f}, p = {metric.p_value:.4f}, significant" in text
        assert metric.signature in text
    assert "bs:1000" in comparison.metrics["bleu"].signature
    assert "seed:12345" in comparison.metrics["bleu"].signature


def test_a_comparison_is_plain_json(references):
    values = compare(references, references, damaged(references, every=7)).to_dict()
    assert json.loads(json.dumps(values)) == values
    assert values["sentences"] == 83
    assert values["bleu"]["baseline"] == 100.0


def test_outputs_that_do_not_pair_up_are_refused_with_all_numbers():
    with pytest.raises(DataError, match="3 reference lines but 2 translations by the baseline and 3 by the system"):
        compare(["a", "b", "c"], ["a", "b"], ["a", "b", "c"])
    with pytest.raises(DataError, match="no lines"):
        compare([], [], [])


def test_compare_takes_metrics_tokenize_and_lowercase(references):
    upper = [line.upper() for line in references]
    comparison = compare(references, upper, references, metrics=["bleu", "chrf++"], tokenize="char", lowercase=True)
    assert list(comparison.metrics) == ["bleu", "chrf++"]
    assert {metric.baseline for metric in comparison.metrics.values()} == {100.0}
    assert "case:lc" in comparison.metrics["bleu"].signature
    assert "tok:char" in comparison.metrics["bleu"].signature
    assert "nw:2" in comparison.metrics["chrf++"].signature
