"""Golden english_sentences: what is picked, and that a changed model is told from rounding noise."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from clearhead.bundle import load_bundle, read_golden, save_bundle
from clearhead.tokenizers import Tokenizer
from clearhead.translation.golden import check_golden, make_golden, vocabulary_sources
from clearhead.translation.translator import Translator


def test_golden_sentences_are_the_models_own_translations(english_translator, english_sentences):
    golden = make_golden(english_translator, english_sentences[:3])
    assert len(golden) == 3
    for sentence, translation in zip(
        golden, english_translator.translate([sentence["source"] for sentence in golden]), strict=True
    ):
        assert set(sentence) == {"source", "text", "score"}
        assert sentence["text"] == translation.text
        assert sentence["score"] == translation.score


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_golden_sentences_are_translated_in_float32_which_every_engine_computes_alike(
    make_bundle, english_sentences, precision
):
    bundle = make_bundle(d_model=64, num_heads=2, d_ff=64)
    golden = make_golden(Translator(bundle), english_sentences[:6])
    rounded = Translator(replace(bundle, decode=bundle.decode.with_changes({"precision": precision})))
    asked = []
    translate = rounded.translate
    rounded.translate = lambda *lines, **given: asked.append(given["precision"]) or translate(*lines, **given)
    assert make_golden(rounded, english_sentences[:6]) == golden
    assert check_golden(rounded, golden) == []
    assert make_golden(rounded)
    assert asked == ["fp32"] * 3


def test_blank_and_repeated_sentences_are_passed_over(english_translator, english_sentences):
    first, second, third = english_sentences[:3]
    sources = ["", first, "  \t", second, first, second, third]
    assert [sentence["source"] for sentence in make_golden(english_translator, sources)] == [first, second, third]


def test_vocabulary_sources_are_words_of_the_vocabulary():
    text = [f"{a}{b}{c} {b}{a}{c}" for a in ("ka", "lo") for b in ("mi", "ne", "tu") for c in ("sun", "rot", "fel")]
    tokenizer = Tokenizer.train(text * 3, vocab_size=400)
    words = {piece.strip() for piece in tokenizer.pieces(range(tokenizer.vocab_size)) if piece.startswith(" ")}
    sources = vocabulary_sources(tokenizer, 6, is_tagged=True)
    assert len(sources) == 6
    assert all(len(source.split()) == 4 and words.issuperset(source.split()) for source in sources)


def test_without_sentences_translations_of_words_are_golden(english_translator):
    golden = make_golden(english_translator)
    assert len(golden) == 8
    assert check_golden(english_translator, golden) == []


def test_without_sentences_the_surest_ended_translations_are_golden(english_translator):
    asked = []

    def translate(sources, **_):
        asked.extend(sources)
        return [
            SimpleNamespace(
                source=source,
                text=f"text {number}",
                score=-float(5 * number % 12),
                tokens=["piece"] * (number % 3),
                output_truncated=number % 4 == 1,
            )
            for number, source in enumerate(sources)
        ]

    golden = make_golden(SimpleNamespace(bundle=english_translator.bundle, translate=translate))
    # -score / (tokens + 1) of those that ended: 0, 10/3, 3, 4, 6, 11/2, 4/3, 1, 7/3 for 0, 2, 3, 4, 6, 7, 8, 10, 11
    assert [asked.index(one["source"]) for one in golden] == [0, 10, 8, 11, 3, 2, 4, 7]


def test_a_model_with_tags_is_asked_for_each_of_its_languages(make_bundle):
    tokenizer = make_bundle(language_tags=("de", "fr")).tokenizer
    tagged = vocabulary_sources(tokenizer, 4, is_tagged=True)
    assert [source[:6] for source in tagged] == ["<2de> ", "<2fr> "] * (len(tagged) // 2)
    assert vocabulary_sources(tokenizer, 4, is_tagged=False) == [source[6:] for source in tagged]


def test_a_vocabulary_without_words_makes_sources_too():
    tokenizer = Tokenizer.train(["あいうえお" * 9], vocab_size=270)
    assert all(vocabulary_sources(tokenizer, 5, is_tagged=True))


def test_no_sentences_give_no_golden_ones(english_translator):
    assert make_golden(english_translator, ["", " "]) == []
    assert check_golden(english_translator, []) == []


def test_an_unchanged_model_has_no_problems_also_after_a_round_trip(english_translator, english_sentences, tmp_path):
    golden = make_golden(english_translator, english_sentences)
    save_bundle(tmp_path / "model", english_translator.bundle, golden=golden)
    again = Translator(load_bundle(tmp_path / "model"))
    assert check_golden(again, read_golden(tmp_path / "model")) == []


def test_a_changed_text_is_named_with_both_readings(english_translator, english_sentences):
    golden = make_golden(english_translator, english_sentences)
    now = golden[1]["text"]
    golden[1]["text"] = "something else"
    (problem,) = check_golden(english_translator, golden)
    assert "golden sentence 2" in problem
    assert repr(english_sentences[1]) in problem
    assert "'something else'" in problem
    assert repr(now) in problem


@pytest.mark.parametrize("change", [lambda score: score + 0.1, lambda score: score * 1.01, lambda score: math.nan])
def test_a_changed_score_is_named_with_both_numbers(english_translator, english_sentences, change):
    golden = make_golden(english_translator, english_sentences)
    was = golden[3]["score"]
    golden[3]["score"] = change(was)
    (problem,) = check_golden(english_translator, golden)
    assert "golden sentence 4" in problem
    assert f"{golden[3]['score']:.4f}" in problem
    assert f"{was:.4f}" in problem


def test_check_golden_allows_rounding_noise_in_scores(english_translator, english_sentences):
    golden = make_golden(english_translator, english_sentences)
    for sentence in golden:
        sentence["score"] += 0.0009
    assert check_golden(english_translator, golden) == []


def test_check_golden_reports_every_sentence_if_weights_change(english_translator, english_sentences):
    golden = make_golden(english_translator, english_sentences)
    with torch.no_grad():
        english_translator.bundle.model.source_embedding.weight.mul_(1.1)
    assert len(check_golden(english_translator, golden)) == len(english_sentences)


@pytest.mark.parametrize("broken", [{}, {"source": "a", "text": 3, "score": 0.0}, {"source": "a", "text": "b"}, "a"])
def test_a_damaged_golden_sentence_is_named_and_the_others_still_checked(english_translator, english_sentences, broken):
    golden = make_golden(english_translator, english_sentences)
    golden[2]["text"] = "something else"
    problems = check_golden(english_translator, [golden[0], broken, golden[2]])
    assert [problem[:17] for problem in problems] == ["golden sentence 2", "golden sentence 3"]
    assert "damaged" in problems[0]


def test_a_golden_sentence_that_names_no_language_is_named(make_bundle, english_sentences):
    tagged = Translator(make_bundle(language_tags=("de",)))
    golden = make_golden(tagged, [f"<2de> {english_sentences[0]}", f"<2de> {english_sentences[1]}"])
    golden[1]["source"] = english_sentences[1]
    (problem,) = check_golden(tagged, golden)
    assert problem.startswith("golden.jsonl, line 2: into which language?")
