"""Line-aligned files: what lines up is streamed; what does not is refused with the place where it went wrong."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
from written_files import written_lines as written

from clearhead.errors import DataError
from clearhead.files.streams import read_lines
from clearhead.formats.pair import SentencePair
from clearhead.formats.parallel_lines import drift_line, read_parallel


@pytest.fixture
def captions(data_dir) -> Callable[[str, int], list[str]]:
    """Return a function from a language and a number to that many captions."""

    def read(language: str, count: int) -> list[str]:
        return list(islice(read_lines(str(data_dir("multi30k") / f"train.{language}.gz")), count))

    return read


def test_read_parallel_yields_pairs_in_file_order_with_origins(tmp_path):
    a, b = written(tmp_path / "a.de", ["eins", ""]), written(tmp_path / "a.en", ["one", "two"])
    (tmp_path / "b.de.gz").write_bytes(gzip.compress(b"drei"))
    c, d = str(tmp_path / "b.de.gz"), written(tmp_path / "b.en", ["three"])
    assert list(read_parallel([a, c], [b, d])) == [
        SentencePair("eins", "one", f"{a}:1"),
        SentencePair("", "two", f"{a}:2"),
        SentencePair("drei", "three", f"{c}:1"),
    ]


def test_standard_input_may_be_one_side(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"eins\n")))
    assert list(read_parallel(["-"], [written(tmp_path / "en", ["one"])])) == [SentencePair("eins", "one", "-:1")]


def test_standard_input_cannot_be_both_sides():
    with pytest.raises(DataError, match=r"standard input .* only once"):
        read_parallel(["-"], ["-"])


def test_every_source_file_needs_its_target_file():
    with pytest.raises(DataError, match=r"2 source files but 1 target files.*a, b.*targets: c"):
        read_parallel(["a", "b"], ["c"])
    with pytest.raises(DataError, match="targets: none"):
        read_parallel(["a"], [])


@pytest.mark.parametrize("shorter_side", ["source", "target"])
def test_lost_line_is_reported_with_both_counts_and_its_place(tmp_path, shorter_side, captions):
    sides = {"source": captions("de", 499), "target": captions("en", 499)}
    del sides[shorter_side][211]
    source, target = (written(tmp_path / name, lines) for name, lines in sides.items())
    counts = {"source": "498 lines but .*target has 499", "target": "499 lines but .*target has 498"}[shorter_side]
    with pytest.raises(DataError, match=counts) as caught:
        list(read_parallel([source], [target]))
    line = int(str(caught.value).partition("seem to drift apart near line ")[2])
    assert abs(line - 212) <= 5


def test_file_that_ends_early_is_not_reported_as_drift(tmp_path, captions):
    source, target = written(tmp_path / "de", captions("de", 499)), written(tmp_path / "en", captions("en", 487))
    with pytest.raises(DataError, match=r"de has 499 lines but .*en has 487") as caught:
        list(read_parallel([source], [target]))
    assert "drift" not in str(caught.value)


def test_blank_lines_at_the_end_are_named_as_the_cause(tmp_path):
    source, target = written(tmp_path / "de", ["a", "b"]), written(tmp_path / "en", ["a", "b", "", "", ""])
    with pytest.raises(DataError, match=r"the last 3 of .*en are blank"):
        list(read_parallel([source], [target]))


def test_unequal_line_counts_with_standard_input_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\nc\n")))
    with pytest.raises(DataError, match=r"standard input has 3 lines but .*en has 2"):
        list(read_parallel(["-"], [written(tmp_path / "en", ["a", "b"])]))


def test_empty_file_beside_a_full_one_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has 0 lines but .* has 2"):
        list(read_parallel([written(tmp_path / "de", [])], [written(tmp_path / "en", ["a", "b"])]))


def test_pairs_are_streamed_before_the_end_is_known(tmp_path):
    pairs = read_parallel([written(tmp_path / "de", ["a", "b"])], [written(tmp_path / "en", ["c"])])
    assert next(pairs).target == "c"


@pytest.mark.parametrize("gap", [1, 3, 17])
def test_drift_is_found_wherever_the_gap_is(gap):
    random = np.random.default_rng(gap)
    source = random.integers(5, 200, size=401)
    target = (source * random.normal(1.3, 0.15, size=401)).astype(np.int64).clip(1)
    for line in (0, 97, 350):
        cut = np.delete(target, range(line, line + gap))
        assert drift_line(source, cut) == pytest.approx(line + 1, abs=3)
        assert drift_line(cut, source) == pytest.approx(line + 1, abs=3)


def test_blank_lines_betray_the_drift_where_lengths_say_nothing():
    source, target = np.full(211, 40), np.full(211, 40)
    source[::10] = target[::10] = 0
    line = drift_line(source, np.delete(target, 45))
    assert line is not None
    assert 41 < line <= 51  # anywhere between the two blank lines around the gap


def test_no_drift_is_claimed_of_unrelated_files():
    random = np.random.default_rng(7)
    for count in (23, 211, 4_001):
        lengths = random.integers(5, 200, size=(2, count))
        assert drift_line(lengths[0], lengths[1][:-3]) is None
    assert drift_line(np.array([3, 4]), np.array([], dtype=np.int64)) is None
    assert drift_line(np.array([3, 4]), np.array([3, 4])) is None
