"""The model for each text of a request, by its own language where that is certain."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.serving import model_choice
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.model_choice import SURE_PERCENT, choose_each, group_by_choice, translate_each, unchanged
from clearhead.serving.models import Models
from unit.serving.test_models import served

GERMAN = "Zwei Männer sitzen auf einer Bank."
FRENCH = "Deux hommes sont assis sur un banc."
ENGLISH = "Two men are sitting on a bench."


def models_of(*pairs):
    return Models({f"{one}-{other}": served(f"{one}-{other}", [one], [other]) for one, other in pairs})


INTO_ENGLISH = models_of(("de", "en"), ("fr", "en"), ("en", "de"))


def names(models, texts, target, source="auto"):
    return [choice and choice.model.name for choice, _ in choose_each(models, texts, source, target)]


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ([FRENCH, GERMAN, ENGLISH], ["fr-en", "de-en", None]),
        ([FRENCH, "12 + 7"], ["fr-en", "fr-en"]),  # the figures are taken for what the rest is
        (["12 + 7"], ["de-en"]),  # the first model
        (["Hi", ""], ["de-en", "de-en"]),
        ([ENGLISH, "12 + 7"], [None, "de-en"]),  # never unchanged because of the rest
        (["chien"], ["fr-en"]),  # with less than the least confidence, but likelier than the others
    ],
)
def test_a_text_of_uncertain_language_is_translated_from_the_likeliest(texts, wanted):
    assert names(INTO_ENGLISH, texts, "en") == wanted


def test_a_text_in_the_target_language_is_returned_also_where_no_model_reads_that_language():
    texts = [ENGLISH, GERMAN, "Bank", "12 + 7"]
    assert names(models_of(("de", "en")), texts, "en") == [None, "de-en", "de-en", "de-en"]
    assert names(models_of(("de", "en-GB")), texts, "en") == [None, "de-en-GB", "de-en-GB", "de-en-GB"]


def test_uncertain_language_has_its_own_confidence():
    [(_, sure), (_, unsure)] = choose_each(INTO_ENGLISH, [FRENCH, "dog"], "auto", "en")
    assert (sure.language, unsure.language) == ("fr", "fr")
    assert unsure.confidence < SURE_PERCENT < sure.confidence


def test_a_language_that_is_not_translated_into_the_target_is_refused_with_its_text():
    with pytest.raises(HTTPError) as refused:
        choose_each(INTO_ENGLISH, [ENGLISH, GERMAN, FRENCH], "auto", "de")
    assert refused.value.message.startswith(
        "text 3: no model translates fr to de; this server has fr to en, en to de, "
    )
    assert refused.value.message.endswith("(detected: fr, 100 %)")
    # Of uncertain language, it is taken for one that can be translated.
    assert names(INTO_ENGLISH, ["chien"], "de") == ["en-de"]


def test_an_uncertain_text_is_not_returned_where_nothing_translates_into_the_target():
    with pytest.raises(HTTPError, match="no model translates fr to fr"):
        choose_each(models_of(("fr", "en"), ("de", "en")), ["12"], "auto", "fr")


def test_the_texts_of_a_model_are_translated_together_and_all_keep_their_order():
    texts = [FRENCH, GERMAN, ENGLISH, FRENCH]
    chosen = choose_each(INTO_ENGLISH, texts, "auto", "en")
    assert [(choice.source, places) for choice, places in group_by_choice(chosen)] == [("fr", [0, 3]), ("de", [1])]
    asked = []

    def translate(choice, own):
        asked.append(own)
        return [unchanged(f"{choice.source}: {text}") for text in own]

    found = [one.text for one in translate_each(chosen, texts, translate)]
    assert found == [f"fr: {FRENCH}", f"de: {GERMAN}", ENGLISH, f"fr: {FRENCH}"]
    assert asked == [[FRENCH, FRENCH], [GERMAN]]


@pytest.mark.parametrize("number", [20, 40, 80])
def test_each_text_is_examined_once_and_each_language_looked_up_once(monkeypatch, number):
    examined, looked_up = [], []
    detect, leaves_unchanged = model_choice.possible_languages, Models.leaves_unchanged
    monkeypatch.setattr(model_choice, "possible_languages", lambda *given: examined.append(given) or detect(*given))
    monkeypatch.setattr(Models, "leaves_unchanged", lambda *given: looked_up.append(given) or leaves_unchanged(*given))
    choose_each(INTO_ENGLISH, [f"{GERMAN} {at}" for at in range(number)] * 2, "auto", "en")
    assert (len(examined), len(looked_up)) == (number, 1)


def test_the_least_confidence_is_documented():
    page = Path(__file__).parents[3] / "docs" / "serving.md"
    assert f"{SURE_PERCENT:.0f} %" in page.read_text(encoding="utf-8")
