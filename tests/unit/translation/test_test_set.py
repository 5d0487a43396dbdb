"""A test set is translated, timed and compared with its references."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
import sacrebleu

from clearhead.data.store import StoreWriter
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.tokenizers import Tokenizer
from clearhead.translation.test_set import ModelEvaluation, evaluate_model, near_training


def test_an_evaluation_is_the_metrics_of_the_translations(english_translator, english_sentences, monkeypatch):
    done: list[int] = []
    # Of an untrained model most pieces are no words; here each is one.
    monkeypatch.setattr(Tokenizer, "decode_batch", lambda _, batch: [" ".join(map(str, ids)) for ids in batch])
    own = [translation.text for translation in english_translator.translate(english_sentences)]
    references = [own[0], *(f"{text} a few other words" for text in own[1:])]

    @contextmanager
    def stage(what, total):
        stages.append((what, total))
        yield done.append

    stages = []
    found = evaluate_model(english_translator, english_sentences, references, stage=stage)
    evaluation, hypotheses = found.scores, found.texts
    assert stages == [("translating with None", len(english_sentences))]
    assert [translation.text for translation in found.translations] == hypotheses
    assert [translation.source for translation in found.translations] == english_sentences
    assert sum(done) == len(english_sentences)
    assert evaluation.exact_match == 20.0
    assert evaluation.bleu > 0.0
    assert evaluation.bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert evaluation.chrf == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert evaluation.sentences == 5


def test_speed_is_of_the_time_of_translation_alone(english_translator, english_sentences, monkeypatch):
    clock = iter([100.0, 104.0])
    monkeypatch.setattr("clearhead.translation.test_set.perf_counter", lambda: next(clock))
    found = evaluate_model(english_translator, english_sentences, english_sentences)
    num_pieces = sum(len(translation.tokens) for translation in found.translations)
    assert num_pieces > 5
    assert found.scores.sentences_per_second == 1.25
    assert found.scores.output_tokens_per_second == num_pieces / 4.0


def test_an_evaluation_has_exactly_the_documented_keys(english_translator, english_sentences):
    values = evaluate_model(english_translator, english_sentences, english_sentences).to_dict()
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


def test_decode_settings_reach_the_search(english_translator, english_sentences):
    settings = {"beam_size": 1, "extra_length": 1}
    translations = evaluate_model(english_translator, english_sentences, english_sentences, **settings).translations
    expected = english_translator.translate(english_sentences, beam_size=1, extra_length=1, scores=False)
    assert translations == expected
    assert translations != english_translator.translate(english_sentences, scores=False)
    with pytest.raises(ConfigError, match="beam_size"):
        evaluate_model(english_translator, english_sentences, english_sentences, beam_sizes=1)


def test_unequal_and_empty_test_sets_are_refused_before_translating(english_translator, english_sentences, monkeypatch):
    monkeypatch.setattr(type(english_translator), "translate", lambda *_, **__: pytest.fail("translated for nothing"))
    with pytest.raises(DataError, match="5 source lines but 4 reference lines"):
        evaluate_model(english_translator, english_sentences, english_sentences[:4])
    with pytest.raises(DataError, match="no lines"):
        evaluate_model(english_translator, [], [])


def test_impossible_settings_are_refused_before_pairs_are_aligned(english_translator, english_sentences, tmp_path):
    (tmp_path / "gold").write_text("0-0\n" * len(english_sentences))
    asked = {"gold_alignments": str(tmp_path / "gold"), "stage": lambda what, total: pytest.fail(f"{what} for nothing")}
    with pytest.raises(ModelError, match="no shortlist"):
        evaluate_model(english_translator, english_sentences, english_sentences, shortlist=True, **asked)


def test_near_is_a_source_with_half_of_the_words_of_a_training_source(tmp_path):
    assert near_training(tmp_path, ["A dog runs."]) is None  # no prepared data
    (tmp_path / "data").mkdir()
    with StoreWriter(tmp_path / "data" / "train.arrow") as store:
        store.append("A dog runs .", "x", [3, 2], [3, 2])
    lines = ["A dog runs .", "A dog sleeps there", "A dog eats much there", "runs", ""]
    assert near_training(tmp_path, lines) == [True, True, False, False, False]


def test_a_test_set_is_not_compared_with_very_much_training_text(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    with StoreWriter(tmp_path / "data" / "train.arrow") as store:
        for text in "abc":
            store.append(text, "x", [3, 2], [3, 2])
    monkeypatch.setattr("clearhead.translation.test_set.MOST_COMPARED", 2)
    assert near_training(tmp_path, ["a"]) is None


def test_parts_and_differences_are_measured_by_the_same_metrics():
    judging = {"metrics": ("chrf",), "tokenize": None, "lowercase": True}
    references = ["A dog.", "Two cats.", "A man."]
    baseline = ModelEvaluation.of_texts(["x", "y", "z"], references, **judging)
    found = ModelEvaluation.of_texts(["a dog.", "two cats.", "z"], references, **judging)
    assert found.with_parts(None).parts == found.with_parts([]).parts == {}
    parts = found.with_parts([True, True, False]).compared_with(baseline, ("old", "new + newer")).to_dict()
    assert (parts["near_training"]["chrf"], parts["near_training"]["sentences"]) == (100.0, 2)
    assert (parts["far_from_training"]["chrf"], parts["far_from_training"]["sentences"]) == (0.0, 1)
    assert "bleu" not in parts["near_training"]
    assert (parts["comparison"]["baseline"], parts["comparison"]["system"]) == ("old", "new + newer")
    lines = found.with_parts([True] * 3).compared_with(baseline, ("old", "new")).lines()
    assert [line for line in lines if line.startswith(("3 lines like", "old:", "from old to new:"))] == [
        f"3 lines like one of the training text (half of their words or more): chrF {found.scores.chrf:.2f}",
        "old:",
        "from old to new:",
    ]
