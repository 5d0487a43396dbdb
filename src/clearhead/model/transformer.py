"""The Transformer, whole (paper figure 1). Start reading here, then encoder.py, decoder.py and attention.py.

Shapes: B sentences, R rows of targets (B, or B times the beams of a sentence), S source length, T target length,
D d_model, H heads, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.cache import DecoderCache
from clearhead.model.decoder import Decoder, DecoderWeights
from clearhead.model.embeddings import Embedding
from clearhead.model.encoder import Encoder
from clearhead.model.masks import padding_mask

__all__ = ["AttentionWeights", "Transformer"]


@dataclass
class AttentionWeights:
    """What every head attended to, one tensor a layer; each row of the last axis sums to 1."""

    encoder: list[Float[Tensor, "B H S S"]]
    decoder: list[Float[Tensor, "B H T T"]]
    cross: list[Float[Tensor, "B H T S"]]


class Transformer(nn.Module):
    """An encoder-decoder Transformer; the defaults of `ModelConfig` give the paper's base model.

    >>> import clearhead as ch
    >>> model = ch.Transformer(ch.presets.tiny(vocab_size=97))
    >>> logits = model(torch.randint(3, 97, (2, 7)), torch.randint(3, 97, (2, 5)))
    >>> tuple(logits.shape)
    (2, 5, 97)
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(vocab_size=config.vocab_size, d_model=config.d_model, dropout=config.dropout)
        self.encoder = Encoder(
            num_layers=config.num_encoder_layers,
            d_model=config.d_model,
            d_ff=config.d_ff,
            num_heads=config.num_heads,
            dropout=config.dropout,
            norm=config.norm,
        )
        self.decoder = Decoder(
            num_layers=config.num_decoder_layers,
            d_model=config.d_model,
            d_ff=config.d_ff,
            num_heads=config.num_heads,
            dropout=config.dropout,
            norm=config.norm,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw fresh weights: Xavier-uniform matrices, zero biases, unit norms.

        The paper does not say how it starts; this is its reference implementation's choice (tensor2tensor: uniform unit
        scaling over fan-average, embeddings normal with deviation d_model ** -0.5).
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        nn.init.normal_(self.embedding.weight, std=self.config.d_model**-0.5)

    def forward(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Score the token after each target position.

        Args:
            source: Source ids, ended by `eos_id`, padded with `pad_id`.
            target: Target ids shifted right: `bos_id` first, then the target up to its last token but one.
        """
        return self.embedding.logits(self.states(source, target))

    def states(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return the decoder's states, which `forward` multiplies with the embedding to get its logits."""
        memory, memory_mask = self.encode(source)
        cache = DecoderCache.empty(len(self.decoder.layers))
        return self.decoder(self.embedding(target), memory, memory_mask, cache)

    def encode(self, source: Int[Tensor, "B S"]) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "B S"]]:
        """Return the memory, and which of its positions hold a token."""
        mask = padding_mask(source, self.config.pad_id)
        memory, _ = self.encoder(self.embedding(source), mask)
        return memory, mask

    def decode(
        self,
        target: Int[Tensor, "R T"],
        memory: Float[Tensor, "B S D"],
        memory_mask: Bool[Tensor, "B S"],
        cache: DecoderCache | None = None,
    ) -> tuple[Float[Tensor, "R T V"], DecoderCache]:
        """Score the token after each of the given target positions.

        Args:
            target: Target ids shifted right, or with a cache only the newest of them (T = 1). R may be a multiple of B:
                the rows of one sentence stand side by side.
            memory: From `encode`.
            memory_mask: From `encode`.
            cache: What the previous call returned; None at the start.
        """
        cache = cache or DecoderCache.empty(len(self.decoder.layers))
        embedded = self.embedding(target, start=cache.length)
        return self.embedding.logits(self.decoder(embedded, memory, memory_mask, cache)), cache

    def attention_weights(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> AttentionWeights:
        """Run the same forward pass and return what every head attended to."""
        mask = padding_mask(source, self.config.pad_id)
        memory, encoder = self.encoder(self.embedding(source), mask, return_weights=True)
        weights = DecoderWeights()
        cache = DecoderCache.empty(len(self.decoder.layers))
        self.decoder(self.embedding(target), memory, mask, cache, weights)
        return AttentionWeights(encoder=encoder, decoder=weights.self_attn, cross=weights.cross_attn)

    def num_parameters(self) -> int:
        """Return the number of weights; the shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())
