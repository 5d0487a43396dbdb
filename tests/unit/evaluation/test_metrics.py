"""The metrics, against sacreBLEU called directly and matches counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from clearhead.errors import DataError
from clearhead.evaluation import bleu, chrf, compare, exact_match, judge
from clearhead.evaluation.metrics import sentence_chrf

HYPOTHESES = ["The cat sat on the mat.", "It is raining, again", "Two dogs run", "", "Good morning!"]
REFERENCES = ["The cat sat on a mat.", "It is raining again.", "Two dogs run", "A hush", "Good evening to you!"]


def test_bleu_is_sacrebleus_corpus_bleu():
    ours = bleu(HYPOTHESES, REFERENCES)
    assert ours.score == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score, abs=1e-12)
    assert 5 < ours.score < 95  # neither floor nor ceiling, where everything agrees
    metric = BLEU()
    metric.corpus_score(HYPOTHESES, [REFERENCES])
    assert ours.name == "BLEU"
    assert ours.signature == str(metric.get_signature())
    assert "nrefs:1" in ours.signature
    assert f"version:{sacrebleu.__version__}" in ours.signature


def test_chrf_is_sacrebleus_corpus_chrf():
    ours = chrf(HYPOTHESES, REFERENCES)
    assert ours.score == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score, abs=1e-12)
    assert 5 < ours.score < 95
    metric = CHRF()
    metric.corpus_score(HYPOTHESES, [REFERENCES])
    assert ours.name == "chrF2"
    assert ours.signature == str(metric.get_signature())


def test_an_interval_is_of_resampled_test_sets_and_changes_neither_score_nor_signature():
    found = judge(HYPOTHESES, REFERENCES, intervals=True)
    plain = judge(HYPOTHESES, REFERENCES)
    resampled = [int(line) for line in np.random.default_rng(12345).choice(5, size=(1_000, 5)).ravel()]
    for name in ("bleu", "chrf"):
        scores = np.sort(
            [
                judge([HYPOTHESES[i] for i in drawn], [REFERENCES[i] for i in drawn]).metrics[name].score
                for drawn in np.reshape(resampled, (1_000, 5))
            ]
        )
        middle, half = scores.mean(), (scores[-26] - scores[25]) / 2  # 25 of 1,000 on either side are left out
        assert found.metrics[name].interval == pytest.approx((middle - half, middle + half), abs=0.01)
        assert found.metrics[name].score == plain.metrics[name].score
        assert found.metrics[name].signature == plain.metrics[name].signature
        assert plain.metrics[name].interval is None
    assert found.to_dict()["bleu_interval"] == list(found.metrics["bleu"].interval)


def test_judge_has_no_interval_above_most_drawn(monkeypatch):
    monkeypatch.setattr("clearhead.evaluation.metrics._MOST_DRAWN", 5 * 99)
    assert judge(HYPOTHESES, REFERENCES, intervals=True).metrics["bleu"].interval is None
    monkeypatch.setattr("clearhead.evaluation.metrics._MOST_DRAWN", 5 * 100)
    assert judge(HYPOTHESES, REFERENCES, intervals=True).metrics["bleu"].interval is not None


def test_canonically_equivalent_texts_are_equal():
    composed, decomposed = ["für große Männer und Söhne"], ["fu\u0308r große Ma\u0308nner und So\u0308hne"]
    for metric in judge(decomposed, composed, metrics=("bleu", "chrf", "chrf++"), intervals=True).metrics.values():
        assert metric.score == 100.0
    assert sentence_chrf(decomposed, composed) == [100.0]
    assert compare(decomposed, composed, decomposed).metrics["bleu"].difference == 0


def test_a_perfect_translation_scores_exactly_100():
    assert bleu(REFERENCES, REFERENCES).score == 100.0
    assert chrf(REFERENCES, REFERENCES).score == 100.0


def test_hypotheses_and_references_are_not_confused():
    hypotheses, references = ["the the the the"], ["the cat sat on the mat today"]
    assert bleu(hypotheses, references).score == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert bleu(hypotheses, references).score != bleu(references, hypotheses).score


def test_judge_takes_metrics_tokenize_and_lowercase():
    lower, upper = ["das haus"] * 2, ["DAS HAUS"] * 2
    found = judge(upper, lower, metrics=["chrf++", "bleu"], tokenize="char", lowercase=True)
    assert list(found.to_dict()) == ["chrf++", "chrf++_signature", "bleu", "bleu_signature", "exact_match", "sentences"]
    assert (found.metrics["chrf++"].score, found.bleu, found.exact_match) == (100.0, 100.0, 0.0)
    assert "case:lc" in found.metrics["bleu"].signature
    assert "tok:char" in found.metrics["bleu"].signature
    assert "nw:2" in found.metrics["chrf++"].signature
    assert judge(upper, lower).bleu == 0.0


def test_a_script_without_spaces_is_not_one_word_a_line():
    references = ["私は猫が好きです。", "彼は東京へ行った。"]
    hypotheses = ["私は犬が好きです。", "彼は東京へ行く。"]
    assert sacrebleu.corpus_bleu(hypotheses, [references]).score < 10.0
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="char")
    found = bleu(hypotheses, references)
    if "tok:char" in found.signature:  # no MeCab is installed
        assert found.score == pytest.approx(expected.score)
    assert found.score > 30.0


def test_exact_match_is_letter_for_letter():
    references = ["3. Mai", "4 €", "ja", "nein", "é", "x", "y"]
    hypotheses = ["3. Mai", "4 €", "Ja", "nein ", "e\u0301", "x", "z"]
    assert exact_match(hypotheses, references) == pytest.approx(100 * 4 / 7)  # `é` of two characters is `é`


@pytest.mark.parametrize("metric", [bleu, chrf, exact_match])
def test_counts_that_do_not_pair_up_are_refused_with_both_numbers(metric):
    with pytest.raises(DataError, match=r"3 translations but 2 reference lines"):
        metric(["a", "b", "c"], ["a", "b"])
    with pytest.raises(DataError, match="no lines"):
        metric([], [])
