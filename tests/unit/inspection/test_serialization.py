"""Packed arrays are read again as docs/explanation-json.md says."""

from __future__ import annotations

import base64

import numpy as np
from unpacking import unpacked

from clearhead.inspection.page import packed, packed_rows, packed_weights


def test_three_bytes_keep_the_first_sixteen_bits():
    values = np.float32(np.random.default_rng(3).normal(size=(3, 5, 7)) * 10.0 ** np.arange(-20, 15, 5))
    np.testing.assert_allclose(unpacked(packed(values)), values, rtol=2**-16)
    exact = np.array([0.0, 1.0, -2.5, 1 - 2**-16], dtype=np.float32)
    np.testing.assert_array_equal(unpacked(packed(exact)), exact)
    assert len(base64.b64decode(packed(values)["data"])) == 3 * values.size


def test_two_bytes_keep_weights_to_the_fourth_digit_and_small_ones_in_proportion():
    weights = np.float32(np.random.default_rng(3).random((3, 5, 7)) * 10.0 ** -np.arange(0, 14, 2))
    np.testing.assert_array_less(np.abs(unpacked(packed_weights(weights)) - weights), 2**-15 * weights**0.75)
    exact = np.array([0.0, 1.0], dtype=np.float32)
    np.testing.assert_array_equal(unpacked(packed_weights(exact)), exact)
    assert len(base64.b64decode(packed_weights(weights)["data"])) == 2 * weights.size


def test_bytes_are_rounded_to_a_254th_of_the_largest_of_a_row():
    values = np.float32(np.random.default_rng(4).normal(size=(4, 3, 9)))
    values[0, 0] = 0.0
    found = unpacked(packed_rows(values))
    limits = np.abs(values).max(axis=-1, keepdims=True) / 253
    assert (np.abs(found - values) <= limits).all()
    assert (np.abs(found).max(axis=-1) > 0).sum() == 11
