"""Names and shapes computed from settings are those of the module, for every setting that adds or shares weights."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.model import Transformer
from clearhead.model.weight_shapes import require_listed, weight_shapes

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


def test_a_weight_that_is_not_listed_is_named():
    config = ModelConfig(**SMALL)
    require_listed(config, weight_shapes(config))
    with pytest.raises(ConfigError, match=r"decoder\.scale: the model has \(3,\), and .* lists no such weight"):
        require_listed(config, {**weight_shapes(config), "decoder.scale": (3,)})
    fewer = weight_shapes(config)
    del fewer["decoder.layers.0.feed_forward.up_proj.bias"]
    with pytest.raises(ConfigError, match=r"up_proj\.bias: the model has no such weight"):
        require_listed(config, fewer)
