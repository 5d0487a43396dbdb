"""Altered copies of training sentences: what is done to which, and that the rest is left alone."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from clearhead.data import augment
from clearhead.data.augment import KINDS, altered
from clearhead.formats import SentencePair


def pairs_of(*sides: tuple[str, str]) -> list[SentencePair]:
    return [SentencePair(source, target, f"f:{number}") for number, (source, target) in enumerate(sides, start=1)]


def copies(pairs, seed=1, max_characters=3_000):
    return list(altered(pairs, seed=seed, max_characters=max_characters))


@pytest.fixture
def captions() -> list[SentencePair]:
    choose = random.Random(3)
    sides = []
    for number in range(4_000):
        count = choose.randrange(2, 90)
        sides.append((f"Der Hund {number} sieht {count} Bälle.", f"Dog {number} sees {count} balls."))
    return pairs_of(*sides)


def test_a_small_share_is_altered_in_every_way_and_the_same_again(captions):
    found = copies(captions)
    counts = Counter(kind for kind, _ in found)
    assert set(counts) == {*KINDS} - {"another number"}  # there are two numbers a side
    assert all(0.005 < count / len(captions) < 0.05 for count in counts.values())
    assert found == copies(captions)
    assert found != copies(captions, seed=2)


def test_joined_sentences_follow_each_other_on_both_sides(captions):
    joined = [pair for kind, pair in copies(captions) if kind == "joined"]
    assert {pair.source.count("Hund") for pair in joined} == {2, 3, 4, 5, 6}
    for pair in joined:
        numbers = [int(number) for number in re.findall(r"Hund (\d+)", pair.source)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert [int(number) for number in re.findall(r"Dog (\d+)", pair.target)] == numbers
        assert "  " not in pair.source
    limit = 90
    short = [pair for kind, pair in copies(captions, max_characters=limit) if kind == "joined"]
    assert short == [pair for pair in joined if max(len(pair.source), len(pair.target)) <= limit]


def test_sentences_of_two_languages_are_not_joined():
    text = pairs_of(*[("<2de> A dog.", "Ein Hund."), ("<2fr> A dog.", "Un chien.")] * 2_000)
    tagged = [SentencePair(p.source, p.target, p.origin, language=p.source[2:4], text_at=6) for p in text]
    found = copies(tagged)
    assert not [pair for kind, pair in found if kind == "joined"]
    assert all(pair.source.startswith(("<2de> ", "<2fr> ")) and pair.text_at == 6 for _, pair in found)


def test_only_pairs_that_end_as_sentences_are_altered():
    text = [("May 3, 2018", "3. Mai 2018"), ("a dog", "ein Hund"), ("A dog.", "ein Hund"), ("hello!", "")] * 2_000
    assert copies(pairs_of(*text)) == []


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("without its end mark", ("Ein Hund!", "A dog."), ("Ein Hund", "A dog")),
        ("without its end mark", ("犬です。", "It is a dog."), ("犬です", "It is a dog")),
        ("without its end mark", ("Ça va\u202f?", "Ça va ?!"), ("Ça va", "Ça va")),
        ("without its end mark", ("Er sagt: „Ja.“", "He says: yes."), None),
        ("without its end mark", ("នេះជាឆ្កែ។", "ခွေးဖြစ်သည်။"), ("នេះជាឆ្កែ", "ခွေးဖြစ်သည်")),
        ("without its end mark", ("...", "..."), None),
        ("another number", ("Bus 47 kommt.", "Bus 47 comes."), ("Bus 97 kommt.", "Bus 97 comes.")),
        ("another number", ("1 Bus.", "1 bus."), None),
        ("another number", ("Vidím 2 psy.", "I see 2 dogs."), None),
        ("another number", ("Vidím 23 psů.", "I see 23 dogs."), None),
        ("another number", ("9" * 5_000 + " Hunde.", "9" * 5_000 + " dogs."), None),
        ("another number", ("Bus 47 um 8.", "Bus 47 at 8."), None),
        ("another number", ("Um 16:00 hier.", "Here at 16:00."), None),
        ("another number", ("Es kostet 1.000 Euro.", "It costs 1,000 euros."), None),
    ],
)
def test_each_alteration_of_a_pair_gives_the_expected_pair(kind, before, after):
    _, alter = augment._ALTERATIONS[kind]
    [pair] = pairs_of(before)
    found = alter(pair, random.Random(5))
    if after is None:
        assert found is None
    elif kind == "another number":
        assert [re.sub(r"\d+", "47", side) for side in (found.source, found.target)] == list(before)
        assert re.findall(r"\d\d", found.source) == re.findall(r"\d\d", found.target) != ["47"]
    else:
        assert (found.source, found.target) == after


@pytest.mark.parametrize(
    ("number", "ending"), [("5", r"[5-9]"), ("116", r"(\d\d[05-9]|\d1[1-4])"), ("2002", r"\d\d02")]
)
def test_another_number_asks_for_the_same_plural(number, ending):
    _, alter = augment._ALTERATIONS["another number"]
    [pair] = pairs_of((f"Widzę {number} psów.", f"I see {number} dogs."))
    found = {re.sub(r"\D", "", alter(pair, random.Random(seed)).source) for seed in range(40)}
    assert len(found) > 3
    assert all(len(other) == len(number) and re.search(f"{ending}$", other) for other in found)


def test_sentences_of_scripts_without_spaces_are_joined_without():
    assert augment._paragraph(["犬です。", "猫です。"]) == "犬です。猫です。"
    assert augment._paragraph(["A dog. ", "A cat."]) == "A dog. A cat."
    assert augment._paragraph(["「犬。」", "猫だ!", "そうか…", "はい。"]) == "「犬。」猫だ!そうか…はい。"
