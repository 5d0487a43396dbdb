"""The built-in corpus, against renderings typed by hand and the promises a learner relies on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import date, datetime, time
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from babel import Locale

from clearhead.data.demo_corpus import COUNTRIES, KINDS, LANGUAGES, PRACTICE, CldrCorpus, generate
from clearhead.errors import ConfigError
from clearhead.text.languages import LOCALES, language_tag
from every_run import slow

NBSP, NARROW, THIN = "\u00a0", "\u202f", "\u2009"
THURSDAY = date(2018, 5, 3)


def write(kind: str, value: Any, code: str) -> str:
    (render,) = (row.render for row in KINDS if row.name == kind)
    return render(value, Locale.parse(code))


def split(line: str) -> tuple[str, str]:
    head, _, text = line.partition(" ")
    return head, text


@pytest.fixture(scope="module")
def corpus() -> CldrCorpus:
    return generate(12_007, seed=5, num_test=1_009)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("en", "Thursday, May 3, 2018"),
        ("de", "Donnerstag, 3. Mai 2018"),
        ("fr", "jeudi 3 mai 2018"),
        ("es", "jueves, 3 de mayo de 2018"),
        ("it", "giovedì 3 maggio 2018"),
        ("pt", "quinta-feira, 3 de maio de 2018"),
        ("nl", "donderdag 3 mei 2018"),
        ("pl", "czwartek, 3 maja 2018"),
        ("cs", "čtvrtek 3. května 2018"),
        ("sv", "torsdag 3 maj 2018"),
        ("tr", "3 Mayıs 2018 Perşembe"),
        ("ja", "2018年5月3日木曜日"),
    ],
)
def test_a_full_date_is_written_as_each_language_writes_it(code, text):
    assert write("date", THURSDAY, code) == text


@pytest.mark.parametrize(
    ("kind", "value", "code", "text"),
    [
        ("moment", datetime(2018, 5, 3, 15, 7), "de", "3. Mai 2018, 15:07"),
        ("moment", datetime(2018, 5, 3, 15, 7), "ja", "2018年5月3日 15:07"),
        ("time", time(0, 5, 9), "en", f"12:05:09{NARROW}AM"),
        ("time", time(0, 5, 9), "sv", "00:05:09"),
        ("weekday", THURSDAY, "en", "Thu, May 3"),
        ("weekday", THURSDAY, "ja", "5月3日(木)"),
        ("month", date(1984, 2, 1), "en", "February 1984"),
        ("month", date(1984, 2, 1), "pl", "luty 1984"),  # the nominative, not "lutego"
        ("days", (THURSDAY, date(2018, 5, 12)), "en", f"May 3{THIN}–{THIN}12, 2018"),
        ("days", (THURSDAY, date(2018, 5, 12)), "de", "3.–12. Mai 2018"),
        ("days", (THURSDAY, date(2019, 6, 1)), "ja", "2018年5月3日～2019年6月1日"),
        ("months", (date(2018, 5, 1), date(2018, 8, 1)), "es", "mayo–agosto de 2018"),
        ("months", (date(2018, 5, 1), date(2018, 8, 1)), "ja", "2018年5月～8月"),
        ("hours", (time(9, 7), time(10, 30)), "en", f"9:07{THIN}–{THIN}10:30{NARROW}AM"),
        ("hours", (time(9, 7), time(15, 30)), "en", f"9:07{NARROW}AM{THIN}–{THIN}3:30{NARROW}PM"),
        ("hours", (time(9, 7), time(15, 30)), "de", "09:07–15:30 Uhr"),
        ("distance", (-3, "day"), "en", "3 days ago"),
        ("distance", (1, "day"), "en", "in 1 day"),
        ("distance", (-3, "day"), "de", "vor 3 Tagen"),
        ("distance", (72, "hour"), "de", "in 72 Stunden"),  # not "in 3 Tagen": the unit is part of the meaning
        ("distance", (24, "month"), "fr", "dans 24 mois"),
        ("distance", (2, "year"), "pl", "za 2 lata"),
        ("distance", (5, "year"), "pl", "za 5 lat"),
        ("distance", (-99, "second"), "tr", "99 saniye önce"),
        ("price", (Decimal("1234.5"), "EUR"), "en", "€1,234.50"),
        ("price", (Decimal("1234.5"), "EUR"), "de", f"1.234,50{NBSP}€"),
        ("price", (Decimal("1234.5"), "EUR"), "fr", f"1{NARROW}234,50{NBSP}€"),
        ("price", (Decimal("1234.5"), "EUR"), "nl", f"€{NBSP}1.234,50"),
        ("price", (Decimal(1234), "JPY"), "en", "¥1,234"),
        ("quantity", (Decimal(1), "kilogram"), "en", "1 kilogram"),
        ("quantity", (Decimal("1.5"), "kilogram"), "en", "1.5 kilograms"),
        ("quantity", (Decimal("1.5"), "kilogram"), "fr", f"1,5{NBSP}kilogramme"),  # singular below two
        ("quantity", (Decimal(2), "liter"), "pl", "2 litry"),
        ("quantity", (Decimal(5), "liter"), "pl", "5 litrów"),
        ("quantity", (Decimal(5), "percent"), "tr", "yüzde 5"),
        ("quantity", (Decimal(80), "kilometer-per-hour"), "ja", "時速 80 キロメートル"),
        ("countries", ("FR", "IN", "CH"), "en", "France, India, and Switzerland"),
        ("countries", ("FR", "IN", "CH"), "de", "Frankreich, Indien und Schweiz"),
        ("countries", ("ES", "IT"), "es", "España e Italia"),
        ("countries", ("IT", "ES"), "es", "Italia y España"),
        ("languages", ("de", "sv"), "cs", f"němčina a{NBSP}švédština"),
        ("languages", ("fr", "ja", "en"), "ja", "フランス語、日本語、英語"),
    ],
)
def test_write_renders_known_values_in_each_locale(kind, value, code, text):
    assert write(kind, value, code) == text


def test_the_source_names_the_language_it_is_translated_into(corpus):
    assert language_tag("de") == "<2de>"
    for pair in corpus.train[:2_003] + corpus.test:
        _, _, direction = pair.origin.split(":")
        source, target = direction.split("-")
        head, text = split(pair.source)
        assert source != target
        assert head == language_tag(target)
        assert text
        assert text == text.strip()


def test_counts_are_exact_and_sources_distinct(corpus):
    assert len(corpus.train) == 12_007
    assert len(corpus.test) == 1_009
    assert len({pair.source for pair in corpus.train}) == len(corpus.train)
    assert len({pair.source for pair in corpus.test}) == len(corpus.test)


def test_the_same_seed_gives_the_same_corpus_and_another_seed_another():
    first = generate(307, seed=11, num_test=53)
    assert generate(307, seed=11, num_test=53) == first
    other = generate(307, seed=12, num_test=53)
    assert len({pair.source for pair in first.train} & {pair.source for pair in other.train}) < 60
    assert other.test != first.test


def test_more_pairs_only_append():
    small, large = generate(101, seed=3, num_test=17), generate(503, seed=3, num_test=17)
    assert large.train[:101] == small.train
    assert large.test == small.test


def test_neither_hash_seed_nor_time_zone_changes_the_corpus():
    code = (
        "import json; from clearhead.data.demo_corpus import generate; c = generate(211, seed=2, num_test=31); "
        "print(json.dumps([[p.source, p.target, p.origin] for p in c.train + c.test]))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    here = generate(211, seed=2, num_test=31)
    assert json.loads(result.stdout) == [[p.source, p.target, p.origin] for p in here.train + here.test]


def test_demo_test_sentences_are_not_in_the_training_text(corpus):
    trained = {split(pair.source)[1] for pair in corpus.train} | {pair.target for pair in corpus.train}
    tested = {split(pair.source)[1] for pair in corpus.test} | {pair.target for pair in corpus.test}
    assert trained.isdisjoint(tested)


def test_every_rendering_of_a_held_out_meaning_is_held_out():
    # Weekday and month sentences are few, so that meanings would come back in training were they not refused.
    corpus = generate(8_009, seed=8, num_test=211, locales=("en", "cs", "ja"))
    trained = {split(pair.source)[1] for pair in corpus.train} | {pair.target for pair in corpus.train}
    held_out = [pair for pair in corpus.test if pair.origin.startswith("cldr:month:")]
    assert held_out
    for pair in held_out:
        source = pair.origin.split(":")[2].split("-")[0]
        text = split(pair.source)[1]
        value = next(
            date(year, month, 1)
            for year in range(1950, 2051)
            for month in range(1, 13)
            if write("month", date(year, month, 1), source) == text
        )
        for code in ("en", "cs", "ja"):
            assert write("month", value, code) not in trained


@pytest.mark.parametrize("more", [2_003, slow(8_009)])
def test_translation_is_a_function_of_the_source_line(corpus, more):
    targets: dict[str, str] = {}
    for pair in corpus.train + corpus.test + generate(more, seed=6).train:
        assert targets.setdefault(pair.source, pair.target) == pair.target, pair


@pytest.mark.parametrize("count", [101, slow(701)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_text_has_two_meanings_even_across_locales(kind, count):
    # A meaning is all its renderings; a text shared by two of them could not be translated.
    rng = Random(13)
    meanings: dict[str, tuple[str, ...]] = {}
    for _ in range(count):
        value = kind.sample(rng)
        meaning = tuple(kind.render(value, Locale.parse(code)) for code in LOCALES)
        for text in meaning:
            assert meanings.setdefault(text, meaning) == meaning, text


def test_names_of_countries_and_languages_are_unambiguous():
    for codes, names in ((COUNTRIES, "territories"), (LANGUAGES, "languages")):
        owner: dict[str, str] = {}
        for locale in map(Locale.parse, LOCALES):
            for code in codes:
                name = getattr(locale, names)[code]
                assert owner.setdefault(name, code) == code, name
                assert "," not in name


def test_every_kind_locale_and_direction_occurs(corpus):
    origins = [pair.origin.split(":") for pair in corpus.train]
    weights = {kind.name: kind.weight * PRACTICE.get(kind.name, 1.0) for kind in KINDS}
    counts = Counter(kind for _, kind, _ in origins)
    assert counts.keys() == {kind.name for kind in KINDS}
    for name, weight in weights.items():
        assert counts[name] / len(origins) == pytest.approx(weight / sum(weights.values()), rel=0.25)
    assert len({direction for _, _, direction in origins}) == len(LOCALES) * (len(LOCALES) - 1)
    assert {pair.origin.split(":")[1] for pair in corpus.test} == counts.keys()


def test_spaces_that_do_not_break_are_kept(corpus):
    for side in ("source", "target"):
        text = "".join(getattr(pair, side) for pair in corpus.train)
        assert {NBSP, NARROW, THIN} <= set(text)


def test_no_line_is_broken_and_none_is_long(corpus):
    for pair in corpus.train + corpus.test:
        for text in (pair.source, pair.target):
            assert len(text.splitlines()) == 1
            assert "\t" not in text
            assert len(text) < 90


def test_only_the_locales_asked_for_are_used():
    corpus = generate(211, seed=1, num_test=19, locales=("en", "de"))
    assert {pair.origin.split(":")[2] for pair in corpus.train} == {"en-de", "de-en"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_pairs": 0}, r"num_pairs \(0\) must be at least 1"),
        ({"num_pairs": 3, "num_test": -1}, r"num_test \(-1\) at least 0"),
        ({"num_pairs": 3, "locales": ("en", "sw")}, "locale 'sw'; did you mean 'sv'"),
        ({"num_pairs": 3, "locales": ("en",)}, "two or more different"),
        ({"num_pairs": 3, "locales": ("en", "de", "en")}, "two or more different"),
    ],
)
def test_impossible_requests_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        generate(**{"seed": 1, **arguments})
