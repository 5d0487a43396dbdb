from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.text.quality_flags import Flag
from clearhead.translation.result import (
    PROBLEMS,
    Alternative,
    TermUse,
    Translation,
    best_combinations,
    join_translations,
)


def one_of(text, score=-1.0, *others, **fields):
    best = [Alternative(text, score), *others]
    return Translation(
        f"source of {text}", text, score, (f" {text}",), tuple(best) if others else (), **{"warnings": (), **fields}
    )


def test_a_line_is_its_sentences_with_their_gaps_and_the_sum_of_their_scores():
    sentences = [one_of("One.", -1.5), one_of("Two.", -2.25)]
    line = join_translations("Eins.  Zwei.", sentences, ["  "])
    assert (line.source, line.text, line.score) == ("Eins.  Zwei.", "One.  Two.", -3.75)
    assert line.tokens == (" One.", " Two.")
    assert line.sentences == tuple(sentences)
    assert line.alternatives == ()
    assert not line.truncated


def test_join_translations_has_the_flags_of_any_sentence():
    flags = Flag("copied", "most of the source"), Flag("numbers", "7")
    sentences = [one_of("a", warnings=flags[:1]), one_of("b", source_truncated=True), one_of("c", warnings=flags)]
    line = join_translations("x", sentences, ["", ""])
    assert (line.source_truncated, line.output_truncated) == (True, False)
    assert join_translations("x", [one_of("a"), one_of("b", output_truncated=True)], [""]).output_truncated
    assert line.warnings == (flags[1], flags[0])


def test_problems_are_ordered_by_damage():
    flags = [Flag(kind, "x") for kind in ("placed_markup", "unseen_script", "numbers")]
    missed = TermUse("Hund", "hound", "", "unmet")
    found = one_of("a", warnings=tuple(flags), source_truncated=True, terms=(missed,)).problems
    assert list(found) == ["source_truncated", "numbers", "unseen_script", "terms", "placed_markup"]
    assert set(found) <= set(PROBLEMS)


def test_join_translations_without_scores_has_score_none():
    assert join_translations("x", [one_of("a", None), one_of("b", None)], [""]).score is None


def test_the_n_best_combine_those_of_the_sentences():
    one = one_of("A", -1.0, Alternative("B", -1.2), Alternative("C", -1.3))
    two = one_of("x", -2.0, Alternative("y", -2.5))
    line = join_translations("s", [one, two], [" "], num_best=3)
    # One second best at most, then two or a third best; the more probable first.
    expected = [("A x", -3.0), ("B x", -3.2), ("A y", -3.5), ("C x", -3.3), ("B y", -3.7), ("C y", -3.8)]
    assert [(best.text, round(best.score, 6)) for best in line.alternatives] == expected[:3]
    everything = join_translations("s", [one, two], [" "], num_best=9).alternatives
    assert [(best.text, round(best.score, 6)) for best in everything] == expected


def test_no_two_of_the_n_best_have_the_same_text():
    one = one_of("A", -1.0, Alternative("A b", -1.1))
    two = one_of("b c", -2.0, Alternative("c", -2.5))
    texts = [best.text for best in join_translations("s", [one, two], [" "], num_best=9).alternatives]
    assert texts == ["A b c", "A b b c", "A c"]


def test_samples_belong_together_by_their_places():
    one, two = one_of("A", -1.0, Alternative("A", -1.0)), one_of("x", -2.0, Alternative("y", -2.5))
    line = join_translations("s", [one, two], [" "], num_best=2, are_samples=True)
    assert [(best.text, best.score) for best in line.alternatives] == [("A x", -3.0), ("A y", -3.5)]


SCORES = st.floats(-9, 0).map(lambda score: round(score, 3))


@given(st.lists(st.lists(SCORES, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 20))
def test_the_best_combinations_are_those_of_all_combinations(scores, count):
    choices = [[Alternative(str(place), score) for place, score in enumerate(group)] for group in scores]

    def order(chosen):
        return sum(int(one.text) for one in chosen), -sum(one.score for one in chosen)

    expected = sorted(map(order, product(*choices)))[:count]
    found = list(map(order, best_combinations(choices, count)))
    assert [places for places, _ in found] == [places for places, _ in expected]
    assert [cost for _, cost in found] == pytest.approx([cost for _, cost in expected], abs=1e-6)


def test_join_translations_in_capitals_has_terms_in_capitals():
    one = Translation("a big dog", "ein großer Hund", None, (), terms=(TermUse("dog", "Hund", "Hund"),))
    joined = join_translations("A BIG DOG", [one], [], in_capitals=True)
    assert joined.text == "EIN GROSSER HUND"
    assert joined.terms == (TermUse("DOG", "Hund", "HUND"),)
