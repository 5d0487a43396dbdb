"""The weights of a model in the structures of the compiled core, and the encoding of source sentences.

Shapes: S source length, E encoder layers, L decoder layers, H heads, W width of keys and values together.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import pointer
from itertools import accumulate, groupby

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from clearhead.config import DecodePrecision
from clearhead.kernels.library import library
from clearhead.kernels.panels import LANES, make_product, uninitialized
from clearhead.kernels.structs import CONSTANTS, STRUCTS, Struct
from clearhead.model.decoder import DecoderLayer
from clearhead.model.embeddings import Embedding
from clearhead.model.encoder import EncoderLayer
from clearhead.model.transformer import Transformer

ENCODED_ROWS = 512
"""Minimum source tokens per encoder batch, exceeded by less than a sentence; their activations fit into the cache."""

FEWEST_POSITIONS = 128
"""Positions allocated at first: enough for most sentences, and a table of them costs little."""


class NativeWeights:
    """The layer stacks of a model: norms and embeddings reference its weights, matrices are packed copies.

    Args:
        model: A model that `NativeEngine.supports`.
        precision: Precision of the matrix products.
    """

    def __init__(self, model: Transformer, precision: DecodePrecision) -> None:
        core = library()
        assert core is not None
        self.core = core
        self.model = model
        self.precision = precision
        # Keeps alive what the structures point to, even if the model gets other weights.
        self._kept = [parameter.detach() for parameter in model.parameters()]
        decoder_layers = [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        cross = [layer.cross_attn for layer in decoder_layers if layer.cross_attn is not None]
        self.encoder = self._stack(
            [layer for layer in model.encoder.layers if isinstance(layer, EncoderLayer)],
            model.encoder.final_norm,
            self._product([part for a in cross for part in (a.k_proj, a.v_proj)]),
        )
        proj = model.output_proj
        output = make_product(proj.weight.detach(), proj.bias, precision)
        self.decoder = self._stack(decoder_layers, model.decoder.final_norm, output)
        self.memory_width = self.encoder.output.outputs
        self._tokens: dict[Embedding, tuple[int, Struct]] = {}
        self._rotary = decoder_layers[0].self_attn.rotary

    def encode(
        self,
        sources: Sequence[Sequence[int]],
        team: Struct | None = None,
        self_attn: Float[np.ndarray, "E H S S"] | None = None,
    ) -> list[Float[np.ndarray, "B LW"]]:
        """Return the cross-attention keys and values of every decoder layer for each sentence.

        They are in blocks of `LANES` positions, with turned keys; see `Slot` in csrc/types.h.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            team: Helper threads.
            self_attn: Receives the attention weights of every encoder layer and head; for a single sentence.

        Raises:
            IndexError: If an id is not in the source vocabulary.
        """
        before = [0, *accumulate(map(len, sources))]
        num_groups = -(-before[-1] // ENCODED_ROWS)
        # Groups as equal in size as whole sentences allow, because a few rows take nearly as long as many.
        groups = groupby(range(len(sources)), lambda number: before[number] * num_groups // before[-1])
        memories: list[np.ndarray] = []
        for _, group in groups:
            memories += self._encode([sources[number] for number in group], team, self_attn)
        return memories

    def _encode(
        self, sources: Sequence[Sequence[int]], team: Struct | None, self_attn: np.ndarray | None
    ) -> list[np.ndarray]:
        lengths = [len(source) for source in sources]
        rows, longest = sum(lengths), max(lengths)
        first, length = np.repeat([np.cumsum([0, *lengths[:-1]]), lengths], lengths, axis=1).astype(np.int32)
        ids = np.concatenate(sources)
        embedding, stack = self.model.source_embedding, self.encoder
        if not 0 <= ids.min() <= ids.max() < len(embedding.weight):  # the core uses them as addresses
            raise IndexError(f"a source id is not in the vocabulary of {len(embedding.weight)}")
        block = list(accumulate((-(-length // LANES) for length in lengths), initial=0))
        memory = uninitialized([block[-1], LANES * self.memory_width])
        struct = STRUCTS["Sources"](num_rows=rows, longest=longest).point(
            token=ids.astype(np.int32),
            position=np.arange(rows, dtype=np.int32) - first,
            first=first,
            length=length,
            block=np.repeat(block[:-1], lengths).astype(np.int32),
            memory=memory,
            self_attn=self_attn,
            scratch=uninitialized([self.core.scratch_size(stack, rows, longest, 0, False)], np.uint8),
        )
        if team is not None:
            struct.team = pointer(team)
        _, tokens = self.tokens(embedding, longest)
        self.core.encode(stack, tokens, struct)
        return np.split(memory, block[1:-1])

    def tokens(self, embedding: Embedding, longest: int) -> tuple[int, Struct]:
        """Return a number of positions, at least `longest`, and the core's structure for embedding tokens there."""
        room, tokens = self._tokens.get(embedding, (0, None))  # read together: other workers may replace both meanwhile
        if tokens is None or longest > room:
            room = max(2 * longest, FEWEST_POSITIONS)
            room = max(longest, min(room, self.model.config.max_length or room))
            self._tokens[embedding] = room, tokens = room, self._make_tokens(embedding, room)
        return room, tokens

    def _make_tokens(self, embedding: Embedding, longest: int) -> Struct:
        tokens = STRUCTS["Tokens"](
            num_ids=self.model.config.vocab_size,
            embedding_scale=embedding.scale,
            embedding_norm=norm_struct(embedding.norm),
        )
        cos, sin = (None, None) if self._rotary is None else self._rotary.cos_and_sin(longest)
        stack = self.model.encoder if embedding is self.model.source_embedding else self.model.decoder
        relative = None
        if stack.relative_positions is not None:
            relative = stack.relative_positions.at(torch.arange(1 - longest, longest)).T.contiguous()
            tokens.reach = longest
        return tokens.point(
            embedding=embedding.weight.detach(),
            positions=None if embedding.positions is None else embedding.positions(0, longest),
            segment=None if embedding.segments is None else embedding.segments.weight.detach(),
            cos=cos,
            sin=sin,
            relative=relative,
        )

    def _stack(
        self, layers: Sequence[EncoderLayer | DecoderLayer], final_norm: nn.Module | None, output: Struct
    ) -> Struct:
        config = self.model.config
        structs = [self._layer(layer) for layer in layers]
        stack = STRUCTS["Stack"](
            d_model=config.d_model,
            num_heads=config.num_heads,
            d_k=config.key_dim,
            d_v=config.value_dim,
            d_ff=config.d_ff,
            num_layers=len(layers),
            is_pre=config.norm == "pre",
            divides_scores=config.attention_scale,
            divides_output=config.output_scale and isinstance(layers[0], DecoderLayer),
            activation=CONSTANTS[config.activation.upper()],
            layers=(STRUCTS["Layer"] * len(structs))(*structs),
            final_norm=norm_struct(final_norm),
            output=output,
        )
        stack.keep("layers", structs)
        return stack

    def _layer(self, layer: EncoderLayer | DecoderLayer) -> Struct:
        attention, feed_forward = layer.self_attn, layer.feed_forward
        struct = STRUCTS["Layer"](
            self_norm=norm_struct(layer.self_attn_residual.norm),
            qkv=self._product([attention.q_proj, attention.k_proj, attention.v_proj]),
            self_out=self._product([attention.out_proj]),
            ff_norm=norm_struct(layer.feed_forward_residual.norm),
            up=self._product([feed_forward.up_proj]),
            down=self._product([feed_forward.down_proj]),
        )
        if feed_forward.gate_proj is not None:
            struct.gate = self._product([feed_forward.gate_proj])
        if isinstance(layer, DecoderLayer) and layer.cross_attn is not None and layer.cross_attn_residual is not None:
            struct.cross_norm = norm_struct(layer.cross_attn_residual.norm)
            struct.query = self._product([layer.cross_attn.q_proj])
            struct.cross_out = self._product([layer.cross_attn.out_proj])
        return struct

    def _product(self, projections: Sequence[nn.Linear]) -> Struct:
        """Return one product that applies several projections to the same rows."""
        biases = [p.bias.detach() for p in projections if p.bias is not None]
        weight = torch.cat([p.weight.detach() for p in projections])
        return make_product(weight, torch.cat(biases) if biases else None, self.precision)


def norm_struct(norm: nn.Module | None) -> Struct:
    """Return the structure of a norm, which references the module's weights; an empty one if it is no norm."""
    match norm:
        case nn.LayerNorm():
            return STRUCTS["Norm"](eps=norm.eps).point(weight=norm.weight.detach(), bias=norm.bias.detach())
        case nn.RMSNorm():
            return STRUCTS["Norm"](eps=norm.eps or torch.finfo(torch.float32).eps, is_rms=True).point(
                weight=norm.weight.detach()
            )
        case _:
            return STRUCTS["Norm"]()
