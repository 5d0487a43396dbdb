from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from clearhead.model import Transformer


@pytest.fixture
def make_sharp_model(make_model) -> Callable[..., Transformer]:
    """Return a function like `make_model` whose models are sure of themselves: no two hypotheses come near a tie.

    The matrices of the layers are scaled up more than the embedding, or the shared embedding would repeat its input.
    """

    def make(**settings: object) -> Transformer:
        model = make_model(**{"norm": "pre", "num_encoder_layers": 1, "num_decoder_layers": 2, **settings})
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() == 2:
                    weight.mul_(2.0 if weight is model.source_embedding.weight else 4.0)
        return model

    return make


@pytest.fixture
def make_sources() -> Callable[..., list[list[int]]]:
    """Return a function that draws source ids of given lengths, each ended by the end token (id 2)."""

    def make(lengths: tuple[int, ...], vocab_size: int = 37) -> list[list[int]]:
        return [[*torch.randint(3, vocab_size, (length - 1,)).tolist(), 2] for length in lengths]

    return make
