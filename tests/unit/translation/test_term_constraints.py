"""Translations with terms: real vocabularies, long lines, placeholders, and what is refused."""

from __future__ import annotations

from itertools import product

import pytest

from clearhead.config import Sampling
from clearhead.errors import ConfigError
from clearhead.text.placeholder_masking import protect
from clearhead.translation.result import TermUse
from clearhead.translation.terminology import Term, Terms, forms_in, term_words
from clearhead.translation.translator import Translator
from clearhead.translation.worker_pool import TranslatorTeam

TERMS = Terms(
    [Term("Hund", ("dog", "small dogs")), Term("Wiese", ("meadow",)), Term("Männer", ("łódź",)), Term("Bank", ("犬",))]
)
LINES = ["Ein kleiner Hund rennt über die Wiese.", "", "Zwei Männer sitzen auf einer Bank.", "Am 3. Mai 2018."]


COMPILED = {"d_model": 64, "num_heads": 2, "d_ff": 64}
"""A shape that the compiled core supports."""
DECODE = {"extra_length": 20, "split": "always"}


@pytest.fixture(scope="module", params=["bpe", "wordpiece"])
def translator(request, make_bundle):
    return Translator(make_bundle(kind=request.param, placeholders=True, decode=DECODE, **COMPILED))


def met(translations):
    return [[use.form for use in one.terms] for one in translations]


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 3, "num_best": 2}, {"prefix": "On a d"}])
def test_every_term_has_a_form(translator, settings):
    found = translator.translate(LINES, terms=TERMS, **settings)
    for line, one in zip(LINES, found, strict=True):
        terms = TERMS.found_in(line)
        assert [use.source for use in one.terms] == [term.text for term in terms]
        for text in [one.text, *(other.text for other in one.alternatives)]:
            assert all(forms_in(terms, text)), text
    assert found[1].text == ""
    scores = translator.score([LINES[0]], [found[0].text])
    assert found[0].score == pytest.approx(scores[0], abs=1e-4)


def test_the_search_and_the_text_tell_alike_which_term_has_a_form(translator):
    # The forms of one term have fewer sequences of tokens than that of the other: digits have no capital.
    terms = Terms([Term("Hund", ("7", "8", "9")), Term("Wiese", ("7", "dog"))])
    encoder = translator.term_encoder
    wanted = encoder.required_terms(terms, protect("Hund Wiese"))
    for length in range(4):
        for words in product(["7", "9", "dog", "on"], repeat=length):
            text = " ".join(words)
            (ids,) = translator.bundle.tokenizer.encode_prefixes([text])
            assert wanted.are_met(text) == (wanted.required.progress(ids).remaining == 0), text


@pytest.mark.parametrize(("source", "is_met"), [("Hund", True), ("Hund /cat/dog", False)])
def test_a_term_is_met_in_a_path_that_is_not_of_the_source(translator, source, is_met):
    wanted = translator.term_encoder.required_terms(Terms([Term("Hund", ("dog",))]), protect(source))
    assert wanted.are_met("/cat/dog runs/") == is_met


def test_unigram_vocabularies_have_terms_as_well(make_bundle):
    found = Translator(make_bundle(kind="unigram", decode=DECODE, **COMPILED)).translate(LINES, terms=TERMS)
    assert list(map(len, met(found))) == [2, 0, 2, 0]
    assert all(form for forms in met(found) for form in forms)


def test_a_term_that_makes_its_sentence_far_less_probable_is_met_at_a_price(translator, monkeypatch):
    terms, free = Terms([Term("Hund", ("dog",))]), translator.translate(["Der Hund"])[0]
    (bound,) = translator.translate(["Der Hund"], terms=terms)
    price = free.score - bound.score
    assert price > 0.1
    monkeypatch.setattr("clearhead.translation.term_constraints.MOST_PRICE", price - 0.01)
    for scores in (True, False):
        (found,) = translator.translate(["Der Hund"], terms=terms, scores=scores)
        assert found.text == bound.text
        assert found.terms == (TermUse("Hund", "dog", met([found])[0][0], "costly", free.text),)
        assert found.problems["terms"] == f"Hund -> {found.terms[0].form} at a price (without it: {free.text})"
    monkeypatch.setattr("clearhead.translation.term_constraints.MOST_PRICE", price + 0.01)
    assert translator.translate(["Der Hund"], terms=terms)[0].terms[0].reason is None


def test_a_term_that_is_there_without_asking_costs_nothing(translator, monkeypatch):
    monkeypatch.setattr("clearhead.translation.term_constraints.MOST_PRICE", -1000.0)
    word = term_words(translator.translate(["Zwei Hund"])[0].text)[0].text
    terms = Terms([Term("Zwei", (word,)), Term("Hund", ("dog",))])
    reasons = [use.reason for use in translator.translate(["Zwei Hund"], terms=terms)[0].terms]
    assert reasons == [None, "costly"]


def test_lines_without_terms_and_with_terms_that_are_met_anyway_stay_as_they_are(translator):
    free = translator.translate(LINES)
    word = term_words(free[0].text)[0].text
    with_terms = translator.translate(LINES, terms=Terms([Term("Hund", (word,)), Term("nie", ("x",))]))
    assert [one.text for one in with_terms] == [one.text for one in free]
    assert with_terms[0].terms == (TermUse("Hund", word, word),)
    assert free[0].terms is None
    assert with_terms[3].terms == ()


def test_terms_fall_on_the_sentence_that_has_them_and_placeholders_stay(translator):
    line = "Ein Hund <b>rennt</b> mit %s weg. Zwei Männer."
    (found,) = translator.translate([line], terms=TERMS)
    assert [[use.source for use in one.terms] for one in found.sentences] == [["Hund"], ["Männer"]]
    assert all(use.form for use in found.terms)
    assert all(found.text.count(one) == 1 for one in ("<b>", "</b>", "%s"))
    text = found.text.lower()
    assert text.index("łódź") > text.index("dog")


def test_progress_tells_of_every_line_once(translator):
    told = []
    translator.translate(LINES, terms=TERMS, on_progress=told.append)
    assert sum(told) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampling": Sampling()}, "cannot be with samples"),
        ({"mbr": 4}, "cannot be with samples"),
        ({"num_best": 2, "diversity": 0.5}, "cannot be with diverse search"),
        ({"terms": "terms.tsv"}, "terms must be a clearhead.Terms, not str"),
    ],
)
def test_terms_with_samples_or_diverse_search_are_rejected(translator, settings, message):
    with pytest.raises(ConfigError, match=message):
        translator.translate([], **{"terms": TERMS, **settings})


def test_a_vocabulary_that_cannot_write_a_form_says_so(translator, monkeypatch):
    monkeypatch.setattr(type(translator.bundle.tokenizer), "is_lossless", False, raising=False)
    monkeypatch.setattr(type(translator.bundle.tokenizer), "decode", lambda *_: "?")
    (found,) = Translator(translator.bundle).translate(["Ein Hund."], terms=TERMS)
    assert found.terms == (TermUse("Hund", "dog", "", "unspellable"),)


@pytest.mark.slow
def test_translator_team_applies_terms(make_model_dir):
    path = make_model_dir()
    alone = Translator.load(path).translate(LINES, terms=TERMS)
    with TranslatorTeam.of(path, 2, device="cpu") as team:
        assert team.translate(LINES, terms=TERMS) == alone
