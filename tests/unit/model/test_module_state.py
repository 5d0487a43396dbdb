"""A digest of weights changes with any of their bytes, and with their order, in both of its forms."""

from __future__ import annotations

import pytest
import torch

from clearhead.model.module_state import _digest, _digest_on_device


def on_device(tensor):
    return _digest_on_device(tensor.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("digest", [_digest, on_device])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
@pytest.mark.parametrize("shape", [(0,), (3,), (1021, 2), (4_100, 64)])
def test_a_digest_depends_on_every_element_and_its_place(digest, dtype, shape):
    tensor = torch.randint(1, 100, shape).to(dtype)
    before = digest(tensor)
    assert digest(tensor.clone()) == before
    flat = tensor.reshape(-1)
    for place in {0, len(flat) // 2, len(flat) - 1} if len(flat) else ():
        kept = flat[place].item()
        flat[place] = kept + 1
        assert digest(tensor) != before
        flat[place] = kept
    assert digest(tensor) == before
    if len(shape) == 2:
        tensor[0], tensor[-1] = 1, 2
        before = digest(tensor)
        for other in (1, len(tensor) // 2, 1020 if len(tensor) <= 2042 else 2042, len(tensor) - 1):
            tensor[[0, other]] = tensor[[other, 0]]
            assert digest(tensor) != before
            tensor[[0, other]] = tensor[[other, 0]]
    assert digest(tensor) == before or not len(flat)


@pytest.mark.parametrize("digest", [_digest, on_device])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_digest_depends_on_signs(digest, dtype, every):
    tensor = torch.randn(4_084, 128, generator=torch.Generator().manual_seed(7)).to(dtype)  # whole rows of words
    before = digest(tensor)
    tensor[:, every - 1 :: every].neg_()
    assert digest(tensor) != before


def test_a_digest_of_a_transposed_matrix_is_of_its_values():
    matrix = torch.randn(37, 53)
    assert _digest(matrix.t()) == _digest(matrix.t().contiguous())
