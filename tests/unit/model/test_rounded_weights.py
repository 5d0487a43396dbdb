"""Weights in 8 bits and in bfloat16: the roundings by hand and by the core, and what is refused."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytest

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.kernels.library import library
from clearhead.kernels.panels import make_product
from clearhead.model.rounded_weights import RoundedWeights, stored_headers

NAME = "decoder.layers.0.feed_forward.up_proj.weight"


def matrix(rows: int = 256, inputs: int = 64) -> np.ndarray:
    """Return random rows of very different sizes."""
    chance = np.random.default_rng(3)
    sizes = np.float32(10.0) ** chance.uniform(-30, 30, (rows, 1)).astype(np.float32)
    return chance.standard_normal((rows, inputs), dtype=np.float32) * sizes


def rounded(array: np.ndarray, precision: str = "int8") -> RoundedWeights:
    return RoundedWeights.of({NAME: array}, precision, origin="a test")


def test_a_row_has_its_own_scale_and_63_levels():
    # Largest 6.3: the scale is 0.1, -0.25 lies between -2 and -3 and goes to the even level.
    found = rounded(np.array([[6.3, -0.16, 0.0], [0.0, -63.0, 30.5]], dtype=np.float32))
    assert found.stored[NAME].dtype == np.int8
    np.testing.assert_array_equal(found.stored[NAME], [[63, -2, 0], [0, -63, 30]])
    np.testing.assert_array_equal(found.stored[NAME + "_scale"], np.float32([6.3, 63]) / np.float32(63))
    np.testing.assert_allclose(found[NAME], [[6.3, -0.2, 0.0], [0.0, -63.0, 30.0]], rtol=1e-6)


def test_bfloat16_keeps_the_upper_16_bits_rounded_to_even():
    # 1 + 2**-8 is half way between 1 and 1 + 2**-7; 1 + 3 * 2**-8 between 1 + 2**-7 and 1 + 2**-6.
    values = np.array([[1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8 - 2**-20, 0.0]], dtype=np.float32)
    np.testing.assert_array_equal(rounded(values, "bf16")[NAME], [[1.0, 1 + 2**-6, -1 - 2**-7, 0.0]])


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_rounding_what_was_rounded_changes_nothing(precision):
    once = rounded(matrix(10_000), precision)
    again = rounded(once[NAME], precision)
    for name, array in once.stored.items():
        np.testing.assert_array_equal(array, again.stored[name])


@pytest.mark.skipif(library() is None, reason="compares with the compiled core")
@pytest.mark.parametrize("precision", ["int8", "bf16"])
@pytest.mark.parametrize("array", [matrix(), np.full((32, 64), 1e-40, np.float32)], ids=["random", "tiny"])
def test_the_core_packs_the_same_from_the_rounded_weights(precision, array):
    packed, again = (make_product(one, None, precision) for one in (array, rounded(array, precision)[NAME]))
    for name in ("panels", "scales"):
        first, second = ((product._kept or {}).get(name) for product in (packed, again))
        assert (first is None) == (second is None) == (name == "scales" and precision == "bf16")
        if first is not None:
            np.testing.assert_array_equal(first, second)
    if precision == "int8":
        np.testing.assert_array_equal((packed._kept or {})["scales"], rounded(array).stored[NAME + "_scale"])


def test_norms_and_biases_and_positions_stay_in_float32():
    config = ModelConfig(vocab_size=50, d_model=8, num_heads=2, d_ff=16, positions="learned", num_encoder_layers=1)
    headers = stored_headers(config, "int8")
    in_float = {name for name, header in headers.items() if header.dtype == "F32" and not name.endswith("_scale")}
    assert all(name.endswith((".bias", "norm.weight", ".positions.weight")) for name in in_float)
    assert headers["source_embedding.weight"].dtype == "I8"
    assert headers["source_embedding.weight_scale"].shape == (50,)
    assert stored_headers(config, "bf16")["source_embedding.weight"].dtype == "U16"
    assert {header.dtype for header in stored_headers(config).values()} == {"F32"}


def test_a_matrix_in_float32_is_shared_while_it_is_used_and_freed_afterwards():
    found = rounded(matrix())
    first = found[NAME]
    assert found[NAME] is first
    del first
    gc.collect()
    assert not found._in_use


def test_a_copy_by_pickle_has_the_same_weights():
    found = rounded(matrix())
    copy = pickle.loads(pickle.dumps(found))
    assert (list(copy), len(copy), copy.precision) == ([NAME], 1, "int8")
    assert [name in copy for name in (NAME, NAME + "_scale", "other")] == [True, False, False]
    np.testing.assert_array_equal(copy[NAME], found[NAME])


@pytest.mark.parametrize("scale", [np.nan, np.inf, 0.0, -1.0, 5.5e36])  # 63 times the last is above 3.4e38
def test_non_positive_or_too_large_scales_are_rejected(scale):
    stored = dict(rounded(matrix(3)).stored)
    stored[NAME + "_scale"] = np.float32([1, scale, 1])
    with pytest.raises(ModelError, match=rf"model: {NAME}_scale: the scale of row 1 is .* must be a positive number"):
        RoundedWeights("int8", stored, origin="model")


def test_a_level_out_of_bounds_is_refused():
    stored = dict(rounded(matrix(3)).stored)
    stored[NAME] = np.full((3, 64), -128, np.int8)
    with pytest.raises(ModelError, match="its levels must be between -63 and 63"):
        RoundedWeights("int8", stored, origin="model")


@pytest.mark.parametrize("precision", ["int8", "bf16"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_rounded(precision, value):
    array = matrix(3)
    array[1, 2] = value
    with pytest.raises(ModelError, match=f"a test: {NAME} contains numbers that are not finite"):
        rounded(array, precision)
