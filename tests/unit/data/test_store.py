"""The store: what is written comes back by row, over any number of record batches, without being loaded."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data import store as store_module
from clearhead.data.store import EpochWeights, ListLengths, PairStore, RowWeights, StoreWriter, _Lists
from clearhead.errors import DataError
from clearhead.formats import SentencePair


def write(path, rows):
    with StoreWriter(path) as writer:
        for row in rows:
            writer.append(*row)
    assert writer.num_rows == len(rows)
    return PairStore.open(path)


def example_rows(count):
    return [(f"Quelle {n} ä€𝄞", f"t{n}\r\u2028", list(range(n % 7)), [n] * (n % 5 + 1)) for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 4_095, 4_096, 4_097, 9_973])
def test_pair_store_round_trips_over_any_number_of_record_batches(tmp_path, count):
    rows = example_rows(count)
    store = write(tmp_path / "s.arrow", rows)
    assert len(store) == count
    assert store.source_lengths[:].tolist() == [len(row[2]) for row in rows]
    assert store.target_lengths[:].tolist() == [len(row[3]) for row in rows]
    assert store.source_lengths[:].dtype == store.target_lengths[:].dtype == np.int32
    for n in {*range(min(count, 11)), *range(max(0, count - 3), count), *range(0, count, 487)}:
        assert store.source(n) == rows[n][0]
        assert store.target(n) == rows[n][1]
        assert store.source_ids(n).tolist() == rows[n][2]
        assert store.target_ids(n).tolist() == rows[n][3]


ids = st.lists(st.integers(0, 2**31 - 1), max_size=5)


@settings(deadline=None)
@given(st.lists(st.tuples(st.text("aä𝄞", max_size=5), st.text("b\n", max_size=5), ids, ids), max_size=23))
def test_pair_store_round_trips_any_rows_in_small_batches(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("store") / "s.arrow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "BATCH_ROWS", 7)
        patch.setattr(store_module, "BATCH_CHARACTERS", 29)
        store = write(path, rows)
    back = [
        (store.source(n), store.target(n), store.source_ids(n).tolist(), store.target_ids(n).tolist())
        for n in range(len(store))
    ]
    assert back == rows


def test_numpy_row_numbers_are_rows(tmp_path):
    store = write(tmp_path / "s.arrow", example_rows(11))
    assert store.source(np.int64(3)) == "Quelle 3 ä€𝄞"


@pytest.mark.parametrize("row", [-1, 11])
def test_row_outside_the_store_is_refused(tmp_path, row):
    store = write(tmp_path / "s.arrow", example_rows(11))
    with pytest.raises(IndexError, match=f"row {row} of a store of 11"):
        store.target_ids(row)


def test_ids_are_views_of_the_mapped_file(tmp_path):
    store = write(tmp_path / "s.arrow", example_rows(4_999))
    before = pa.total_allocated_bytes()
    values = [store.target_ids(n) for n in range(len(store))]
    assert pa.total_allocated_bytes() == before
    assert not any(value.flags.owndata or value.flags.writeable for value in values)


def test_lines_of_a_megabyte_fit(tmp_path):
    store = write(tmp_path / "s.arrow", [("x" * 1_000_003, "y", [5] * 300_007, [1])] * 37)
    assert store.source_lengths[:].tolist() == [300_007] * 37
    assert len(store.source(36)) == 1_000_003


def test_missing_store_is_named_with_the_way_out(tmp_path):
    with pytest.raises(DataError, match=r"s\.arrow is missing; run the same command with --fresh"):
        PairStore.open(tmp_path / "s.arrow")


@pytest.mark.parametrize("keep", [0, 5, 0.3, 0.99])
def test_cut_off_store_is_refused(tmp_path, keep):
    path = tmp_path / "s.arrow"
    write(path, example_rows(1_009))
    size = os.path.getsize(path)
    os.truncate(path, keep if isinstance(keep, int) else int(keep * size))
    with pytest.raises(DataError, match=r"s\.arrow is damaged .*--fresh"):
        PairStore.open(path)


def test_store_with_disordered_positions_is_refused(tmp_path):
    path = tmp_path / "s.arrow"
    write(path, [("a", "b", [7] * 3, [9] * 2), ("c", "d", [7] * 3, [9] * 2)])
    content = path.read_bytes()
    positions = np.array([0, 3, 6], dtype=np.int32).tobytes()
    assert content.count(positions) == 1
    path.write_bytes(content.replace(positions, np.array([0, 3, 600], dtype=np.int32).tobytes()))
    with pytest.raises(DataError, match=r"s\.arrow is damaged"):
        PairStore.open(path)


def test_arrow_file_with_other_columns_is_refused(tmp_path):
    path = str(tmp_path / "s.arrow")
    schema = pa.schema([("x", pa.int32())])
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema):
        pass
    with pytest.raises(DataError, match="is not a file of prepared pairs"):
        PairStore.open(path)


def test_directory_is_refused(tmp_path):
    with pytest.raises(DataError, match="is damaged"):
        PairStore.open(tmp_path)


def test_unwritable_store_is_a_clear_error(tmp_path):
    with pytest.raises(DataError, match=r"cannot write .*no/s\.arrow"), StoreWriter(tmp_path / "no" / "s.arrow"):
        pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_is_a_clear_error():
    def fill(writer):
        for row in example_rows(9_973):
            writer.append(*row)

    with pytest.raises(DataError, match=r"cannot write /dev/full.*No space left"), StoreWriter("/dev/full") as writer:
        fill(writer)


@given(st.lists(st.integers(0, 9), max_size=31), st.data())
def test_lengths_of_any_rows_are_those_of_the_lists(sizes, data):
    cut = data.draw(st.integers(0, len(sizes)))
    arrays = [pa.array([[7] * size for size in some], pa.list_(pa.int32())) for some in (sizes[:cut], sizes[cut:])]
    lengths = ListLengths([_Lists(array) for array in arrays], [0, cut, len(sizes)])
    rows = data.draw(st.lists(st.sampled_from(range(len(sizes))), max_size=40)) if sizes else []
    assert lengths[np.array(rows, dtype=np.int64)].tolist() == [sizes[row] for row in rows]
    assert lengths[::2].tolist() == sizes[::2]
    assert lengths.sum() == sum(sizes)
    for row in (-1, len(sizes)):
        with pytest.raises(IndexError, match=f"not among the {len(sizes)} of"):
            lengths[np.array([*rows, row])]


def test_weights_of_rows_are_those_of_their_runs():
    weights = RowWeights([[3, 2], [1, 4], [5, 1]])
    assert weights[np.array([6, 0, 1, 2, 5])].tolist() == [5, 3, 3, 1, 1]
    assert len(weights) == 7
    assert weights[np.arange(7)].dtype == np.int64
    assert RowWeights([[0.25, 2], [3, 1]])[np.array([2, 0])].tolist() == [3.0, 0.25]


def test_temperature_gives_each_entry_the_root_of_its_size():
    files = {"large": 1, "small": 2, "more": 2}
    parts = [EpochWeights({"more": 3}, files) for _ in range(2)]
    for part, counted in zip(
        parts, ({"large": 700, "small": 20}, {"small": 10, "more": 70, "of-lines": 200}), strict=True
    ):
        for file, count in counted.items():
            for line in range(count):
                part.add_of(SentencePair("a", "b", f"{file}:{line}"))
    together, _ = parts
    for run in parts[1].added():
        together.add(*run)
    assert together.runs == [[1, 700], [1, 30], [3, 70], [1, 200]]
    together.temper(1.0)
    assert [weight for weight, _ in together.runs] == pytest.approx([1, 1, 3, 1])
    together.temper(5.0)
    roots = {700: 700**0.2, 100: 100**0.2, 200: 200**0.2}
    of_size = {size: 1_000 * root / sum(roots.values()) / size for size, root in roots.items()}
    assert together.runs == [
        [pytest.approx(of_size[700]), 700],
        [pytest.approx(of_size[100]), 30],
        [pytest.approx(3 * of_size[100]), 70],
        [pytest.approx(of_size[200]), 200],
    ]
    assert sum(size * weight for size, weight in of_size.items()) == pytest.approx(1_000)


def test_temperature_leaves_entries_of_one_size_as_they_are():
    weights = EpochWeights({}, {})
    for entry in (1, 2):
        weights.add(1, 6, entry)  # 12 * (6 ** 0.2 / (2 * 6 ** 0.2)) / 6 is above 1 in floating point
    weights.temper(5.0)
    assert weights.runs == [[1, 6], [1, 6]]
