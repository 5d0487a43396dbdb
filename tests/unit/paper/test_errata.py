"""Each erratum's test fails the wrong version and the near misses, and passes the right ones, with the same figures."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
import torch

from clearhead.model import MultiHeadAttention
from clearhead.paper.errata import ERRATA, THEMES, Erratum, report
from clearhead.paper.errata import part as module
from clearhead.paper.errata.erratum import CheckResult, ErratumResult

BY_NUMBER = {erratum.number: erratum for erratum in ERRATA}


def others(field: str) -> list:
    """Return a test case for each near miss (`mutants`) or each other right version (`also_right`)."""
    return [
        pytest.param(erratum.number, name, id=f"{erratum.number}-{name}")
        for erratum in ERRATA
        for name in getattr(erratum, field)
    ]


def computes_the_same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.allclose(one, other, atol=1e-3)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(computes_the_same, one, other))
    return one == other


@cache
def findings(number: int) -> dict[str, CheckResult]:
    """Test every version of an erratum, once for all tests here."""
    erratum = BY_NUMBER[number]
    versions = {"right": erratum.right_version, "wrong": erratum.wrong_version}
    return {name: erratum.test(version) for name, version in (versions | erratum.mutants | erratum.also_right).items()}


@cache
def checked(number: int) -> ErratumResult:
    """Check an erratum, once for several tests."""
    return BY_NUMBER[number].check()


@pytest.mark.parametrize(("number", "name"), others("mutants"))
def test_near_miss_fails(number: int, name: str):
    finding = findings(number)[name]
    assert not finding.holds, finding.figures


@pytest.mark.parametrize(("number", "name"), others("also_right"))
def test_other_right_version_passes(number: int, name: str):
    finding = findings(number)[name]
    assert finding.holds, finding.figures


@pytest.mark.parametrize("erratum", ERRATA, ids=lambda erratum: f"{erratum.number}-{erratum.title}")
class TestErratum:
    def test_wrong_version_fails(self, erratum: Erratum):
        finding = findings(erratum.number)["wrong"]
        assert not finding.holds, finding.figures

    def test_right_version_passes(self, erratum: Erratum):
        finding = findings(erratum.number)["right"]
        assert finding.holds, finding.figures

    def test_right_version_wrong_version_and_near_misses_compute_different_things(self, erratum: Erratum):
        names = ["right", "wrong", *erratum.mutants]
        outputs = {name: findings(erratum.number)[name].output for name in names}
        same = [pair for pair in combinations(names, 2) if computes_the_same(*map(outputs.get, pair))]
        assert same == []

    def test_repeated_checks_give_the_same_figures_and_keep_the_random_state(self, erratum: Erratum):
        first = findings(erratum.number)
        torch.rand(7)  # where torch's own random numbers stand must not matter
        before = torch.get_rng_state()
        again = checked(erratum.number)
        assert torch.equal(torch.get_rng_state(), before)
        assert again.holds
        assert again.evidence == f"wrong: {first['wrong'].figures}; right: {first['right'].figures}"

    def test_evidence_tells_the_versions_apart(self, erratum: Erratum):
        wrong, right = checked(erratum.number).evidence.removeprefix("wrong: ").split("; right: ")
        assert wrong != right

    def test_every_statement_is_there(self, erratum: Erratum):
        names = (*erratum.mutants, *erratum.also_right)
        assert len(set(names)) == len(names)
        for text in (erratum.title, erratum.wrong, erratum.right, erratum.source, erratum.demands, *names):
            assert text == text.strip() != ""
            assert "  " not in text
        assert erratum.wrong != erratum.right

    def test_computed_errata_have_two_mutants(self, erratum: Erratum):
        assert erratum.kind == "quotation" or len(erratum.mutants) >= 2


def test_numbers_count_from_one():
    assert [erratum.number for erratum in ERRATA] == list(range(1, len(ERRATA) + 1))
    assert len({erratum.title for erratum in ERRATA}) == len(ERRATA)


def test_few_errata_rest_on_a_quotation():
    assert [erratum.number for erratum in ERRATA if erratum.kind == "quotation"] == [26, 29, 48, 49, 50]


def test_ignored_queries_pass_the_test_of_the_shape():
    erratum = BY_NUMBER[5]
    q, k, v = torch.randn(5, 8), torch.randn(5, 8), torch.randn(5, 3)
    wrong, right = erratum.wrong_version(q, k, v), erratum.right_version(q, k, v)
    assert wrong.shape == right.shape == (5, 3)
    assert "shape as expected" in erratum.check().evidence.split("; right")[0]
    assert torch.equal(erratum.wrong_version(-q, 3 * k, v), wrong)
    assert not torch.allclose(erratum.right_version(-q, 3 * k, v), right)


def test_swapped_cross_attention_passes_the_test_of_the_shape():
    wrong, right = BY_NUMBER[22].check().evidence.split("; right")
    assert "shape as expected" in wrong
    assert "shape as expected" in right


@pytest.mark.parametrize("number", [20, 21])
def test_a_decoder_that_does_not_hide_the_future_is_caught(monkeypatch, number):
    attend = MultiHeadAttention.attend
    monkeypatch.setattr(
        MultiHeadAttention, "attend", lambda *args, is_causal=False, **options: attend(*args, **options)
    )
    assert not BY_NUMBER[number].check().right_passes


def test_without_the_norm_the_residual_sum_lets_gradients_pass_but_errors_grow():
    finding = BY_NUMBER[44].test(lambda residual, x, update: x + update)
    assert not finding.holds
    gradient, grown, bare = map(float, re.findall(r"\d+\.\d+", finding.figures.split(";")[0]))
    assert 0.1 < gradient < 10
    assert 2 < grown == bare
    assert f"by sums without a norm: {bare}" in BY_NUMBER[44].check().evidence


def test_without_projections_words_of_equal_length_alone_look_at_themselves_most():
    def weigh(x):
        return BY_NUMBER[14].wrong_version(x, None, None)

    x = torch.nn.functional.normalize(torch.randn(7, 5), dim=1)
    assert weigh(3 * x).argmax(dim=1).tolist() == list(range(7))
    longer = weigh(torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.0, 1.0]]))
    assert longer[0].argmax() == 1  # the longer word draws the attention of the shorter
    assert "among words of equal length each would give itself the largest weight" in BY_NUMBER[14].right


def test_a_check_that_cannot_tell_the_versions_apart_is_reported():
    erratum = BY_NUMBER[6]
    no_near_miss = next(iter(erratum.mutants))
    erratum = replace(erratum, mutants={no_near_miss: erratum.mutants[no_near_miss]}, also_right={})
    both_right = replace(erratum, wrong_version=erratum.right_version)
    both_wrong = replace(erratum, right_version=erratum.wrong_version)
    missed = replace(erratum, mutants={no_near_miss: erratum.right_version})
    refused = replace(erratum, also_right={"no variant": erratum.wrong_version})
    assert both_right.check().right_passes
    assert not both_right.check().wrong_fails
    assert both_wrong.check().wrong_fails
    assert not both_wrong.check().right_passes
    assert missed.check().missed == (no_near_miss,)
    assert refused.check().refused == ("no variant",)
    assert not missed.check().holds
    assert not refused.check().holds
    text = report((each, each.check()) for each in (erratum, both_right, both_wrong, missed, refused))
    assert text.count("the wrong version fails, the right one passes") == 1
    assert "DOES NOT HOLD: the wrong version passes\n" in text
    assert "DOES NOT HOLD: the right version fails\n" in text
    assert f"DOES NOT HOLD: {no_near_miss} passes\n" in text
    assert "DOES NOT HOLD: no variant fails\n" in text
    assert text.endswith(
        "\n3 of 5 tests fail the wrong version and pass the right one.\n"
        "They fail 4 of 5 near misses and pass 0 of 1 other right versions.\n"
    )


def test_report_gives_every_erratum_with_figures_and_verdict():
    text = report((erratum, checked(erratum.number)) for erratum in ERRATA)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 116
    assert [int(found) for found in re.findall(r"^ ?(\d+)\. ", text, re.MULTILINE)] == list(BY_NUMBER)
    assert "DOES NOT HOLD" not in text
    assert lines[-2] == f"{len(ERRATA)} of {len(ERRATA)} tests fail the wrong version and pass the right one."
    wrong, right = len(others("mutants")), len(others("also_right"))
    assert lines[-1] == f"They fail {wrong} of {wrong} near misses and pass {right} of {right} other right versions."
    unwrapped = " ".join(text.split())
    for erratum in ERRATA:
        for statement in (erratum.wrong, erratum.right, checked(erratum.number).evidence):
            assert statement in unwrapped


def test_every_check_runs_once(monkeypatch):
    runs = []
    counted = replace(BY_NUMBER[6], test=lambda version: runs.append(version) or BY_NUMBER[6].test(version))
    monkeypatch.setattr(module, "ERRATA", (counted,))
    part = module.errata_part()
    assert part.failures == []
    assert "1 of 1 tests fail the wrong version and pass the right one.\n" in part.text
    others = [*counted.mutants.values(), *counted.also_right.values()]
    assert runs == [counted.wrong_version, counted.right_version, *others]


def test_page_gives_every_erratum_below_its_theme():
    page = (Path(__file__).parents[3] / "docs" / "errata.md").read_text()  # fresh: tests/docs/test_generated_pages.py
    headings = re.findall(r"^##+ (.*)$", page, re.MULTILINE)
    expected = []
    for theme, errata in THEMES.items():
        expected.append(theme)
        expected += [
            f"{erratum.number}. {erratum.title}" + (" (quotation)" if erratum.kind == "quotation" else "")
            for erratum in errata
        ]
    assert headings == expected
    assert page.count("- **Found.** wrong: ") == len(ERRATA)
    assert "clearhead paper errata" in page
