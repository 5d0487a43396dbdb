"""Holding out: a fixed choice, and nothing of it left in the training text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data import staged_corpus
from clearhead.data.clean import CleaningReport, key_digest
from clearhead.data.hold_out import choose_held_out, choose_rows, rows_among, side_keys
from clearhead.data.staged_corpus import StagedPairs, hold_out, write_side_keys
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


@given(st.integers(10, 5_003), st.integers(1, 700), st.integers(0, 2**32 - 1))
def test_passages_are_blocks_spread_over_the_text(num_pairs, valid_size, seed):
    how, rows = choose_held_out(None, {"a": num_pairs - 3, "b": 3}, valid_size, seed=seed)
    wanted = min(valid_size, num_pairs // 10)
    assert (how, len(rows)) == ("passage", wanted)
    assert rows <= set(range(num_pairs))
    starts = [row for row in rows if row - 1 not in rows]
    assert len(starts) <= -(-wanted // max(1, min(20, wanted // 10)))
    for part in range(4) if len(starts) >= 12 else ():  # as many lines of each quarter
        there = sum(row * 4 // num_pairs == part for row in rows)
        assert wanted / 4 - 40 <= there <= wanted / 4 + 40
    assert choose_held_out("passage", {"c": num_pairs}, valid_size, seed=seed) == (how, rows)


def test_lines_are_held_out_as_before_the_setting():
    assert choose_held_out("line", {"a": 900, "b": 107}, 40, seed=3) == ("line", choose_rows(1_007, 40, seed=3))


def test_whole_files_are_held_out_if_they_make_up_what_is_wanted():
    sizes = {f"f{number}": 20 + number % 7 for number in range(103)}
    how, rows = choose_held_out(None, sizes, 150, seed=5)
    assert how == "file"
    assert 75 <= len(rows) <= 180
    start, num_files = 0, 0
    for size in sizes.values():
        there = len(rows & set(range(start, start + size)))
        assert there in (0, size)
        num_files, start = num_files + (there > 0), start + size
    assert num_files >= 3
    assert choose_held_out("file", sizes, 150, seed=6)[1] != rows


def test_few_or_large_files_are_divided_into_passages_or_refused():
    for sizes in ({"a": 1_000}, {"a": 500, "b": 20, "c": 480}, dict.fromkeys("abcdefgh", 1_000)):
        assert choose_held_out(None, sizes, 200, seed=1)[0] == "passage"
        with pytest.raises(DataError, match=rf"of the {len(sizes)} files together .*data\.hold_out=passage"):
            choose_held_out("file", sizes, 200, seed=1)
    with pytest.raises(DataError, match="has 9 usable pairs, and 10 are needed"):
        choose_held_out(None, {"a": 9}, 1, seed=1)


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged_corpus, "PIECE_ROWS", 4)
        write_side_keys(train.written(pairs), folder / "keys", processes=1)
    valid.write(train.of_rows(rows))
    hold_out(train, rows, valid, folder / "keys")

    assert list(valid) == [pairs[row] for row in sorted(rows)]
    seen = {text.lower() for pair in valid for text in (pair.source, pair.target)}
    expected = [pair for pair in pairs if pair.source.lower() not in seen and pair.target.lower() not in seen]
    assert list(train) == expected
    assert [len(list(piece)) for piece in train.pieces] == [piece.rows for piece in train.pieces]
    train.report.check()
    assert train.report.held_out == len(rows)
    assert train.report.kept == len(expected)
    assert train.report.dropped["leakage"] == len(pairs) - len(rows) - len(expected)


def test_rows_are_among_others_only_if_all_of_a_key_is():
    keys = [bytes([number]) * 16 for number in range(7)]
    alike = keys[3][:8] + keys[4][8:]
    assert rows_among(b"".join((*keys[:3], alike, *keys[4:6])), {keys[1], keys[3], keys[4]}) == {0, 2}


def test_side_keys_leave_out_the_language_tag():
    pair = SentencePair("<2de> Good day", "Guten Tag", "f:1", "de", 6)
    assert side_keys(pair) == (key_digest("good day"), key_digest("guten tag"))
    assert side_keys(SentencePair("<2de> Good day", "Guten Tag", "f:1")) != side_keys(pair)
