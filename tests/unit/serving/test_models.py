"""Which model answers: by its languages, wherever they are told, or by its name."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from clearhead.config import DecodeConfig
from clearhead.errors import ConfigError, DataError
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.languages import identifier, languages_of, possible_languages
from clearhead.serving.models import Models, ServedModel, model_sources


def test_model_sources_names_models_by_directory_or_given_name():
    sources = model_sources(["runs/de-en", "runs/fr-en/model", "mine=runs/x"])
    assert [(one.name, one.path) for one in sources] == [
        ("de-en", Path("runs/de-en")),
        ("fr-en", Path("runs/fr-en/model")),
        ("mine", Path("runs/x")),
    ]
    for wrong in ("=x", "x="):
        with pytest.raises(ConfigError, match="names no model"):
            model_sources([wrong])


TRAINED = {"data": {"languages": ["de", "en"]}}


@pytest.mark.parametrize(
    ("name", "settings", "wanted"),
    [
        ("x", {}, ([], [])),
        ("de-en", {}, (["de"], ["en"])),
        ("de-en", {"info": TRAINED, "decode": {"source_lang": "fr"}}, (["de"], ["en"])),
        ("opus-mt", {"info": TRAINED}, (["de"], ["en"])),
        ("x", {"info": TRAINED, "decode": {"source_lang": "nl"}}, (["nl"], ["en"])),
        ("x", {"language_tags": ["de", "fr"]}, (["de", "fr"], ["de", "fr"])),
        ("de-en", {"language_tags": ["de", "fr"], "info": TRAINED}, (["de"], ["de", "fr"])),
        ("x", {"info": {"data": "damaged"}}, ([], [])),
        ("x", {"info": {"data": {"languages": [None, 3]}}}, ([], [])),
    ],
)
def test_languages_of_reads_tags_settings_recorded_languages_and_the_name(make_bundle, name, settings, wanted):
    assert languages_of(make_bundle(**settings), name) == wanted


def served(name, sources, targets):
    return ServedModel(name, SimpleNamespace(), tuple(sources), tuple(targets), None, DecodeConfig())


@pytest.fixture(scope="module")
def models():
    some = [
        served("a", ["de"], ["en"]),
        served("b", ["de", "en", "pt-BR"], ["de", "en", "pt-BR"]),
        served("c", ["fr"], ["fr"]),
        served("unknown", [], ["en"]),
    ]
    return Models({one.name: one for one in some})


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        ("de", "en", ("a", "de", "en")),
        ("DE", "EN", ("a", "de", "en")),
        ("en", "de", ("b", "en", "de")),
        ("pt", "de", ("b", "pt-BR", "de")),
        ("pt_BR", "en", ("b", "pt-BR", "en")),
        ("fr", "fr", ("c", "fr", "fr")),
    ],
)
def test_the_first_model_of_the_languages_is_chosen(models, source, target, wanted):
    model, *languages = models.choose(source, target)
    assert (model.name, *languages) == wanted


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("xx", "de", "no model translates xx to de; this server has en to de, pt-BR to de, de to en, "),
        (
            "de",
            "<script>" * 99,
            "no model translates de to <script><script><script><script><script>; this server has de to ",
        ),
        ("de", "de", "no model translates de to de; this server has de to en, "),
        ("fr", "de", "no model translates fr to de; this server has en to de, pt-BR to de, fr to fr, de to en, "),
    ],
)
def test_languages_that_are_not_served_are_named(models, source, target, message):
    with pytest.raises(HTTPError, match=message) as refused:
        models.choose(source, target)
    assert refused.value.status == 400
    assert len(refused.value.message) < 250


def test_unknown_language_error_lists_a_few_of_many_pairs():
    many = [f"x{number}" for number in range(30)]
    with pytest.raises(HTTPError, match=r"this server has x0 to x1, .*, x0 to x10 and 860 more$"):
        Models({"many": served("many", many, many)}).choose("x0", "de")
    with pytest.raises(HTTPError, match=r"no model here states its languages; name one: mine$"):
        Models({"mine": served("mine", [], [])}).choose("de", "en")


def test_a_text_in_the_language_that_is_wanted_stays_as_it_is(models):
    pairs = [("de", "de"), ("pt", "pt_BR"), ("fr", "fr"), ("de", "en"), ("xx", "xx")]
    assert [models.leaves_unchanged(*pair) for pair in pairs] == [True, True, False, False, False]


def test_models_languages_lists_sources_with_their_targets(models):
    assert models.languages() == {"de": ["en", "pt-BR"], "en": ["de", "pt-BR"], "fr": ["fr"], "pt-BR": ["de", "en"]}
    assert models.all_languages() == ["de", "en", "fr", "pt-BR"]


def test_possible_languages_are_among_the_given_ones():
    text = "Tout philosophe a deux philosophies : la sienne et celle de Spinoza."
    assert possible_languages(text, ["de", "fr", "en"])[0][0] == "fr"
    assert possible_languages("Zwei Männer sitzen auf einer Bank.", ["en", "de"])[0][0] == "de"
    assert possible_languages("O cachorro está dormindo no sofá da sala.", ["en", "pt-BR"])[0][0] == "pt-BR"
    assert sum(percent for _, percent in possible_languages(text, ["de", "fr", "en"])) == pytest.approx(100.0)
    assert possible_languages("12 + 7", ["de", "en"]) == [("de", 50.0), ("en", 50.0)]
    likely = [language for language, _ in possible_languages("Hi", ["fr", "de", "en"])]
    assert likely == ["fr", "de", "en"]  # all as likely
    assert possible_languages(text, ["x1", "x2"]) == [("x1", 50.0), ("x2", 50.0)]


def test_detect_on_a_full_disk_raises_data_error(monkeypatch):
    def fill_the_disk(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("clearhead.serving.languages.LanguageIdentifier.from_model_file", fill_the_disk)
    identifier.cache_clear()
    with pytest.raises(DataError, match=r"cannot be unpacked in .*: No space left on device"):
        possible_languages("", ["de"])
