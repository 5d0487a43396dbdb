from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from clearhead.model import Transformer


@pytest.fixture
def encoded(make_model, make_batch) -> Callable[..., tuple[Transformer, Tensor, Tensor, Tensor]]:
    """Return a function that makes a model in float64, target ids, and the memory of three sources with its mask."""

    def make(target: tuple[int, ...] = (4, 7, 1), **settings: object) -> tuple[Transformer, Tensor, Tensor, Tensor]:
        model = make_model(**settings).double()
        source, ids = make_batch(model.config, target=target)
        return model, ids, *model.encode(source)

    return make
