"""Holding out: a fixed choice, and nothing of it left in the training text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.clean import CleaningReport, key_digest
from clearhead.data.hold_out import choose_rows, side_keys, without
from clearhead.data.staged_corpus import StagedPairs
from clearhead.errors import DataError
from clearhead.formats import SentencePair


@given(st.integers(10, 1_009), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_choice_is_of_the_size_asked_but_at_most_a_tenth(num_pairs, valid_size, seed):
    rows = choose_rows(num_pairs, valid_size, seed=seed)
    assert len(rows) == min(valid_size, num_pairs // 10)
    assert rows <= set(range(num_pairs))
    assert rows == choose_rows(num_pairs, valid_size, seed=seed)


def test_seed_changes_the_choice_and_the_choice_is_spread():
    one, other = (choose_rows(10_007, 1_000, seed=seed) for seed in (1, 2))
    assert len(one & other) < 200
    assert all(60 < len([row for row in one if row // 1_000 == part]) < 140 for part in range(10))


@pytest.mark.parametrize("num_pairs", [0, 9])
def test_fewer_than_ten_pairs_cannot_be_divided(num_pairs):
    with pytest.raises(DataError, match=f"has {num_pairs} usable pairs, and 10 are needed.*--valid-source"):
        choose_rows(num_pairs, 1, seed=1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aAbcdefg"), st.sampled_from("tTuvwxyz")), min_size=10, max_size=41))
def test_no_training_pair_shares_a_side_with_one_held_out(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("divided")
    pairs = [
        SentencePair(f"<2xx> {source}!", target, f"f\r\n:{line}", "xx", 6)
        for line, (source, target) in enumerate(texts)
    ]
    rows = choose_rows(len(pairs), 3, seed=len(pairs))
    train = StagedPairs(folder / "train.jsonl", CleaningReport(read=len(pairs), kept=len(pairs)))
    valid = StagedPairs(folder / "valid.jsonl")
    valid.write(pair for row, pair in enumerate(pairs) if row in rows)
    train.write(without(pairs, rows, valid, report=train.report))

    assert list(valid) == [pairs[row] for row in sorted(rows)]
    seen = {text.lower() for pair in valid for text in (pair.source, pair.target)}
    expected = [pair for pair in pairs if pair.source.lower() not in seen and pair.target.lower() not in seen]
    assert list(train) == expected
    train.report.check()
    assert train.report.held_out == len(rows)
    assert train.report.kept == len(expected)
    assert train.report.dropped["leakage"] == len(pairs) - len(rows) - len(expected)


def test_side_keys_leave_out_the_language_tag():
    pair = SentencePair("<2de> Good day", "Guten Tag", "f:1", "de", 6)
    assert side_keys(pair) == (key_digest("good day"), key_digest("guten tag"))
    assert side_keys(SentencePair("<2de> Good day", "Guten Tag", "f:1")) != side_keys(pair)
