"""The metrics, against sacreBLEU called directly and matches counted by hand."""

from __future__ import annotations

import json

import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from clearhead.errors import ConfigError, DataError
from clearhead.evaluation import bleu, chrf, evaluate, exact_match, judge
from clearhead.tokenizers import Tokenizer

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


def test_a_perfect_translation_scores_exactly_100():
    assert bleu(REFERENCES, REFERENCES).score == 100.0
    assert chrf(REFERENCES, REFERENCES).score == 100.0


def test_hypotheses_and_references_are_not_confused():
    hypotheses, references = ["the the the the"], ["the cat sat on the mat today"]
    assert bleu(hypotheses, references).score == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert bleu(hypotheses, references).score != bleu(references, hypotheses).score


def test_what_is_measured_and_how_can_be_chosen():
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
    assert exact_match(hypotheses, references) == pytest.approx(100 * 3 / 7)


@pytest.mark.parametrize("metric", [bleu, chrf, exact_match])
def test_counts_that_do_not_pair_up_are_refused_with_both_numbers(metric):
    with pytest.raises(DataError, match=r"3 translations but 2 reference lines"):
        metric(["a", "b", "c"], ["a", "b"])
    with pytest.raises(DataError, match="no lines"):
        metric([], [])


def test_an_evaluation_is_the_metrics_of_the_translations(translator, sentences, monkeypatch):
    done: list[int] = []
    # Of an untrained model most pieces are no words; here each is one.
    monkeypatch.setattr(Tokenizer, "decode_batch", lambda _, batch: [" ".join(map(str, ids)) for ids in batch])
    own = [translation.text for translation in translator.translate(sentences)]
    references = [own[0], *(f"{text} a few other words" for text in own[1:])]
    evaluation, translations = evaluate(translator, sentences, references, on_progress=done.append)

    hypotheses = [translation.text for translation in translations]
    assert [translation.source for translation in translations] == sentences
    assert sum(done) == len(sentences)
    assert evaluation.exact_match == 20.0
    assert evaluation.bleu > 0.0
    assert evaluation.bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert evaluation.chrf == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert evaluation.sentences == 5


def test_speed_counts_sentences_and_pieces_over_the_time_of_translation_only(translator, sentences, monkeypatch):
    clock = iter([100.0, 104.0])
    monkeypatch.setattr("clearhead.evaluation.metrics.perf_counter", lambda: next(clock))
    evaluation, translations = evaluate(translator, sentences, sentences)
    num_pieces = sum(len(translation.tokens) for translation in translations)
    assert num_pieces > 5
    assert evaluation.sentences_per_second == 1.25
    assert evaluation.output_tokens_per_second == num_pieces / 4.0


def test_an_evaluation_has_exactly_the_documented_keys(translator, sentences):
    evaluation, _ = evaluate(translator, sentences, sentences)
    values = evaluation.to_dict()
    assert list(values) == [
        "bleu",
        "bleu_signature",
        "chrf",
        "chrf_signature",
        "exact_match",
        "sentences",
        "sentences_per_second",
        "output_tokens_per_second",
    ]
    assert json.loads(json.dumps(values)) == values


def test_decode_settings_reach_the_search(translator, sentences):
    _, translations = evaluate(translator, sentences, sentences, beam_size=1, extra_length=1)
    expected = translator.translate(sentences, beam_size=1, extra_length=1, scores=False)
    assert translations == expected
    assert translations != translator.translate(sentences, scores=False)
    with pytest.raises(ConfigError, match="beam_size"):
        evaluate(translator, sentences, sentences, beam_sizes=1)


def test_an_evaluation_refuses_unequal_and_empty_test_sets_before_translating(translator, sentences, monkeypatch):
    monkeypatch.setattr(type(translator), "translate", lambda *_, **__: pytest.fail("translated for nothing"))
    with pytest.raises(DataError, match="5 source lines but 4 reference lines"):
        evaluate(translator, sentences, sentences[:4])
    with pytest.raises(DataError, match="no lines"):
        evaluate(translator, [], [])
