"""The Transformer of the walk: d_model 4, two heads, one layer a side, and weights that are small integers.

The weights are in `model.toml`.
"""

from __future__ import annotations

import torch

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.feed_forward import FeedForward
from clearhead.model.transformer import Transformer
from clearhead.paper.places import read_table
from clearhead.paper.plain import Matrix

LEARNED = {
    "the cat sleeps": "le chat dort",
    "the cat runs": "le chat court",
    "the mouse sleeps": "la souris dort",
    "the mouse runs": "la souris court",
}
"""The sentences that the model translates rightly; it has learned no others."""
SENTENCE = next(iter(LEARNED))
WORDS = list(dict.fromkeys(" ".join(LEARNED).split()))
"""The words that a sentence may have."""
MOST_WORDS = 8

_TABLE = read_table("walk/model.toml")
EMBEDDING: dict[str, list[float]] = _TABLE["embedding"]
"""The row of each token."""
WEIGHTS: dict[str, dict[str, Matrix]] = _TABLE["weights"]
"""Name of a block -> its matrices, in the order in which the blocks run."""

VOCABULARY = list(EMBEDDING)
"""The tokens in the order of their ids."""

CONFIG = ModelConfig(
    vocab_size=len(VOCABULARY),
    d_model=4,
    d_ff=8,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    pad_id=VOCABULARY.index("<pad>"),
    bos_id=VOCABULARY.index("<s>"),
    eos_id=VOCABULARY.index("</s>"),
)
"""The paper's model, smaller."""


def small_model() -> Transformer:
    """Return the model in float64; its norms have gain 1 and bias 0, as before any training."""
    model = Transformer(CONFIG).double().eval().requires_grad_(requires_grad=False)
    model.source_embedding.weight.copy_(_tensor(list(EMBEDDING.values())))
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    blocks = (encoder.self_attn, encoder.feed_forward, decoder.self_attn, decoder.cross_attn, decoder.feed_forward)
    for block, weights in zip(blocks, WEIGHTS.values(), strict=True):
        if isinstance(block, MultiHeadAttention):
            for projection, letter in ((block.q_proj, "Q"), (block.k_proj, "K"), (block.v_proj, "V")):
                heads = [_tensor(weights[f"W_{head}^{letter}"]) for head in (1, 2)]
                projection.weight.copy_(torch.cat(heads, dim=1).T)  # a linear layer stores W^T
            block.out_proj.weight.copy_(_tensor(weights["W^O"]).T)
        elif isinstance(block, FeedForward):
            for number, layer in ((1, block.up_proj), (2, block.down_proj)):
                layer.weight.copy_(_tensor(weights[f"W_{number}"]).T)
                layer.bias.copy_(_tensor(weights[f"b_{number}"])[0])
    return model


def words_of(text: str) -> list[str]:
    """Return the words of a sentence.

    Raises:
        ConfigError: If there is none, a word that the model does not know, or more than `MOST_WORDS`.
    """
    words = text.casefold().split()
    known = f"the model knows {', '.join(WORDS)}; for example {SENTENCE!r}"
    if unknown := [word for word in dict.fromkeys(words) if word not in WORDS]:
        raise ConfigError(f"the sentence has unknown words: {', '.join(map(repr, unknown[:9]))}; {known}")
    if not 0 < len(words) <= MOST_WORDS:
        raise ConfigError(f"a sentence must have 1 to {MOST_WORDS} words, this one has {len(words)}; {known}")
    return words


def _tensor(matrix: Matrix) -> torch.Tensor:
    return torch.tensor(matrix, dtype=torch.float64)
