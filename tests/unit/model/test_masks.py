"""Masks: True means may attend."""

from __future__ import annotations

import pytest
import torch

from clearhead.model.masks import causal_mask, padding_mask


@pytest.mark.parametrize("pad_id", [0, 5])
def test_padding_mask_is_true_at_tokens(pad_id):
    ids = torch.tensor([[7, 3, 2], [7, 2, pad_id], [2, pad_id, pad_id]])
    assert padding_mask(ids, pad_id).tolist() == [[True, True, True], [True, True, False], [True, False, False]]


def test_causal_mask_lets_each_position_see_itself_and_the_past():
    mask = causal_mask(7)
    assert mask.dtype == torch.bool
    for query in range(7):
        assert mask[query].tolist() == [key <= query for key in range(7)]
