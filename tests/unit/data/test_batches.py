"""Batches: every pair once an epoch, within the budget, and step n the same however it is reached."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.batches import BLOCK, BatchOrder, collate, shares, split, valid_batches
from clearhead.data.store import PairStore, StoreWriter

PAD, BOS, EOS = 0, 1, 2


@st.composite
def corpora(draw):
    count = draw(st.integers(1, 67))
    random = np.random.default_rng(draw(st.integers(0, 1_000)))
    longest = draw(st.sampled_from([1, 2, 5, 37]))
    sources, targets = random.integers(1, longest + 1, size=(2, count)).astype(np.int32)
    return sources, targets


def make_store(path, sources, targets):
    with StoreWriter(path) as writer:
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            ids = [10 + row] * (source - 1) + [EOS], [1_000 + row] * (target - 1) + [EOS]
            writer.append(f"s{row}", f"t{row}", *ids)
    return PairStore.open(path)


@given(corpora(), st.integers(1, 97), st.integers(0, 2**32 - 1))
def test_every_pair_is_in_exactly_one_batch_of_each_epoch(corpus, batch_tokens, seed):
    order = BatchOrder(*corpus, batch_tokens=batch_tokens, seed=seed)
    for epoch in range(3):
        steps = range(epoch * order.batches_per_epoch, (epoch + 1) * order.batches_per_epoch)
        rows = np.concatenate([order.rows(step) for step in steps])
        assert sorted(rows.tolist()) == list(range(len(corpus[0])))


@given(corpora(), st.integers(1, 97), st.integers(1, 3))
def test_batch_order_repeats_each_pair_by_its_weight(corpus, batch_tokens, epochs):
    count = len(corpus[0])
    num_new = count if epochs == 1 else count // 2 + 1
    times = np.arange(count) % 3 + 1
    order = BatchOrder(*corpus, batch_tokens=batch_tokens, seed=5, epochs=epochs, num_new=num_new, times=times)
    new = np.repeat(np.arange(num_new), times[:num_new]).tolist()
    wanted = sorted(new * epochs + list(range(num_new, count)))  # of all epochs; what is mixed in comes in one of them
    rows: list[int] = []
    for step in range(len(wanted)):
        if len(rows) < len(wanted):
            rows += order.rows(step).tolist()
    assert sorted(rows) == wanted


@given(corpora(), st.integers(1, 97))
def test_batches_keep_the_budget_and_are_as_full_as_they_can_be(corpus, batch_tokens):
    _, targets = corpus
    order = BatchOrder(*corpus, batch_tokens=batch_tokens, seed=3)
    batches = [targets[order.rows(step)] for step in range(order.batches_per_epoch)]
    for lengths in batches:
        assert lengths.size == 1 or lengths.sum() <= batch_tokens
        assert (np.diff(lengths) >= 0).all()
    batches.sort(key=lambda lengths: (lengths[0], lengths[-1], -lengths.size))
    for lengths, following in pairwise(batches):
        assert lengths.sum() + following[0] > batch_tokens


@given(corpora(), st.lists(st.integers(0, 300), min_size=1, max_size=7), st.integers(0, 99))
def test_step_is_a_function_of_seed_and_step_alone(corpus, steps, seed):
    settings = {"batch_tokens": 13, "seed": seed}
    order = BatchOrder(*corpus, **settings)
    for step in steps:
        np.testing.assert_array_equal(order.rows(step), BatchOrder(*corpus, **settings).rows(step))


def test_epochs_and_seeds_shuffle_differently():
    random = np.random.default_rng(1)
    sources, targets = random.integers(3, 9, size=(2, 997)).astype(np.int32)
    first, second = (BatchOrder(sources, targets, batch_tokens=101, seed=seed) for seed in (5, 6))
    count = first.batches_per_epoch
    plans = [
        [tuple(order.rows(epoch * count + step)) for step in range(count)]
        for order in (first, second)
        for epoch in (0, 1)
    ]
    for n, plan in enumerate(plans):
        for other in plans[:n]:
            # Neither the same pairs together, nor the same lengths in the same order.
            assert len({frozenset(batch) for batch in plan} & {frozenset(batch) for batch in other}) < count / 10
            lengths = [[targets[batch[0]] for batch in both] for both in (plan, other)]
            assert lengths[0] != lengths[1]


@pytest.mark.parametrize(("num_new", "others", "epochs"), [(0, 20, 1), (4, 20, 1), (4, 21, 3), (100, 700, 7)])
def test_an_epoch_sees_all_new_pairs_and_its_part_of_the_others(num_new, others, epochs):
    random = np.random.default_rng(3)
    sources, targets = random.integers(1, 9, size=(2, num_new + others)).astype(np.int32)
    order = BatchOrder(sources, targets, batch_tokens=11, seed=2, num_new=num_new, epochs=epochs)
    step, seen, steps = 0, [], []
    for _ in range(2 * epochs):
        found, first = [], step
        while len(found) < num_new + others // epochs:
            rows = order.rows(step).tolist()
            assert targets[rows].sum() <= 11
            assert sorted(targets[rows]) == targets[rows].tolist()
            found += rows
            step += 1
        assert sorted(found)[:num_new] == list(range(num_new))
        seen.append({row for row in found if row >= num_new})
        assert len(seen[-1]) == others // epochs
        steps.append(step - first)
    assert set().union(*seen[:epochs]) == set(range(num_new, num_new + others))
    assert seen[epochs:] == seen[:epochs]
    assert order.batches_per_epoch == round(np.mean(steps))


def test_shuffling_is_raw_philox_output_keyed_by_seed_and_epoch():
    # A run resumed under another version of NumPy relies on it.
    sources, targets = np.full(7, 3, dtype=np.int32), np.full(7, 2, dtype=np.int32)
    order = BatchOrder(sources, targets, batch_tokens=4, seed=11)
    random = np.random.Philox(key=np.array([11, 2], dtype=np.uint64))
    pairs, batches = np.argsort(random.random_raw(7)), np.argsort(random.random_raw(4))
    assert order.batches_per_epoch == 4
    for index, batch in enumerate(batches):
        assert order.rows(2 * 4 + index).tolist() == pairs[2 * batch : 2 * batch + 2].tolist()


LARGEST = 2**63


@given(st.integers(1, 9_000), st.integers(1, 2_500), st.integers(1, 499), st.booleans())
def test_windows_have_every_pair_once_an_epoch_and_any_step_at_once(count, window, batch_tokens, is_weighted):
    random = np.random.default_rng(count)
    lengths = random.integers(1, 38, size=(2, count)).astype(np.int32)
    times = random.integers(1, 4, size=count) if is_weighted else None
    given_to_both = {"batch_tokens": batch_tokens, "seed": window, "times": times, "window": window}
    order, other = BatchOrder(*lengths, **given_to_both), BatchOrder(*lengths, **given_to_both)
    per_epoch = order.batches_per_epoch
    wanted = np.repeat(np.arange(count), 1 if times is None else times)
    epochs = [[order.rows(epoch * per_epoch + step) for step in range(per_epoch)] for epoch in range(2)]
    for batches in epochs:
        assert np.array_equal(np.sort(np.concatenate(batches)), wanted)
        assert all(rows.size == 1 or lengths[1][rows].sum() <= batch_tokens for rows in batches)
    sizes = [sorted(rows.size for rows in batches) for batches in (*epochs, order.batches())]
    assert sizes[0] == sizes[1] == sizes[2]
    for step in random.integers(0, 2 * per_epoch, size=9).tolist():
        assert np.array_equal(other.rows(step), epochs[step // per_epoch][step % per_epoch])
    assert order.rows(LARGEST).size >= 1


@st.composite
def weighted_corpora(draw):
    sources, targets = draw(corpora())
    weights = draw(st.lists(st.sampled_from([0.04, 0.5, 1, 1.7, 3, 2 / 3]), min_size=1, max_size=3))
    return (sources, targets), np.array(weights)[np.arange(targets.size) % len(weights)]


def epochs_of(order, count):
    per_epoch = order.batches_per_epoch
    return [[order.rows(epoch * per_epoch + step) for step in range(per_epoch)] for epoch in range(count)]


@given(weighted_corpora(), st.integers(1, 97), st.integers(0, 99), st.integers(1, 9))
def test_pairs_of_a_fraction_are_as_often_in_every_epoch_and_each_as_often_over_epochs(corpus, budget, seed, count):
    lengths, weights = corpus
    order, other = (BatchOrder(*lengths, batch_tokens=budget, seed=seed, times=weights) for _ in range(2))
    epochs = epochs_of(order, count)
    sizes = [[rows.size for rows in batches] for batches in (*epochs, order.batches())]
    assert all(sorted(some) == sorted(sizes[0]) for some in sizes)
    assert all(rows.size == 1 or lengths[1][rows].sum() <= budget for batches in epochs for rows in batches)
    seen = np.array([np.bincount(np.concatenate(batches), minlength=weights.size) for batches in epochs])
    for weight in np.unique(weights):
        alike = weights == weight
        part = max(1, round(weight % 1 * alike.sum())) if weight % 1 else 0
        assert set(seen[:, alike].sum(axis=1)) == {int(weight) * alike.sum() + part}
        # Of a pair over epochs in succession: as its share says, up to the next whole number.
        shares = count * (int(weight) + part / alike.sum())
        assert np.abs(seen[:, alike].sum(axis=0) - shares).max() < 1
    step = (count - 1) * order.batches_per_epoch
    assert np.array_equal(other.rows(step), epochs[-1][0])  # without the epochs before


@given(weighted_corpora(), st.integers(1, 97), st.integers(0, 99))
def test_no_epoch_has_longer_texts_in_a_place_than_most_tokens(corpus, budget, seed):
    (sources, targets), weights = corpus
    order = BatchOrder(sources, targets, batch_tokens=budget, seed=seed, times=weights)
    most_sources, most_targets = map(np.concatenate, zip(*order.most_tokens(), strict=True))
    for batches in epochs_of(order, 7):
        rows = np.concatenate(batches)
        rows = rows[np.lexsort((np.where(targets[rows] % 2, -sources[rows], sources[rows]), targets[rows]))]
        assert (sources[rows] <= most_sources).all()
        assert (targets[rows] <= most_targets).all()
    assert most_sources.max() <= sources.max()


def test_a_pair_that_only_some_epochs_have_is_among_the_most_tokens():
    sources, targets = np.full(40, 5), np.repeat([6, 7], 20)
    sources[3] = 31
    batches = {
        kind: list(BatchOrder(sources, targets, batch_tokens=65, seed=1, times=times).most_tokens())
        for kind, times in (("half", np.full(40, 0.5)), ("whole", np.ones(40, dtype=int)))
    }
    assert [most.max() for most, _ in batches["half"]].count(31) == 1
    assert sum(int(most.sum()) for most, _ in batches["whole"]) == sources.sum()


def test_a_fraction_has_the_lengths_of_all_and_each_pair_equally_often_after_some_epochs():
    random = np.random.default_rng(5)
    lengths = random.integers(1, 60, size=(2, 7_000)).astype(np.int32)
    order = BatchOrder(*lengths, batch_tokens=900, seed=3, times=np.full(7_000, 0.4))
    epochs = [np.concatenate(batches) for batches in epochs_of(order, 5)]
    assert {rows.size for rows in epochs} == {2_800}
    assert (np.bincount(np.concatenate(epochs), minlength=7_000) == 2).all()
    means = [lengths[1][rows].mean() for rows in epochs]
    assert max(means) - min(means) < 60 / 2_800  # chance alone would give 15 times as much
    assert max(means) == pytest.approx(lengths[1].mean(), abs=0.02)
    filled = [lengths[1][rows].sum() for rows in order.batches()]
    assert np.mean(filled) > 0.95 * 900


def test_windows_and_general_text_go_with_fractions():
    lengths = np.random.default_rng(7).integers(1, 38, size=(2, 3 * BLOCK)).astype(np.int32)
    weights = np.repeat([0.25, 1.5, 1.0], BLOCK)
    order = BatchOrder(*lengths, batch_tokens=400, seed=1, times=weights, window=BLOCK)
    seen = [np.bincount(np.concatenate(batches) // BLOCK) for batches in epochs_of(order, 2)]
    assert [some.tolist() for some in seen] == [[BLOCK // 4, BLOCK * 3 // 2, BLOCK]] * 2
    mixed = {"epochs": 3, "num_new": 2 * BLOCK}
    order = BatchOrder(*lengths, batch_tokens=10_000_000, seed=1, times=weights, **mixed)
    rows = [order.rows(step) for step in range(8)]
    counts = [np.bincount(some // BLOCK).tolist() for some in rows]
    assert {tuple(some[:2]) for some in counts} == {(BLOCK // 4, BLOCK * 3 // 2)}
    new = np.bincount(np.concatenate(rows), minlength=2 * BLOCK)[: 2 * BLOCK]
    assert [set(new[:BLOCK]), set(new[BLOCK:])] == [{2}, {12}]
    assert sum(some[2] for some in counts[:3]) == BLOCK


def test_whole_weights_have_the_order_of_earlier_versions():
    drawn = np.random.Philox(key=np.array([3, 4], dtype=np.uint64)).random_raw(2 * 3_011)
    lengths = (drawn.reshape(2, -1) % 37 + 1).astype(np.int32)
    times = np.arange(3_011) % 3 + 1
    digests = set()
    for weights in (times, times.astype(np.float64)):
        order = BatchOrder(*lengths, batch_tokens=401, seed=9, times=weights)
        rows = np.concatenate([order.rows(step) for step in range(400)])
        digests.add(hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest())
    assert digests == {"c626880a6c6b31e3ea3f7a8a14d8bba03b87fa415e5c9d4d6f4e30c5a0e9c8e1"}


def test_a_window_has_pairs_from_everywhere_and_its_place_changes_every_epoch():
    lengths = np.full(40 * BLOCK, 7, dtype=np.int32)
    order = BatchOrder(lengths, lengths, batch_tokens=7 * 512, seed=3, window=10 * BLOCK)
    per_window, num_windows = 20, 4
    assert order.batches_per_epoch == per_window * num_windows
    epochs = []
    for epoch in range(6):
        steps = range(epoch * order.batches_per_epoch, (epoch + 1) * order.batches_per_epoch)
        rows = np.stack([order.rows(step) for step in steps]).reshape(num_windows, -1)
        epochs.append([frozenset((some // BLOCK).tolist()) for some in rows])
    assert {len(blocks) for blocks in epochs[0]} == {10}
    assert all(min(blocks) < 15 and max(blocks) >= 25 for blocks in epochs[0])
    assert all(set(windows) == set(epochs[0]) for windows in epochs)
    assert len({tuple(windows) for windows in epochs}) > 1


def test_a_corpus_of_one_window_has_the_order_of_earlier_versions():
    drawn = np.random.Philox(key=np.array([3, 4], dtype=np.uint64)).random_raw(2 * 3_011)
    lengths = (drawn.reshape(2, -1) % 37 + 1).astype(np.int32)
    for window in (None, 3_011):
        order = BatchOrder(*lengths, batch_tokens=401, seed=9, window=window)
        assert order.batches_per_epoch == 150
        rows = np.concatenate([order.rows(step) for step in range(300)])
        digest = hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()
        assert digest == "486a4b678c392aded4f325ee433a568159b58312e5ef9b80baf5790600c34a0c"


@pytest.mark.parametrize(("window", "filled"), [(None, 0.93), (4_096, 0.90)])
def test_neighbours_are_alike_so_that_little_is_padded(window, filled):
    random = np.random.default_rng(2)
    targets = random.integers(5, 60, size=9_973).astype(np.int32)
    sources = (targets * random.normal(1.0, 0.2, size=targets.size)).clip(1).astype(np.int32)
    order = BatchOrder(sources, targets, batch_tokens=1_009, seed=1, window=window)
    padded = sum(
        lengths[rows].max() * rows.size
        for rows in map(order.rows, range(order.batches_per_epoch))
        for lengths in (sources, targets)
    )
    assert (sources.sum() + targets.sum()) / padded > filled


def test_order_of_no_pairs_is_refused():
    with pytest.raises(ValueError, match="no pair"):
        BatchOrder(np.zeros(0, np.int32), np.zeros(0, np.int32), batch_tokens=7, seed=1)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=23), st.integers(1, 60), st.booleans())
def test_parts_are_small_enough_and_together_the_step(lengths, limit, ordered):
    table = np.array([999, *(sorted(lengths) if ordered else lengths)], dtype=np.int32)
    rows = np.arange(1, table.size)
    parts = split(rows, table, limit)
    np.testing.assert_array_equal(np.concatenate(parts), rows)
    for part in parts:
        assert part.size == 1 or (part.size and table[part].max() * part.size <= limit)
    for part, following in pairwise(parts):
        joined = np.append(part, following[0])
        assert table[joined].max() * joined.size > limit


@given(st.lists(st.integers(1, 30), min_size=1, max_size=23), st.integers(1, 9))
def test_shares_are_neighbours_of_about_as_many_tokens(lengths, count):
    table = np.array([999, *sorted(lengths)], dtype=np.int32)
    rows = np.arange(1, table.size)
    found = shares(rows, table, count)
    assert len(found) == count
    np.testing.assert_array_equal(np.concatenate(found), rows)
    for share in found:
        assert abs(table[share].sum() - sum(lengths) / count) <= max(lengths)


def test_target_is_shifted_right_and_both_sides_are_padded(tmp_path):
    store = make_store(tmp_path / "s.arrow", [3, 1, 5], [4, 2, 1])
    batch = collate(store, np.array([2, 0, 1]), pad_id=PAD, bos_id=BOS)
    assert batch.source.tolist() == [[12, 12, 12, 12, EOS], [10, 10, EOS, PAD, PAD], [EOS, PAD, PAD, PAD, PAD]]
    assert batch.target_in.tolist() == [[BOS, 0, 0, 0], [BOS, 1_000, 1_000, 1_000], [BOS, 1_001, PAD, PAD]]
    assert batch.target_out.tolist() == [[EOS, 0, 0, 0], [1_000, 1_000, 1_000, EOS], [1_001, EOS, PAD, PAD]]
    assert batch.source.dtype == batch.target_in.dtype == batch.target_out.dtype == torch.int64
    assert batch.num_target_tokens == 7
    assert batch.rows == (2, 0, 1)


@settings(deadline=None, max_examples=20)
@given(corpora(), st.integers(1, 97))
def test_validation_sees_every_pair_once_in_the_same_order(tmp_path_factory, corpus, batch_tokens):
    store = make_store(tmp_path_factory.mktemp("valid") / "s.arrow", *corpus)
    batches = list(valid_batches(store, batch_tokens, pad_id=PAD, bos_id=BOS))
    rows = np.array([row for batch in batches for row in batch.rows])
    assert sorted(rows.tolist()) == list(range(len(store)))
    assert (np.diff(store.target_lengths[rows]) >= 0).all()
    assert sum(batch.num_target_tokens for batch in batches) == store.target_lengths.sum()
    assert all(len(batch.rows) == 1 or batch.target_out.numel() <= batch_tokens for batch in batches)
    again = valid_batches(store, batch_tokens, pad_id=PAD, bos_id=BOS)
    assert [batch.rows for batch in again] == [batch.rows for batch in batches]
