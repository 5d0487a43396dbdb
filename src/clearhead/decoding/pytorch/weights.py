"""Packed model weights, with encoder and decoder step; in fp32 with the same numbers as `Transformer`.

Projections of the same input are joined into one product, matrices are stored in the layout that the product reads, and
the rows of a decoding step may be at different positions. The sublayers themselves are documented in `clearhead.model`;
this file only arranges their work efficiently. Cross-attention weights of given pairs are those of `Transformer`.

Shapes: B sentences, S source length, N slots (sentences in flight), K beams, R rows (the active beams of all slots),
D d_model, V vocabulary, rounded up to whole blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config import DecodePrecision
from clearhead.config.known import ANY, COMMON, EITHER, POSITIONS, Known, unknown_settings
from clearhead.decoding.pytorch.slots import SlotCache, SlotRows
from clearhead.errors import ModelError
from clearhead.kernels.products import Product, make_product
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.decoder import DecoderLayer
from clearhead.model.embeddings import Embedding
from clearhead.model.encoder import EncoderLayer
from clearhead.model.feed_forward import FeedForward
from clearhead.model.module_state import departure, unknown_parts
from clearhead.model.other_positions import rotary_positions
from clearhead.model.residual import Residual
from clearhead.model.transformer import Transformer
from clearhead.runtime.device import keep_freed_memory

PACKED: Known = {
    **COMMON,
    "norm_kind": ANY,  # the model's own modules are called
    "activation": ANY,  # likewise
    "output_transform": EITHER,
    "num_target_segments": ANY,
    "positions": (*POSITIONS, "relative", "none"),
    "tying": ANY,  # the model's own matrices are packed
}
"""The settings that this file computes; a module with others computes itself (`module_engine`)."""

BLOCK = 32
"""Block size of the two-stage search for the best tokens; see `candidates.best_tokens`."""

Turns = tuple[Float[Tensor, "R half"], Float[Tensor, "R half"]] | None
"""Cosines and sines of rotary positions, one row each."""


class PackedModel:
    """The packed weights of a `Transformer` with a decoder.

    It computes no gradients: use it inside `torch.inference_mode`.

    Args:
        model: A model in evaluation mode.
        precision: Precision of the matrix products; `fp32` gives the model's own numbers.

    Raises:
        DeviceError: If the model's device cannot compute in that precision.
        ModelError: If the model computes something else than its configuration says.
    """

    def __init__(self, model: Transformer, precision: DecodePrecision = "fp32") -> None:
        if reason := unpackable(model):
            raise ModelError(f"{reason}: packed weights would compute another model; use `make_engine`")
        output = model.output_proj
        self.output_weight = output.weight.detach()
        self.output_bias = None if output.bias is None else output.bias.detach()
        self.precision = precision
        self.config = model.config
        self.device = model.device
        self.dtype = torch.float32
        if (half := half_precision(precision, model.device)) is not None:
            model, precision, self.dtype = deepcopy(model).to(half), "fp32", half  # its products are its own
        self.model = model
        if self.device.type == "cpu":
            keep_freed_memory()
        decoder_layers = [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        encoder_layers = () if model.config.is_decoder_alone else tuple(model.encoder.layers)
        self._encoder_layers = [
            _PackedEncoderLayer(layer, precision) for layer in encoder_layers if isinstance(layer, EncoderLayer)
        ]
        self._layers = [_PackedDecoderLayer(layer, precision) for layer in decoder_layers]
        self.num_layers, self.kv_width = len(self._layers), sum(self._layers[0].self_attn.widths[1:])
        cross = [layer.cross_attn for layer in decoder_layers if layer.cross_attn is not None]
        parts = [part for a in cross for part in (a.k_proj, a.v_proj)]
        self._memory_projection = _joined(parts, precision) if parts else None
        output = model.output_proj
        extra = -len(output.weight) % BLOCK
        self._output = make_product(
            [functional.pad(output.weight, (0, 0, 0, extra))],
            [None if output.bias is None else functional.pad(output.bias, (0, extra))],
            precision,
            is_output=True,
        )

    def cache(self, beam_size: int, max_slots: int) -> SlotCache:
        """Return an empty key-value cache for this model's decoder."""
        return SlotCache(
            num_layers=self.num_layers,
            kv_width=self.kv_width,
            beam_size=beam_size,
            max_slots=max_slots,
            device=self.device,
            dtype=self.dtype,
            knows_distances=self.model.decoder.relative_positions is not None,
        )

    def encode(self, source: Int[Tensor, "B S"]) -> Float[Tensor, "L B S W"]:
        """Return the cross-attention keys and values of every decoder layer, concatenated."""
        assert self._memory_projection is not None, "a decoder alone has no source; see `past`"
        source = source.to(self.device)
        is_token = source != self.config.pad_id
        mask = torch.where(is_token, 0.0, float("-inf")).to(self.dtype)[:, None, None, :]
        if self.model.encoder.relative_positions is not None:
            mask = mask + self.model.encoder.relative_positions(source.size(1))  # (B, H, S, S)
        x = self.model.source_embedding(source).flatten(0, 1)
        positions = torch.arange(source.size(1), device=self.device).repeat(len(source))
        turns = _turns(self._encoder_layers[0].self_attn, positions, source.size(1))
        for layer in self._encoder_layers:
            x = layer(x, mask, turns)
        keys_and_values = self._memory_projection(self.model.encoder.final_norm(x))
        return keys_and_values.view(*source.shape, len(self._layers), -1).permute(2, 0, 1, 3)

    def past(self, target: list[int]) -> Float[Tensor, "L T W"]:
        """Return the keys and values of every layer of a decoder-only model for the beginning of a text."""
        if not target:
            return torch.empty(self.num_layers, 0, self.kv_width, dtype=self.dtype, device=self.device)
        _, cache = self.model.decode(torch.tensor([target], device=self.device))
        pasts = [layer.past for layer in cache.layers if layer.past is not None]
        return torch.stack([torch.cat([part[0].transpose(0, 1).flatten(1) for part in past], dim=1) for past in pasts])

    def hidden_states(
        self,
        newest: Int[Tensor, " R"],
        pasts: Float[Tensor, "L slots places W"],
        memories: Float[Tensor, "L slots positions W"],
        rows: SlotRows,
    ) -> Float[Tensor, "R D"]:
        """Run one decoder step and return the hidden states of the newest tokens.

        Args:
            newest: The newest token of each row.
            pasts: Keys and values of the earlier positions; those of the newest tokens are added.
            memories: Keys and values of the source.
            rows: Slot, beam and position of each row.
        """
        x = _embedded(self.model.target_embedding, newest, rows.positions, rows.longest)
        turns = _turns(self._layers[0].self_attn, rows.positions, rows.longest)
        mask = rows.past_mask  # (N, 1, K, P)
        if self.model.decoder.relative_positions is not None:
            assert rows.distances is not None
            mask = mask + self.model.decoder.relative_positions.at(rows.distances).permute(0, 2, 1)[:, :, None]
        for layer, past, memory in zip(self._layers, pasts, memories, strict=True):
            x = layer(x, past, memory, rows, mask, turns)
        x = self.model.output_transform(self.model.decoder.final_norm(x))
        return x / math.sqrt(self.config.d_model) if self.config.output_scale else x

    def log_probs(
        self, hidden_states: Float[Tensor, "R D"], unlisted: Bool[Tensor, "N vocabulary"] | None = None
    ) -> Float[Tensor, "R V"]:
        """Return the log-probabilities of each row's next token; minus infinity beyond the vocabulary.

        Args:
            hidden_states: The decoder's final hidden states; with a shortlist, equally many rows of each sentence.
            unlisted: True for tokens that the shortlist of a sentence lacks; they have no share of the probability.
        """
        logits = self._output(hidden_states).float()  # a sum over the vocabulary needs float32
        logits[:, self.config.vocab_size :] = float("-inf")
        if unlisted is not None:
            of_sentences = logits[:, : self.config.vocab_size].unflatten(0, (len(unlisted), -1))  # (N, K, V)
            of_sentences.masked_fill_(unlisted[:, None], float("-inf"))
        # In place on a CPU: it is the largest tensor of a step, and a second one would evict it from the cache.
        return torch.log_softmax(logits, dim=-1, out=logits if logits.device.type == "cpu" else None)


def half_precision(precision: DecodePrecision, device: torch.device) -> torch.dtype | None:
    """Return the type in which a GPU computes all but probabilities; None if products alone are rounded, or nothing."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision) if device.type != "cpu" else None


def unpackable(model: Transformer) -> str | None:
    """Return the reason why packed weights would not compute a model; None if they do."""
    if unknown := unknown_settings(model.config, PACKED):
        return f"no engine knows {', '.join(unknown)}"
    if kinds := {weight.dtype for weight in model.parameters()} - {torch.float32}:
        return f"no engine packs weights in {str(kinds.pop()).removeprefix('torch.')}"
    others = [name for name in unknown_parts(model) if not {"norm", "final_norm"} & set(name.split("."))]
    return f"no engine knows the class of {others[0] or 'the model'}" if others else departure(model)


def _turns(attention: _PackedAttention, positions: Int[Tensor, " R"], longest: int) -> Turns:
    """Return the rotary cosines and sines of the rows' positions, for all layers; None without rotary positions."""
    if attention.rotary is None:
        return None
    cos, sin = attention.rotary.cos_and_sin(longest)
    return cos[positions], sin[positions]


def _joined(projections: Sequence[nn.Linear], precision: DecodePrecision) -> Product:
    """Return one product that applies several projections to the same rows."""
    return make_product([p.weight for p in projections], [p.bias for p in projections], precision)


class _PackedFeedForward:
    def __init__(self, module: FeedForward, precision: DecodePrecision) -> None:
        self.up = _joined([module.up_proj], precision)
        # A separate product, because the activation needs it contiguous.
        self.gate = None if module.gate_proj is None else _joined([module.gate_proj], precision)
        self.down = _joined([module.down_proj], precision)
        self.activation = module.activation
        self.is_relu = module.activation is functional.relu

    def __call__(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        if self.gate is not None:
            hidden = self.activation(self.gate(x)) * hidden
        else:
            hidden = hidden.relu_() if self.is_relu else self.activation(hidden)
        return self.down(hidden)


class _PackedAttention:
    """One joined product for self-attention's queries, keys and values; for cross-attention only the queries."""

    def __init__(self, module: MultiHeadAttention, precision: DecodePrecision, *, is_cross: bool = False) -> None:
        projections = [module.q_proj, module.k_proj, module.v_proj]
        self.num_heads = module.num_heads
        self.rotary = module.rotary
        self.scale = None if module.scale else 1.0
        self.widths = [p.out_features for p in projections]
        self.project = _joined(projections[:1] if is_cross else projections, precision)
        self.out = _joined([module.out_proj], precision)

    def queries_and_keys(self, x: Tensor, turns: Turns) -> tuple[Tensor, Tensor]:
        """Return the queries of R rows, and their keys and values concatenated, with rotary positions applied."""
        q, kv = self.project(x).split([self.widths[0], sum(self.widths[1:])], dim=-1)
        if turns is not None:
            k, v = kv.split(self.widths[1:], dim=-1)
            kv = torch.cat([self._turn(k, *turns), v], dim=-1)
            q = self._turn(q, *turns)
        return q, kv

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = x.view(1, len(x), self.num_heads, -1).transpose(1, 2)  # (1, H, R, K)
        return rotary_positions(heads, cos, sin).transpose(1, 2).flatten(2)[0]

    def attend(
        self, q: Float[Tensor, "B T Q"], kv: Float[Tensor, "B S W"], mask: Float[Tensor, "B H #T S"]
    ) -> Float[Tensor, "B T V"]:
        """Attend from queries to concatenated keys and values."""
        k, v = kv.split(self.widths[1:], dim=-1)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (q, k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)
        return attended.transpose(1, 2).flatten(2)


class _PackedEncoderLayer:
    def __init__(self, layer: EncoderLayer, precision: DecodePrecision) -> None:
        self.layer = layer
        self.self_attn = _PackedAttention(layer.self_attn, precision)
        self.feed_forward = _PackedFeedForward(layer.feed_forward, precision)

    def __call__(self, x: Float[Tensor, "BS D"], mask: Float[Tensor, "B H #S S"], turns: Turns) -> Tensor:
        residual, shape = self.layer.self_attn_residual, (mask.size(0), mask.size(-1))
        q, kv = self.self_attn.queries_and_keys(_before(residual, x), turns)
        attended = self.self_attn.attend(q.unflatten(0, shape), kv.unflatten(0, shape), mask)
        x = _after(residual, x, self.self_attn.out(attended.flatten(0, 1)))
        return self.layer.feed_forward_residual.add_and_norm(x, self.feed_forward)


class _PackedDecoderLayer:
    def __init__(self, layer: DecoderLayer, precision: DecodePrecision) -> None:
        self.layer = layer
        self.self_attn = _PackedAttention(layer.self_attn, precision)
        cross = layer.cross_attn
        self.cross_attn = None if cross is None else _PackedAttention(cross, precision, is_cross=True)
        self.cross_attn_residual = layer.cross_attn_residual
        self.feed_forward = _PackedFeedForward(layer.feed_forward, precision)

    def __call__(
        self, x: Tensor, past: Tensor, memory: Tensor, rows: SlotRows, mask: Tensor, turns: Turns
    ) -> Float[Tensor, "R D"]:
        """Apply the layer to rows of (R, D). `past`, (slots, places, W), is extended; `memory` is read-only."""
        residual = self.layer.self_attn_residual
        q, kv = self.self_attn.queries_and_keys(_before(residual, x), turns)
        past.flatten(0, 1).index_copy_(0, rows.places, kv)
        attended = self.self_attn.attend(rows.spread(q), rows.past(past), mask)
        x = _after(residual, x, self.self_attn.out(rows.gather(attended)))

        if self.cross_attn is not None and self.cross_attn_residual is not None:
            q = self.cross_attn.project(_before(self.cross_attn_residual, x))
            attended = self.cross_attn.attend(rows.spread(q), rows.memory(memory), rows.memory_mask)
            x = _after(self.cross_attn_residual, x, self.cross_attn.out(rows.gather(attended)))
        return self.layer.feed_forward_residual.add_and_norm(x, self.feed_forward)


def _before(residual: Residual, x: Tensor) -> Tensor:
    """Return the input of a sublayer, normalized in pre-norm models; see `Residual.add_and_norm`."""
    return residual.norm(x) if residual.is_pre else x


def _after(residual: Residual, x: Tensor, update: Tensor) -> Tensor:
    """Return the residual sum of a sublayer, normalized in post-norm models."""
    return x + update if residual.is_pre else residual.norm(x + update)


def _embedded(embedding: Embedding, ids: Tensor, positions: Tensor, longest: int) -> Tensor:
    x = functional.embedding(ids, embedding.weight) * embedding.scale
    if embedding.positions is not None:
        x = x + embedding.positions(0, longest)[positions]
    if embedding.segments is not None:
        x = x + embedding.segments.weight[0]
    return x if embedding.norm is None else embedding.norm(x)


def cross_attention_weights(
    model: Transformer, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]
) -> list[Float[Tensor, "B H T S"]]:
    """Return the cross-attention weights of each layer: one row for each target token, at the step that writes it.

    Args:
        model: An encoder-decoder in evaluation mode.
        source: Source ids, ended by `eos_id` and padded.
        target: Target ids, ended by `eos_id` and padded.
    """
    start = target.new_full((len(target), 1), model.config.bos_id)
    return model.attention_weights(source, torch.cat([start, target[:, :-1]], dim=1)).cross
