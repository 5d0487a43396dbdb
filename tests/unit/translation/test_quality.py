"""The quality estimate: numbers worked out by hand, and the calibration against a second implementation."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained_text import counted

from clearhead.bundle import load_bundle
from clearhead.bundle.side_files import QUALITY_FILE, add_side_files
from clearhead.errors import ConfigError, ModelError
from clearhead.files import write_json
from clearhead.translation.quality import Calibration, QualityEstimator, calibration_of, save_calibration
from clearhead.translation.result import Translation, join_translations
from clearhead.translation.translator import Translator

PLAIN = QualityEstimator(Calibration(2.0, -1.0), None)


def test_sureness_is_score_per_character_less_a_penalty_for_short_text():
    # 9 characters and the end: -8 / 10 = -0.8 nats each; 0.2 more is 1, whose logarithm is 0.
    assert PLAIN.sureness("a" * 9, "b" * 9, -8.0) == pytest.approx(0.0)
    assert PLAIN("a" * 9, "b" * 9, -8.0) == pytest.approx(1 / (1 + math.e))
    # 20 + 20 characters for 60 + 20: half as long as usual, of which 0.4 counts.
    assert PLAIN.sureness("a" * 60, "b" * 20, -16.8) == pytest.approx(-0.4 * math.log(2))
    # A longer one is not better.
    assert PLAIN.sureness("a" * 9, "b" * 99, -80.0) == pytest.approx(0.0)
    assert PLAIN.sureness("", "", 0.0) == pytest.approx(-math.log(0.2))
    assert PLAIN("a", "b", -math.inf) < 1e-300


def test_short_is_what_is_shorter_than_in_the_training_text():
    statistics = counted([("a" * 30, "b" * 80)] * 3, "de")  # (80 + 20) / (30 + 20)
    twice_as_long = QualityEstimator(Calibration(), statistics)
    ratio = twice_as_long.sureness("a" * 30, "b" * 80, 0.0), twice_as_long.sureness("a" * 30, "b" * 30, 0.0)
    assert ratio == pytest.approx((-math.log(0.2), -math.log(0.2) - 0.4 * math.log(2)), abs=0.01)


@given(st.floats(-1e4, 0), st.floats(-1e4, 0), st.text(max_size=9), st.text(max_size=9))
def test_quality_is_between_0_and_1_and_rises_with_the_score(one, other, source, text):
    low, high = sorted([one, other])
    assert 0.0 <= PLAIN(source, text, low) <= PLAIN(source, text, high) <= 1.0


def test_a_calibration_is_the_best_of_all_near_it():
    rng = np.random.default_rng(1)
    sure = rng.normal(1.0, 0.5, 4_000)
    chrfs = np.where(rng.random(4_000) < 1 / (1 + np.exp(-(3 * sure - 2))), 80.0, 20.0)

    def loss(slope, offset):
        rates = np.array([Calibration(slope, offset).quality(one) for one in sure])
        right = np.where(chrfs >= 50, rates, 1 - rates)
        prior = (slope - Calibration().slope) ** 2 + (offset - Calibration().offset) ** 2
        return prior / 2 - np.log(right).sum()

    found = Calibration.fitted(list(sure), list(chrfs))
    assert found == pytest.approx((3.0, -2.0), abs=0.3)
    assert all(
        loss(*found) < loss(found[0] + a, found[1] + b) for a in (-0.05, 0, 0.05) for b in (-0.05, 0, 0.05) if a or b
    )


def test_without_translations_or_with_one_kind_alone_a_calibration_is_near_the_default():
    assert Calibration.fitted([], []) == Calibration()
    only_good = Calibration.fitted([1.0] * 50, [90.0] * 50)
    assert Calibration().quality(1.0) < only_good.quality(1.0) < 1.0
    assert Calibration.fitted([0.0] * 500 + [2.0] * 500, [90.0] * 500 + [0.0] * 500).slope == 0.1  # the order stays


def test_the_quality_of_a_line_is_that_of_its_sentences_by_length():
    sentences = [Translation(source, "x", -1.0, (), quality=own) for source, own in (("aa", 0.5), ("aaaaaa", 0.9))]
    unscored = Translation("42", "42", None, ())
    assert join_translations("s", [*sentences, unscored], ["", ""]).quality == pytest.approx((2 * 0.5 + 6 * 0.9) / 8)
    assert join_translations("s", [unscored], []).quality is None


def test_is_below_compares_quality_and_left_out_blanks_the_text():
    one = Translation("a", "b", -1.0, ("b",), quality=0.5, alignment=((0, 0),))
    assert (one.is_below(0.5), one.is_below(0.51), replace(one, quality=None).is_below(1.0)) == (False, True, False)
    assert one.left_out() == Translation("a", "", None, (), quality=0.5, alignment=())


def test_a_translation_has_its_quality_if_that_is_asked_for(make_model_dir):
    translator = Translator.load(make_model_dir())
    lines = ["ja", "12345", ""]
    found = translator.translate(lines, quality=True, scores=False)
    estimator = QualityEstimator.of(translator.bundle)
    assert found[0].quality == estimator("ja", found[0].text, found[0].score)
    assert [one.quality for one in found[1:]] == [None, None]
    assert [one.quality for one in translator.translate(lines)] == [None] * 3
    with pytest.raises(ConfigError, match="quality must be True or False"):
        translator.translate(lines, quality="yes")


def test_without_being_asked_for_it_costs_no_scores_and_damage_is_no_error(make_model_dir, monkeypatch):
    path = make_model_dir()
    add_side_files(path, {QUALITY_FILE: lambda file, _: write_json(file, {})}, load_bundle(path).identity())
    monkeypatch.setattr(QualityEstimator, "sureness", lambda *_: pytest.fail("estimated"))
    translator = Translator.load(path)
    assert translator.translate(["ja"], scores=False)[0].score is None
    with pytest.raises(ModelError, match=r"quality\.json is damaged"):
        translator.translate([], quality=True)


def test_a_model_has_its_own_calibration(make_model_dir):
    path = make_model_dir()
    bundle = load_bundle(path)
    assert calibration_of(bundle) is None
    own = {QUALITY_FILE: partial(save_calibration, calibration=Calibration(3.0, -2.5))}
    add_side_files(path, own, bundle.identity())
    assert calibration_of(load_bundle(path)) == Calibration(3.0, -2.5)
    values = json.loads((path / "quality.json").read_text())
    damaged = {"slope": 0}, {"slope": "3"}, {"slope": True}, {"slope": 1e99}, {"offset": None}, {"offset": 10**400}
    for change in damaged:
        wrong = {**values, **change}
        add_side_files(path, {QUALITY_FILE: lambda file, _, of=wrong: write_json(file, of)}, bundle.identity())
        with pytest.raises(ModelError, match="slope and offset must be numbers"):
            calibration_of(load_bundle(path))
