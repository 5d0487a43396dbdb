"""Names and shapes computed from settings are those of the module, for every setting that adds or shares weights."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.model import Transformer
from clearhead.model.weight_shapes import weight_shapes

SMALL = {"vocab_size": 37, "d_model": 12, "d_ff": 10, "num_heads": 3, "num_encoder_layers": 2, "num_decoder_layers": 1}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tying": "none", "source_vocab_size": 29},
        {"tying": "decoder", "source_vocab_size": 29},
        {"tying": "embeddings", "output_bias": True},
        {"num_encoder_layers": 0},
        {"num_encoder_layers": 0, "tying": "embeddings", "output_bias": True},
        {"num_encoder_layers": 0, "tying": "none", "positions": "relative"},
        {"num_decoder_layers": 0, "num_segments": 2, "embedding_norm": True, "positions": "learned"},
        {"num_target_segments": 2, "output_transform": True, "positions": "learned", "max_positions": 7},
        {"positions": "relative", "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9},
        {"positions": "rotary", "d_k": 6, "d_v": 5, "attention_bias": True},
        {"positions": "sinusoidal_t2t", "gated": True, "feed_forward_bias": False},
        {"norm": "pre", "norm_kind": "rms", "embedding_norm": True},
        {"norm": "pre", "final_norm": False},
        {"norm": "post", "final_norm": True, "norm_kind": "rms", "output_transform": True},
    ],
)
def test_names_and_shapes_are_those_of_the_module(settings):
    config = ModelConfig(**{**SMALL, **settings})
    with torch.device("meta"):
        expected = {name: tuple(weight.shape) for name, weight in Transformer(config).named_parameters()}
    assert weight_shapes(config) == expected
