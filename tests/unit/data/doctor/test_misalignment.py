from __future__ import annotations

import random
from dataclasses import replace

import pytest
from corpus_text import pairs_of, texts

from clearhead.data.doctor.code_points import batches_of
from clearhead.data.doctor.misalignment import MOST_SHIFT, Rows, ShiftSearch, ShiftWeights

ROWS = [texts(number) for number in range(3_000)]


def found_in(rows, monkeypatch=None, batch=8_192):
    if monkeypatch is not None:
        monkeypatch.setattr("clearhead.data.doctor.code_points.BATCH_PAIRS", batch)
    batches = list(batches_of(pairs_of(rows)))
    weights = ShiftWeights.learn([batch.texts for batch in batches])
    assert weights is not None
    search = ShiftSearch(weights)
    for one in batches:
        search.add(Rows.of(one.texts), one.pairs)
    return search.finish()


def moved(start: int, end: int, shift: int) -> list[tuple[str, str]]:
    """Return the rows with the targets of those between taken `shift` rows further down, others put in their place."""
    sources, targets = (list(side) for side in zip(*ROWS, strict=True))
    block = targets[start:end]
    step = abs(shift)
    fillers = [f"Row {number}." for number in range(step)]
    block = fillers + block[:-step] if shift > 0 else block[step:] + fillers
    targets[start:end] = block
    return list(zip(sources, targets, strict=True))


def test_aligned_rows_are_not_shifted():
    assert found_in(ROWS) == []


@pytest.mark.parametrize("shift", [1, -1, 3, -7, MOST_SHIFT, -MOST_SHIFT])
def test_a_block_is_found_with_its_first_row_and_its_shift(shift):
    [found] = found_in(moved(1_000, 1_300, shift))
    assert found.shift == shift
    # What was pushed out of the block at its one end or the other has no target.
    assert found.start == pytest.approx(1_000 + max(-shift, 0), abs=4)
    assert found.start + found.rows == pytest.approx(1_300 - max(shift, 0), abs=4)
    place = found.start
    assert found.first.origin == f"f.tsv:{place + 1}"
    assert found.fitting == moved(1_000, 1_300, shift)[place + shift][1]
    assert found.gain >= 20


def test_shift_up_to_the_last_row_is_found():
    sources, targets = zip(*ROWS, strict=True)
    [found] = found_in(list(zip(sources, [*targets[:500], *targets[502:], "x", "y"], strict=True)))
    assert found.shift == -2
    assert found.start == pytest.approx(500, abs=4)
    assert found.start + found.rows == pytest.approx(3_000, abs=5)
    assert found.last_origin == f"f.tsv:{found.start + found.rows}"


def test_a_corpus_that_is_shifted_from_its_first_row_on_is_found():
    sources, targets = zip(*ROWS, strict=True)
    [found] = found_in(list(zip(sources, ["A title", *targets[:-1]], strict=True)))
    assert (found.shift, found.start) == (1, 0)


def test_batch_size_does_not_change_the_shifted_block(monkeypatch):
    rows = moved(1_000, 1_300, 2)[600:1_900]  # the start of a batch takes the longest
    [whole], [parts], [single] = (found_in(rows, monkeypatch, batch=size) for size in (8_192, 37, 1))
    assert whole == replace(parts, gain=whole.gain) == replace(single, gain=whole.gain)
    assert whole.gain == pytest.approx(parts.gain)
    assert whole.gain == pytest.approx(single.gain)


def test_aligned_pairs_of_unusual_lengths_are_not_shifted():
    for first, number in ((90, 20), (90, 60)):
        here = range(first, first + number)
        rows = [(source, target + ", he said at last." * 3 * (n in here)) for n, (source, target) in enumerate(ROWS)]
        assert found_in(rows[:200]) == []


def test_rows_in_any_order_are_not_shifted_against_each_other():
    sources, targets = zip(*ROWS, strict=True)
    shuffled = random.Random(1).sample(targets, len(targets))
    assert found_in(list(zip(sources, shuffled, strict=True))) == []


def test_texts_that_are_all_alike_tell_nothing():
    assert found_in([("Ja.", "Yes.")] * 500) == []


def test_too_few_pairs_are_not_compared():
    assert ShiftWeights.learn([batch.texts for batch in batches_of(pairs_of(ROWS[:49]))]) is None
    assert ShiftWeights.learn([batch.texts for batch in batches_of(pairs_of(ROWS[:50]))]) is not None
