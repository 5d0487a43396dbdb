from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.first_seen import FirstRows, digests_of, mixed


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1), max_size=40)))
def test_the_first_row_of_each_is_remembered_as_a_dictionary_would(batches):
    table, known, first = FirstRows(), {}, 0
    for batch in batches:
        digests = np.array(batch, dtype=np.uint64)
        expected = []
        for row, digest in enumerate(batch, start=first):
            expected.append(known.get(digest, -1))
            known.setdefault(digest, row)
        if batch:
            assert table.add(digests, first).tolist() == expected
            assert table.find(digests).tolist() == [known[digest] for digest in batch]
        first += len(batch)


def test_first_rows_finds_50_000_digests_added_at_once():
    table = FirstRows()
    digests = np.random.default_rng(1).integers(0, 2**64, size=50_000, dtype=np.uint64)
    assert (table.add(digests, 0) == -1).all()
    assert table.find(digests).tolist() == list(range(50_000))
    assert (table.find(digests + np.uint64(1)) == -1).all()


def test_first_rows_keeps_its_digests_when_it_grows():
    table = FirstRows()
    digests = np.random.default_rng(1).integers(0, 2**64, size=5_000, dtype=np.uint64)
    for first in range(0, 5_000, 500):
        assert (table.add(digests[first : first + 500], first) == -1).all()
    assert table.find(digests).tolist() == list(range(5_000))
    assert table.add(digests[:3], 5_000).tolist() == [0, 1, 2]


def test_texts_have_digests_of_their_own_and_pairs_have_an_order():
    one, other = digests_of(["a", "b"]), digests_of(["b", "a"])
    assert one[0] == other[1] != one[1]
    assert mixed(one, other)[0] != mixed(one, other)[1]
