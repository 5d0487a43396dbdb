"""Usable segments in words, and a published model as a better start."""

from __future__ import annotations

import pytest

from clearhead.training.usable import usable, usable_lines

FEW = [90.0, 70.0, 69.9, 84.9, 12.0, 3.0, 0.0, 100.0]  # 2 usable, 2 more after edits


def test_segments_are_counted_out_of_a_hundred():
    assert usable(FEW) == (25, 25)
    (line,) = usable_lines(FEW, [None, "de"], may_start=True)
    assert "of 100 segments like those of the validation text about 25 are usable as they are (chrF 85 or more)" in line
    assert "25 more after small edits (70 or more)" in line


def test_a_better_start_is_named_for_the_pair_with_its_command():
    _, start = usable_lines(FEW, ["en-GB", "deu"], may_start=True)
    assert "Helsinki-NLP/opus-mt-en-de" in start
    assert "`clearhead import opus-mt-en-de -o models/opus-mt-en-de`" in start


@pytest.mark.parametrize(
    ("chrfs", "languages", "may_start"),
    [
        (FEW, ["en", "de"], False),
        ([90, 3], ["en", "de"], True),
        (FEW, ["en", None], True),
        (FEW, ["en", "x"], True),
    ],
)
def test_no_start_is_named_for_good_models_unknown_pairs_and_runs_from_a_model(chrfs, languages, may_start):
    assert len(usable_lines(chrfs, languages, may_start=may_start)) == 1


def test_no_sentence_is_made_without_translations():
    assert usable_lines([], ["en", "de"], may_start=True) == []
