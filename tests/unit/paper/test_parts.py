"""Tables, paragraphs and matrices are lines a reader can follow, and a check that fails is told."""

from __future__ import annotations

import pytest

from clearhead.paper.parts import Check, ModelPart, aligned, check_lines, magnitude, matrix_lines, paragraph


def test_columns_are_as_wide_as_their_longest_cell():
    lines = aligned(["a", "long name", "n"], [["x", "y", "1,234"], ["wide cell", "", "5"]], left=2, indent=1)
    assert lines == [
        " a          long name      n",
        " ---------  ---------  -----",
        " x          y          1,234",
        " wide cell                 5",
    ]


def test_aligned_rejects_rows_of_another_length():
    with pytest.raises(ValueError, match="zip"):
        aligned(["a", "b"], [["x"]])


def test_a_tie_keeps_words_on_one_line():
    lines = paragraph("word " * 21 + "n~<~2~d holds")
    assert lines[0] == ""
    assert all(len(line) <= 116 for line in lines)
    assert any("n < 2 d" in line for line in lines)
    assert " ".join(lines[1:]) == "word " * 21 + "n < 2 d holds"


def test_matrices_are_written_row_below_row():
    assert matrix_lines("Q K^T", [[1.25, -3.0]], "scores", digits=2) == ["  Q K^T        [  1.25  -3.00 ]  scores"]


def test_magnitude_is_zero_a_power_of_ten_or_inf():
    assert [magnitude(value) for value in (0.0, 1.23e-16, float("inf"))] == ["0", "1e-16", "inf"]


def test_failures_are_the_checks_that_do_not_hold():
    checks = (Check("kept", True, "1"), Check("broken", False, "2 instead of 3"))
    part = ModelPart("title", "text\n", checks=checks)
    assert part.failures == ["broken: 2 instead of 3"]
    assert check_lines(checks) == ["  ok      kept: 1", "  FAILED  broken: 2 instead of 3"]
