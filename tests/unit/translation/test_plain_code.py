"""Plain code: the same results as the fast engines, from the functions that are written to be read."""

from __future__ import annotations

import pytest

import clearhead as ch
from clearhead.config import Sampling
from clearhead.decoding import step
from clearhead.decoding.pytorch import module_engine, plain_engine
from clearhead.errors import ConfigError
from clearhead.translation.terminology import Term, Terms
from clearhead.translation.translator import Translator

COMPILED = {"d_model": 64, "num_heads": 2, "d_ff": 64}
"""A shape that the compiled core supports."""
LINES = ["Ein kleiner Hund rennt über die Wiese.", "", "Zwei Männer.", "%s sitzt auf der Bank, und %d steht."]


@pytest.fixture(scope="module")
def translator(make_bundle):
    return Translator(make_bundle(placeholders=True, decode={"extra_length": 20}, **COMPILED))


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 3, "num_best": 2},
        {"beam_size": 3, "prefix": "On a d"},
        {"sampling": Sampling(seed=3), "num_best": 2},
        {"beam_size": 2, "batch_tokens": 8, "no_repeat_ngram_size": 3},
    ],
)
def test_translations_and_scores_are_those_of_the_fast_engines(translator, settings):
    fast, plain = (translator.translate(LINES, plain=is_plain, **settings) for is_plain in (False, True))
    for one, other in zip(fast, plain, strict=True):
        assert [one.text, *(two.text for two in one.alternatives)] == [
            other.text,
            *(two.text for two in other.alternatives),
        ]
        assert other.score == pytest.approx(one.score, abs=5e-4, rel=1e-5)
    texts = [one.text for one in plain]
    if "sampling" not in settings:
        assert translator.score(LINES, texts, plain=True) == [one.score for one in plain]
    assert translator.score(LINES, texts, plain=True) == pytest.approx(
        translator.score(LINES, texts), abs=5e-4, rel=1e-5
    )


def failing(*_, **__):
    raise RuntimeError("plain code ran")


@pytest.mark.parametrize(
    ("module", "name", "use"),
    [
        (plain_engine, "beam_search", lambda ours, plain: ours.translate(LINES, beam_size=3, plain=plain)),
        (plain_engine, "greedy_search", lambda ours, plain: ours.translate(LINES, beam_size=1, plain=plain)),
        (plain_engine, "draw_tokens", lambda ours, plain: ours.translate(LINES, sampling=Sampling(), plain=plain)),
        (module_engine, "token_log_probs", lambda ours, plain: ours.score(LINES, LINES, plain=plain)),
        (plain_engine, "beam_search", lambda ours, plain: ch.explain(ours, LINES[0], beam_size=3, plain=plain)),
    ],
    ids=["beam", "greedy", "samples", "score", "explain"],
)
def test_plain_code_runs_only_where_it_is_asked_for(translator, monkeypatch, module, name, use):
    monkeypatch.setattr(module, name, failing)
    use(translator, False)
    with pytest.raises(RuntimeError, match="plain code ran"):
        use(translator, True)


def test_a_changed_function_of_the_model_counts(translator, monkeypatch):
    (before,) = translator.score(LINES[:1], ["A dog."], plain=True)
    monkeypatch.setattr(step, "pad_batch", lambda rows, pad_id: failing())
    with pytest.raises(RuntimeError, match="plain code ran"):
        translator.score(LINES[:1], ["A dog."], plain=True)
    assert before < 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"terms": Terms([Term("Hund", ("dog",))])}, "a search for terms has no plain form"),
        ({"beam_size": 3, "num_best": 2, "diversity": 0.5}, "a diverse search has no plain form"),
        ({"plain": 1}, "plain must be True or False"),
    ],
)
def test_requests_without_a_plain_form_are_refused(translator, settings, message):
    with pytest.raises(ConfigError, match=message):
        translator.translate(LINES, **{"plain": True, **settings})


@pytest.mark.parametrize(
    "use", [lambda ours: ours.translate(LINES, plain=True), lambda ours: ch.explain(ours, LINES[0], plain=True)]
)
def test_a_model_whose_forward_alone_was_changed_is_not_searched_by_other_methods(translator, use):
    handle = translator.model.register_forward_hook(lambda module, inputs, output: output.flip(-1))
    with pytest.raises(ConfigError, match="the model's own `forward` was replaced, or has hooks"):
        use(translator)
    handle.remove()
    use(translator)


def test_an_ensemble_has_no_plain_form(make_model_dir):
    path = make_model_dir()
    with pytest.raises(ConfigError, match="an ensemble has no plain form"):
        Translator.load(path, ensemble=[path]).translate(LINES, plain=True)


def test_an_explanation_is_of_the_plain_translation(translator):
    found = ch.explain(translator, LINES[0], beam_size=2, plain=True)
    assert (
        found.translation
        == translator.translate([LINES[0]], beam_size=2, raw=True, split="never", familiar=False)[0].text
    )
