"""The complete Transformer (paper figure 1). Start reading here, then encoder.py, decoder.py and attention.py.

Shapes: B sentences, R rows of targets (B, or B times the beams of a sentence), S source length, T target length,
D d_model, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.cache import DecoderCache
from clearhead.model.decoder import Decoder
from clearhead.model.embeddings import Embedding, OutputProjection, OutputTransform
from clearhead.model.encoder import Encoder
from clearhead.model.initial_weights import draw_initial_weights
from clearhead.model.masks import padding_mask
from clearhead.model.module_state import note_methods
from clearhead.model.other_positions import LearnedPositions, RotaryPositions
from clearhead.model.packing import Packing
from clearhead.model.positions import SinusoidalPositions, make_positions
from clearhead.model.recorder import NOTHING, AttentionWeights, HiddenStates, Recorder
from clearhead.model.sublayers import make_norm


class Transformer(nn.Module):
    """An encoder-decoder Transformer; the defaults of `ModelConfig` give the paper's base model.

    Without decoder layers it is encoder-only (BERT; use `encode`). Without encoder layers it is decoder-only (GPT;
    there is no source and no cross-attention).

    >>> import clearhead as ch
    >>> model = ch.Transformer(ch.presets.tiny(vocab_size=97))
    >>> logits = model(torch.randint(3, 97, (2, 7)), torch.randint(3, 97, (2, 5)))
    >>> tuple(logits.shape)
    (2, 5, 97)
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        has_encoder, has_decoder = config.num_encoder_layers > 0, config.num_decoder_layers > 0
        if has_encoder:
            self.source_embedding = self._embedding(config.source_vocabulary, num_segments=config.num_segments)
            self.encoder = Encoder(config)
        if has_decoder:
            self.target_embedding = self._embedding(config.vocab_size, num_segments=config.num_target_segments)
            self.decoder = Decoder(config)
            self.output_transform = (
                OutputTransform(d_model=config.d_model, activation=config.activation, norm=make_norm(config))
                if config.output_transform
                else nn.Identity()
            )
            self.output_proj = OutputProjection(
                vocab_size=config.vocab_size, d_model=config.d_model, bias=config.output_bias
            )
            # "We share the same weight matrix between the two embedding layers and the pre-softmax linear
            # transformation" (section 3.4).
            if has_encoder and config.tying in ("three-way", "embeddings"):
                self.target_embedding.weight = self.source_embedding.weight
            if config.tying in ("three-way", "decoder"):
                self.output_proj.weight = self.target_embedding.weight
        if self.device.type != "meta":  # no values to draw there, and PyTorch would take seconds to find out
            draw_initial_weights(self, config)

    def _embedding(self, vocab_size: int, *, num_segments: int) -> Embedding:
        config = self.config
        return Embedding(
            vocab_size=vocab_size,
            d_model=config.d_model,
            dropout=config.dropout,
            positions=make_positions(config),
            scale=config.embedding_scale,
            norm=make_norm(config) if config.embedding_norm else None,
            num_segments=num_segments,
        )

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def forward(self, source: Int[Tensor, "B S"] | None, target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Score the token after each target position.

        Args:
            source: Source ids, ended by `eos_id`, padded with `pad_id`; None for a decoder-only model.
            target: Target ids shifted right: `bos_id` first, then the target without its last token.

        Raises:
            ValueError: If the model lacks a side that is used, or a side lacks its input.
        """
        memory, memory_mask = (None, None) if source is None else self.encode(source)
        states = self.states(target, memory, memory_mask)
        return self.output_proj(states)

    def encode(
        self,
        source: Int[Tensor, "B S"],
        segments: Int[Tensor, "B S"] | None = None,
        recorder: Recorder = NOTHING,
    ) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "B S"]]:
        """Return the memory, and the mask of its positions that hold a token.

        Args:
            source: Source ids, padded with `pad_id`.
            segments: Segment of each token, if the model has segments; all 0 if not given.
            recorder: What to record.

        Raises:
            ValueError: If the model has no encoder, or segments are given and it has none.
        """
        if self.config.num_encoder_layers == 0:
            raise ValueError("a decoder alone (model.num_encoder_layers = 0) takes no source; give None")
        if segments is not None and self.config.num_segments == 0:
            raise ValueError("this model knows no segments (model.num_segments = 0); give none")
        mask = padding_mask(source, self.config.pad_id)
        return self.encoder(self.source_embedding(source, segments=segments), mask, recorder), mask

    def states(
        self,
        target: Int[Tensor, "R T"],
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "B S"] | None = None,
        cache: DecoderCache | None = None,
        recorder: Recorder = NOTHING,
    ) -> Float[Tensor, "R T D"]:
        """Return the decoder states, from which the output projection computes logits.

        Args:
            target: Target ids shifted right, or with a cache only the newest of them (T = 1). R may be a multiple of B:
                the rows of one sentence are adjacent.
            memory: Memory from `encode`; None for a decoder-only model.
            memory_mask: Mask from `encode`.
            cache: Cache of earlier calls, extended by the new positions; None to cache nothing.
            recorder: What to record.

        Raises:
            ValueError: If the model has no decoder, a memory is missing or not expected, or several positions follow
                cached ones.
        """
        if self.config.num_decoder_layers == 0:
            raise ValueError("an encoder alone (model.num_decoder_layers = 0) takes no target; use encode")
        if memory is None and self.config.num_encoder_layers > 0:
            raise ValueError("this model has an encoder: its decoder needs a source, or the memory from encode")
        if memory is not None and self.config.num_encoder_layers == 0:
            raise ValueError("a decoder alone (model.num_encoder_layers = 0) takes no memory; give None")
        embedded = self.target_embedding(target, start=0 if cache is None else cache.length)
        return self._before_output(self.decoder(embedded, memory, memory_mask, cache, recorder))

    def packed_states(
        self, source: Int[Tensor, " S"], target: Int[Tensor, " T"], packing: Packing
    ) -> Float[Tensor, "T D"]:
        """Return the decoder states of packed rows, as `encode` and `states` compute them for each sentence alone.

        Call `reserve_positions` first.

        Args:
            source: Source ids of all sentences, one after another.
            target: Target ids shifted right, likewise.
            packing: Where the sentences lie.
        """
        memory = self.encoder(self.source_embedding(source.unsqueeze(0), packing.source_places), packing)
        embedded = self.target_embedding(target.unsqueeze(0), packing.target_places)
        return self._before_output(self.decoder(embedded, memory, packing)).squeeze(0)

    def reserve_positions(self, length: int) -> None:
        """Make the tables of positions long enough for sentences of so many tokens.

        Raises:
            ConfigError: If the model has learned positions, and fewer.
        """
        for module in self.modules():
            if isinstance(module, SinusoidalPositions | LearnedPositions):
                module(0, length)
            elif isinstance(module, RotaryPositions):
                module.cos_and_sin(length)

    def logits(self, hidden: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch V"]:
        """Return the logits of decoder states after the final norm, such as the last of `HiddenStates`."""
        return self.output_proj(self._before_output(hidden))

    def _before_output(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        states = self.output_transform(x)
        return states / math.sqrt(self.config.d_model) if self.config.output_scale else states

    def decode(
        self,
        target: Int[Tensor, "R T"],
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "B S"] | None = None,
        cache: DecoderCache | None = None,
        recorder: Recorder = NOTHING,
    ) -> tuple[Float[Tensor, "R T V"], DecoderCache]:
        """Score the token after each target position, and return the logits with the cache for the next call.

        The arguments are those of `states`.
        """
        cache = cache or DecoderCache.empty(self.config.num_decoder_layers)
        states = self.states(target, memory, memory_mask, cache, recorder)
        return self.output_proj(states), cache

    def attention_weights(
        self, source: Int[Tensor, "B S"] | None, target: Int[Tensor, "B T"] | None
    ) -> AttentionWeights:
        """Return the attention weights of every head in the pass of `forward`; of the encoder only if no target."""
        weights = AttentionWeights()
        self.record(Recorder(weights), source, target)
        return weights

    def hidden_states(
        self,
        source: Int[Tensor, "B S"] | None,
        target: Int[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B S"] | None = None,
    ) -> HiddenStates:
        """Return the input of every layer and the output of the last, in the pass of `forward`.

        Args:
            source: Source ids, as for `forward`.
            target: Target ids, as for `forward`; None to run the encoder only.
            segments: Segment of each source token, as for `encode`.
        """
        hidden = HiddenStates()
        self.record(Recorder(hidden=hidden), source, target, segments)
        return hidden

    def record(
        self,
        recorder: Recorder,
        source: Int[Tensor, "B S"] | None,
        target: Int[Tensor, "B T"] | None,
        segments: Int[Tensor, "B S"] | None = None,
    ) -> None:
        """Run the pass of `forward`, or that of the encoder only if there is no target, for what it records."""
        memory, memory_mask = (None, None) if source is None else self.encode(source, segments, recorder)
        if target is not None:
            self.states(target, memory, memory_mask, recorder=recorder)

    def num_parameters(self) -> int:
        """Return the number of weights; a shared matrix is counted once."""
        return sum(parameter.numel() for parameter in self.parameters())


note_methods(Transformer)  # before anyone can replace one; see `module_state.departure`
