from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained_text import counted

from clearhead.text.line_statistics import LineCounter, LineStatistics, is_copied, length_ratio


def of_sentences(*counts):
    """Return statistics of a corpus with so many lines of one sentence, two, ..., each of three tokens a sentence."""
    lines = ["Ein Hund. " * number for number, count in enumerate(counts, start=1) for _ in range(count)]
    return counted([(line, "A dog.") for line in lines], "de")


def test_lengths_are_those_of_the_lines_that_so_many_do_not_exceed():
    lengths = [2] * 600 + [5] * 390 + [9] * 9 + [40]
    statistics = counted([("x " * (length - 1), "y") for length in lengths])
    assert statistics.lines == 1_000
    assert statistics.source_tokens.model_dump() == {"median": 2, "p99": 5, "p999": 9, "max": 40}
    assert statistics.target_tokens.model_dump() == dict.fromkeys(("median", "p99", "p999", "max"), 2)


def test_sentences_are_counted_by_the_rules_of_their_language():
    pairs = [("Am 3. Mai kam er.", "x"), ("Er kam. Sie ging.", "x"), ("犬。" * 25, "x")]
    assert counted(pairs, "de").sentences == (1, 1, 0, 0, 0, 0, 0, 0, 0, 1)
    assert counted(pairs, "en").sentences == (0, 2, 0, 0, 0, 0, 0, 0, 0, 1)


def test_ratios_leave_out_one_pair_in_a_thousand_on_either_side():
    middle = [("a" * 80, "b" * 80)] * 998
    statistics = counted([*middle, ("a" * 80, ""), ("", "b" * 80)])
    assert (statistics.least_ratio, statistics.most_ratio) == (0.2, 1.0)  # the thousandth counts
    assert length_ratio("a" * 80, "") == 0.2
    assert counted([("a" * 80, "b" * 180)]).most_ratio == pytest.approx(2.0, rel=0.01)


def test_characters_are_those_of_either_side_and_of_altered_copies():
    counter = LineCounter()
    counter.add("Ein Hündchen", "a dog", 3, 3)
    counter.add_characters("ÜX", "\u200b👩")
    source, target = counter.statistics().known_characters()
    assert source == set("Ein HündchenÜX")
    assert target == set("a dog\u200b👩")
    assert counter.statistics().lines == 1


def test_letter_case_and_uneven_spaces_are_counted_on_the_source():
    sources = ["EIN HUND", "ein hund", "Ein Hund", "2 : 1", " Ein Hund", "Ein  Hund", "Ein Hund\u00a0"]
    statistics = counted([(source, "A  DOG ") for source in sources])
    assert (statistics.capitals, statistics.small_letters, statistics.uneven_spaces) == (1, 1, 3)


def test_rare_is_less_than_the_share_of_lines():
    statistics = counted([("EIN HUND", "x")] + [("ein hund", "x")] * 2 + [(" Ein Hund", "x")] * 198)
    assert statistics.rare_cases() == ("capitals", "small letters")
    assert not statistics.seldom_has_stray_space()
    statistics = counted([("EIN HUND", "x")] * 2 + [("ein hund", "x")] + [("Ein\tHund", "x"), ("Ein Hund", "x")] * 98)
    assert statistics.rare_cases() == ("small letters",)
    assert counted([("Ein\u3000Hund", "x"), ("Ein Hund", "x")]).seldom_has_stray_space()  # one kind, judged by itself


def test_copies_are_counted():
    assert (
        counted([("Zwei junge Männer sind im Freien.",) * 2, ("Ein Hund rennt hier herum.", "A dog runs.")]).copies == 1
    )


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Zwei junge Männer sind im Freien.", "  Zwei junge Männer sind im Freien.", True),
        ("Zwei junge Männer sind im Freien.", "Two young men are outdoors, im Freien.", False),
        ("Zwei junge Männer sind im Freien.", "", False),
        ("Tom.", "Tom.", False),  # names, numbers and codes are copied rightly
        ("二人の男が外にいる。", "二人の男が外にいる。", True),
        ("二人の男が外にいる。", "两个男人在外面。", False),
        ("Albert Einstein wurde 1879 in Ulm geboren.", "Albert Einstein was born in Ulm in 1879.", False),
    ],
)
def test_a_copy_is_most_of_a_source_that_is_long_enough(source, target, expected):
    assert is_copied(source, target) is expected
    long = " filler" * 400  # a long target is searched in another way
    assert is_copied(source, target + long) is expected


# What a model is at its best with


def test_a_model_of_single_sentences_covers_no_line_of_two():
    statistics = of_sentences(990, 10)
    assert statistics.covers(1, 3)
    assert not statistics.covers(2, 5)
    assert not of_sentences(80, 20).covers(2, 5)


def test_a_model_of_paragraphs_covers_lines_of_as_many_sentences_as_it_has_seen():
    statistics = of_sentences(0, 0, 10, 30, 20)
    assert [statistics.covers(number, 9) for number in (1, 2, 3, 5, 6, 60)] == [True] * 4 + [False] * 2


def test_covers_line_lengths_seen_often_enough():
    statistics = of_sentences(37, 25, 13, 13, 12)
    assert [statistics.covers(number, 3) for number in (1, 2, 3, 4, 5)] == [True, True, True, False, False]


def test_a_line_of_more_tokens_than_999_of_1000_is_not_covered():
    statistics = counted([("x " * 4, "y")] * 999 + [("x " * 50, "y")])
    assert statistics.covers(1, 5)
    assert not statistics.covers(1, 6)


def test_line_statistics_as_text():
    assert str(of_sentences(199, 1)) == "99.9 % of at most 5 tokens, 0.5 % of several sentences"


# As they are kept


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1))
def test_line_statistics_round_trip_through_json(pairs):
    statistics = counted([(a.replace("\ud83d", ""), b) for a, b in pairs])
    written = json.dumps(statistics.model_dump(mode="json"))
    assert written.isascii()
    assert LineStatistics.from_dict(json.loads(written)) == statistics
    assert statistics.known_characters() == (set("".join(a for a, _ in pairs)), set("".join(b for _, b in pairs)))


GOOD = of_sentences(3, 1).model_dump(mode="json")


def test_line_statistics_from_dict_ignores_unknown_fields():
    assert LineStatistics.from_dict({**GOOD, "moods": 3}) == LineStatistics.from_dict(GOOD)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"copies": -1}, "copies: "),
        ({"capitals": None}, "capitals: "),
        ({"sentences": []}, "sentences: "),
        ({"sentences": [1] * 11}, "sentences: "),
        ({"sentences": [0, 0]}, "sentences: there is no line"),
        ({"source_tokens": {**GOOD["source_tokens"], "p999": 0}}, "source_tokens.p999: "),
        ({"sentences": [10**400]}, "sentences.0: "),
        ({"least_ratio": 0}, "least_ratio: "),
        ({"source_characters": "41-5A 50"}, "the range '50' is not one of characters, or is out of order"),
        ({"target_characters": "0-110000"}, "the range '0-110000'"),
        ({"target_characters": "z"}, "invalid literal"),
        ({"target_characters": 7}, "target_characters: "),
    ],
)
def test_damaged_statistics_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        LineStatistics.from_dict({**GOOD, **change})


@pytest.mark.parametrize("values", [None, [], "x", {}])
def test_line_statistics_from_dict_rejects_other_values(values):
    with pytest.raises(ValueError, match=r"statistics|source_tokens"):
        LineStatistics.from_dict(values)
