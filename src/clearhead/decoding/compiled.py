"""The model for the compiled core, and hypotheses in its memory: what `packed` and `stepper` do in PyTorch.

Shapes: S source length, L decoder layers, W width of keys and values together, K beams, O outputs and
I inputs of a matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import pointer
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config import DecodePrecision
from clearhead.decoding.core import (
    LaneStruct,
    LayerStruct,
    NormStruct,
    ProductStruct,
    StackStruct,
    StepStruct,
    TeamStruct,
    TokensStruct,
    can_multiply,
    describe,
    has_amx,
    library,
)
from clearhead.decoding.packed import fingerprint
from clearhead.decoding.shortlist import Shortlist
from clearhead.decoding.stepper import Beams
from clearhead.decoding.team import Team
from clearhead.device import keep_freed_memory
from clearhead.model.decoder import DecoderLayer
from clearhead.model.embeddings import Embedding
from clearhead.model.encoder import EncoderLayer
from clearhead.model.feed_forward import ACTIVATIONS
from clearhead.model.transformer import Transformer

__all__ = ["CompiledModel", "CompiledStepper", "panelled"]

PANEL = 32
"""Outputs of a matrix, and rows of a result, come in whole blocks of so many."""
ENCODED_ROWS = 512
"""Source tokens encoded at once: what they need stays in the cache."""
FORMS: dict[DecodePrecision, int] = {"fp32": 0, "bf16": 1, "bf16x3": 3, "int8": 8}


class CompiledModel:
    """An encoder-decoder `Transformer` as the compiled core reads it, as long as its weights stay as they are.

    Args:
        model: In evaluation mode; see `supports`.
        precision: Of the matrix products; `fp32` gives the model's own numbers.
    """

    def __init__(self, model: Transformer, precision: DecodePrecision = "fp32") -> None:
        assert self.supports(model, precision)
        core = library()
        assert core is not None
        keep_freed_memory()
        self.core = core
        self.model = model
        self.precision = precision
        self.config = model.config
        self.device = model.device
        self._fingerprint = fingerprint(model)
        # What the structures point to: some of the model's own weights, and matrices in another order.
        self._kept: list[Any] = [parameter.detach() for parameter in model.parameters()]
        decoder_layers = [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
        cross = [layer.cross_attn for layer in decoder_layers if layer.cross_attn is not None]
        self.encoder = self._stack(
            [layer for layer in model.encoder.layers if isinstance(layer, EncoderLayer)],
            model.encoder.final_norm,
            self._product([part for a in cross for part in (a.k_proj, a.v_proj)]),
        )
        output = model.output_proj
        self.decoder = self._stack(
            decoder_layers, model.decoder.final_norm, self._matrix(output.weight.detach(), output.bias)
        )
        self.memory_width = self.encoder.output.outputs
        self._rotary = decoder_layers[0].self_attn.rotary
        self._listed: _ListedProducts | None = None

    @staticmethod
    def supports(model: Transformer, precision: DecodePrecision) -> bool:
        """Tell whether the core is there, can compute in that precision, and has room for a model's widths."""
        return CompiledModel.obstacle(model, precision) is None

    @staticmethod
    def obstacle(model: Transformer, precision: DecodePrecision) -> str | None:
        """Say why the core cannot translate with a model, or return None if it can."""
        config = model.config
        if not (config.num_encoder_layers and config.num_decoder_layers):
            return "a model without encoder or decoder does not translate"
        if library() is None:
            return describe()
        if model.device.type != "cpu":
            return f"the compiled core computes on the CPU, and the model is on {model.device}"
        if not all(weight.dtype == torch.float32 and weight.is_contiguous() for weight in model.parameters()):
            return "the compiled core takes contiguous float32 weights"
        d_k, d_v = config.key_dim, config.value_dim
        step = 64 if precision == "int8" else 32
        if any(width % step for width in (config.d_model, config.d_ff, config.num_heads * d_v)):
            return f"for {precision} the compiled core takes d_model, d_ff and num_heads * d_v in multiples of {step}"
        if d_k % 16 or d_v % 16 or config.num_heads * (d_k + d_v) % PANEL:
            return (
                f"the compiled core takes d_k and d_v in multiples of 16, and num_heads * (d_k + d_v) in multiples of "
                f"{PANEL}"
            )
        if not can_multiply(precision):
            needed = "VNNI" if precision == "int8" else "BF16"
            return (
                f"for {precision} the compiled core needs AMX or AVX-512 {needed}, which this processor does not offer"
            )
        return None

    def is_current(self) -> bool:
        """Tell whether the model still has the weights that were packed; if not, pack it again."""
        return self._fingerprint == fingerprint(self.model)

    def listed_products(self, shortlist: Shortlist) -> _ListedProducts:
        """Return the products of a shortlist; those of the last one are kept, so that not every call packs them."""
        listed = self._listed  # which another thread may replace at any time
        if listed is None or listed.shortlist is not shortlist:
            self._listed = listed = _ListedProducts(self, shortlist)
        return listed

    def encode(self, sources: Sequence[Sequence[int]], team: TeamStruct | None = None) -> list[Float[Tensor, "_ LW"]]:
        """Return the keys and values that cross-attention will ask for, of every decoder layer: (S, L W) of each.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            team: Threads that help with it.

        Raises:
            IndexError: If an id is not in the source vocabulary.
        """
        memories: list[Tensor] = []
        group: list[Sequence[int]] = []
        for source in sources:
            if group and sum(map(len, group)) + len(source) > ENCODED_ROWS:
                memories += self._encode(group, team)
                group = []
            group.append(source)
        return memories + self._encode(group, team) if group else memories

    def _encode(self, sources: Sequence[Sequence[int]], team: TeamStruct | None) -> list[Tensor]:
        lengths = [len(source) for source in sources]
        rows, longest = sum(lengths), max(lengths)
        first, length = np.repeat([np.cumsum([0, *lengths[:-1]]), lengths], lengths, axis=1).astype(np.int32)
        ids = np.concatenate(sources)
        embedding = self.model.source_embedding
        if not 0 <= ids.min() <= ids.max() < len(embedding.weight):
            raise IndexError(f"a source id is not in the vocabulary of {len(embedding.weight)}")
        token, position = ids.astype(np.int32), np.arange(rows, dtype=np.int32) - first
        memory = room([-(-rows // PANEL) * PANEL, self.memory_width])
        scratch = room([self.core.scratch_size(self.encoder, rows, longest, 0, False)], torch.uint8)
        self.core.encode(
            self.encoder,
            self.tokens(embedding, longest),
            rows,
            longest,
            *(array.ctypes.data for array in (token, position, first, length)),
            memory.data_ptr(),
            scratch.data_ptr(),
            team,
        )
        return list(memory[:rows].split(lengths))

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return the log-probability of each target given its source, in nats, by force-decoding.

        All positions of all targets are computed at once, so give no more than belong into the cache together. A score
        is bit for bit what a search in this form adds up for the same tokens, whatever is scored beside it.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            targets: Target ids of each sentence, ended by `eos_id`.

        Raises:
            IndexError: If an id is not in its vocabulary.
            ValueError: If sources and targets do not pair up, or one has no ids.
        """
        if len(sources) != len(targets) or not all(map(len, [*sources, *targets])):
            raise ValueError("every target needs a source, and each of them its end token at least")
        lengths = [len(target) for target in targets]
        rows, longest = sum(lengths), max(map(len, [*sources, *targets]))
        wanted = np.concatenate(targets)
        if not 0 <= wanted.min() <= wanted.max() < self.config.vocab_size:
            raise IndexError(f"a target id is not in the vocabulary of {self.config.vocab_size}")
        lane, first = np.repeat([np.arange(len(lengths)), np.cumsum([0, *lengths[:-1]])], lengths, axis=1)
        position = np.arange(rows) - first
        token = np.where(position == 0, self.config.bos_id, np.roll(wanted, 1))
        columns = np.array([lane, position, first, position + 1, token, wanted], dtype=np.int32)
        log_probs, totals = np.empty(rows, dtype=np.float32), np.empty(len(lengths), dtype=np.float32)
        scratch = room([self.core.scratch_size(self.decoder, rows, longest, 1, False)], torch.uint8)
        memories = self.encode(sources)
        lanes = [LaneStruct(memory=memory.data_ptr(), source_length=len(memory)) for memory in memories]
        self.core.score(
            self.decoder,
            self.tokens(self.model.target_embedding, longest),
            rows,
            len(lanes),
            longest,
            (LaneStruct * len(lanes))(*lanes),
            *(column.ctypes.data for column in columns),
            log_probs.ctypes.data,
            totals.ctypes.data,
            scratch.data_ptr(),
        )
        return totals.tolist()

    def tokens(self, embedding: Embedding, longest: int) -> TokensStruct:
        """Return what the core needs to embed tokens at the first `longest` positions, and to choose new ones."""
        config = self.config
        tokens = TokensStruct(
            num_ids=config.vocab_size,
            eos_id=config.eos_id,
            pad_id=config.pad_id,
            bos_id=config.bos_id,
            embedding=embedding.weight.data_ptr(),
            embedding_scale=embedding.scale,
            embedding_norm=norm_struct(embedding.norm),
        )
        tokens.kept = []
        if embedding.positions is not None:
            tokens.point("positions", embedding.positions(0, longest))
        if embedding.segments is not None:
            tokens.point("segment", embedding.segments.weight)
        if self._rotary is not None:
            cos, sin = self._rotary.cos_and_sin(longest)
            tokens.point("cos", cos)
            tokens.point("sin", sin)
        return tokens

    def _stack(
        self, layers: Sequence[EncoderLayer | DecoderLayer], final_norm: nn.Module | None, output: ProductStruct
    ) -> StackStruct:
        config, attention = self.config, layers[0].self_attn
        structs = (LayerStruct * len(layers))(*map(self._layer, layers))
        self._kept.append(structs)
        return StackStruct(
            d_model=config.d_model,
            num_heads=config.num_heads,
            d_k=attention.q_proj.out_features // config.num_heads,
            d_v=attention.v_proj.out_features // config.num_heads,
            d_ff=config.d_ff,
            num_layers=len(layers),
            is_pre=config.norm == "pre",
            activation=list(ACTIVATIONS).index(config.activation),
            layers=structs,
            final_norm=norm_struct(final_norm),
            output=output,
        )

    def _layer(self, layer: EncoderLayer | DecoderLayer) -> LayerStruct:
        attention, feed_forward = layer.self_attn, layer.feed_forward
        struct = LayerStruct(
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

    def _product(self, projections: Sequence[nn.Linear]) -> ProductStruct:
        """Return the product of projections that meet the same rows."""
        biases = [p.bias.detach() for p in projections if p.bias is not None]
        return self._matrix(torch.cat([p.weight.detach() for p in projections]), torch.cat(biases) if biases else None)

    def _matrix(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> ProductStruct:
        product, kept = make_product(weight, bias, self.precision)
        self._kept += kept
        return product


class CompiledStepper:
    """Hypotheses in flight, in the memory of the compiled core; see `stepper.Stepper`.

    Args:
        model: What translates.
        beam_size: Most hypotheses of a sentence, K.
        shortlist: What each sentence may be written in; None allows the whole vocabulary.
        team: Threads that help with every product.
    """

    spent: Float[np.ndarray, "5"] | None = None
    """Where to add up the seconds of layer products, attention, norms and the like, vocabulary product, and choice."""

    def __init__(
        self, model: CompiledModel, beam_size: int, shortlist: Shortlist | None = None, team: Team | None = None
    ) -> None:
        self.model = model
        self._team = team
        self.beam_size = beam_size
        self.source_lengths: list[int] = []
        self._shortlist = None if shortlist is None else model.listed_products(shortlist)
        self._decoder = model.decoder if self._shortlist is None else self._shortlist.decoder
        self._lanes: list[_Lane] = []
        self._tokens = TokensStruct()
        self._positions = 0  # that the tokens may have
        self._scratch = room([0], torch.uint8)

    def prepare(self, sources: Sequence[Sequence[int]]) -> list[_Lane]:
        """Encode some sentences, and make the lanes that they will have."""
        team = None if self._team is None else self._team.wake()
        lanes = [_Lane(memory, self.beam_size) for memory in self.model.encode(sources, team)]
        if self._shortlist is not None:
            for lane, source in zip(lanes, sources, strict=True):
                self._shortlist.enter(lane, source)
        return lanes

    def enter(self, prepared: Sequence[_Lane]) -> None:
        """Give the next lanes to sentences that were prepared."""
        self._lanes += prepared
        self.source_lengths += [len(lane.memory) for lane in prepared]

    def leave(self, lane: int) -> None:
        """Give up a lane; the last one moves there."""
        self._lanes[lane], self.source_lengths[lane] = self._lanes[-1], self.source_lengths[-1]
        self._lanes.pop()
        self.source_lengths.pop()

    def step(self, flying: Sequence[Beams]) -> list[Iterator[tuple[float, int, int]]]:
        """Take every open hypothesis a token further; see `stepper.Stepper`."""
        for lane, beams in zip(self._lanes, flying, strict=True):
            lane.make_room(beams.length)
        longest = max(beams.length for beams in flying) + 1
        room_for = max(longest, *self.source_lengths)
        if longest > self._positions:
            most = self.model.config.max_length or 2 * longest
            self._positions = max(longest, min(2 * longest, most))
            self._tokens = self.model.tokens(self.model.model.target_embedding, self._positions)
            if self._shortlist is not None:
                self._tokens.point("ids", self._shortlist.common)
                self._tokens.num_ids = len(self._shortlist.common)
        rows = [
            (lane, beam, parent, beams.length, token, beams.is_last)
            for lane, beams in enumerate(flying)
            for beam, (parent, token) in enumerate(zip(beams.parents, beams.newest, strict=True))
        ]
        columns = np.array(rows, dtype=np.int32).T.copy()
        scores = np.array([score for beams in flying for score in beams.scores], dtype=np.float32)
        # A row's end and K other tokens are all that can matter of it; greedy search takes the best, whatever it is.
        count, num_ways = (1, 1) if self.beam_size == 1 else (self.beam_size + 1, 2 * self.beam_size)
        needed = self.model.core.scratch_size(self._decoder, len(rows), room_for, count, True)
        if needed > len(self._scratch):
            self._scratch = room([needed + needed // 4], torch.uint8)
        way_scores = np.empty((len(flying), num_ways), dtype=np.float32)
        ways = np.empty((2, len(flying), num_ways), dtype=np.int32)
        team = None if self._team is None else self._team.wake()
        step = StepStruct(
            len(rows),
            len(flying),
            self.beam_size,
            room_for,
            count,
            num_ways,
            (LaneStruct * len(flying))(*(lane.struct for lane in self._lanes)),
            *(column.ctypes.data for column in columns),
            scores.ctypes.data,
            way_scores.ctypes.data,
            *(part.ctypes.data for part in ways),
            self._scratch.data_ptr(),
            None if team is None else pointer(team),
            None if self.spent is None else self.spent.ctypes.data,
        )
        self.model.core.take_step(self._decoder, self._tokens, step)
        return [
            zip(scores_of_lane, beams_of_lane, tokens_of_lane, strict=True)
            for scores_of_lane, beams_of_lane, tokens_of_lane in zip(way_scores.tolist(), *ways.tolist(), strict=True)
        ]


class _Lane:
    """The memory of a sentence in flight."""

    def __init__(self, memory: Float[Tensor, "S LW"], beam_size: int) -> None:
        self.struct = LaneStruct(memory=memory.data_ptr(), source_length=len(memory))
        self.memory = memory
        self.beam_size = beam_size
        # Room for an output that is not unusually long; the system gives it page by page, as it is used.
        places = (2 * len(memory) + 16) * beam_size
        self.past, self.parents = room([places, memory.size(1)]), room([places], torch.int32)
        self.newest = room([2, beam_size], torch.int32)
        self.struct.newest = self.newest.data_ptr()
        self._point()
        self.own: list[Tensor] = []  # of a shortlist

    def make_room(self, position: int) -> None:
        """Make sure that there is room for a position, even if the beams' pasts have nothing in common."""
        places = (position + 1) * self.beam_size
        if places <= len(self.past):
            return
        self.past, self.parents = _longer(self.past, 2 * places), _longer(self.parents, 2 * places)
        self._point()

    def _point(self) -> None:
        self.struct.past, self.struct.parents = self.past.data_ptr(), self.parents.data_ptr()


class _ListedProducts:
    """The products of a shortlist: one for the tokens that all sentences may use, and one for those of each sentence.

    Products with a sentence's own tokens are in float32, whatever the precision of the others: they are few.
    """

    def __init__(self, model: CompiledModel, shortlist: Shortlist) -> None:
        config, output = model.config, model.model.output_proj
        self.core = model.core
        self.shortlist = shortlist
        self.weight, self.bias = output.weight.detach(), output.bias
        shortlist.check(vocab_size=config.vocab_size, source_vocab_size=config.source_vocab_size or config.vocab_size)
        # Padding and start, which are never written, keep their share of the probability.
        always = torch.tensor([config.eos_id, config.pad_id, config.bos_id])
        self.common = torch.cat([shortlist.common, always]).unique().int()
        bias = None if self.bias is None else self.bias.detach()[self.common]
        product, self._kept = make_product(self.weight[self.common], bias, model.precision)
        self.decoder = StackStruct.from_buffer_copy(model.decoder)
        self.decoder.output = product

    def enter(self, lane: _Lane, source: Sequence[int]) -> None:
        """Give a sentence the product with its own tokens."""
        own = self.shortlist.own_tokens(source).int()
        own = own[~torch.isin(own, self.common)]
        inputs, outputs = self.weight.size(1), -(-len(own) // PANEL) * PANEL
        panels = room([outputs, inputs])
        self.core.gather_panels(self.weight.data_ptr(), own.data_ptr(), len(own), inputs, panels.data_ptr())
        lane.own = [own, panels]
        lane.struct.own = ProductStruct(inputs=inputs, outputs=outputs, form=FORMS["fp32"], panels=panels.data_ptr())
        if self.bias is not None:
            lane.own.append(functional.pad(self.bias.detach()[own], (0, outputs - len(own))))
            lane.struct.own.bias = lane.own[-1].data_ptr()
        lane.struct.own_ids, lane.struct.num_own = own.data_ptr(), len(own)


def make_product(
    weight: Float[Tensor, "O I"],
    bias: Float[Tensor, " O"] | None,
    precision: DecodePrecision,
    *,
    on_amx: bool | None = None,
) -> tuple[ProductStruct, list[Tensor]]:
    """Return the product with a matrix, and what must be kept as long as it is used.

    Rounded forms are computed on AMX, by default where the processor has it, or else by AVX-512's own instructions.
    """
    extra = -len(weight) % PANEL
    panels, scales = panelled(functional.pad(weight, (0, 0, 0, extra)), precision)
    product = ProductStruct(
        inputs=weight.size(1),
        outputs=len(weight) + extra,
        form=FORMS[precision],
        is_on_amx=precision != "fp32" and (has_amx() if on_amx is None else on_amx),
        panels=panels.data_ptr(),
    )
    kept = [panels]
    if scales is not None:
        kept.append(scales)
        product.scales = scales.data_ptr()
    if bias is not None:
        kept.append(functional.pad(bias.detach(), (0, extra)))
        product.bias = kept[-1].data_ptr()
    return product, kept


def panelled(
    weight: Float[Tensor, "O I"], precision: DecodePrecision
) -> tuple[Shaped[Tensor, "..."], Float[Tensor, " O"] | None]:
    """Return a matrix in the order in which the core reads it, and, in 8 bits, the scales of its outputs.

    Args:
        weight: With outputs in whole panels.
        precision: What is multiplied.
    """
    if precision == "fp32":
        return weight.unflatten(0, (-1, PANEL)).transpose(1, 2).contiguous(), None
    scales = None
    if precision == "int8":
        scales = (weight.abs().amax(dim=1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        terms = [(weight / scales[:, None]).round().to(torch.int8)]
    else:
        terms = [weight.bfloat16()]
        if precision == "bf16x3":
            terms.append((weight - terms[0].float()).bfloat16())
    group = 4 if precision == "int8" else 2
    tiles = torch.stack(terms).unflatten(1, (-1, 2, 16)).unflatten(4, (-1, 16, group))
    # term, panel, tile, output, block, group, input -> panel, block, term, tile, group, output, input
    return tiles.permute(1, 4, 0, 2, 5, 3, 6).contiguous(), scales


def norm_struct(norm: nn.Module | None) -> NormStruct:
    """Return a norm whose weights belong to the model; anything but a norm is none."""
    match norm:
        case nn.LayerNorm():
            return NormStruct(norm.weight.data_ptr(), norm.bias.data_ptr(), norm.eps, is_rms=False)
        case nn.RMSNorm():
            return NormStruct(norm.weight.data_ptr(), None, norm.eps or torch.finfo(torch.float32).eps, is_rms=True)
        case _:
            return NormStruct()


def room(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return memory that holds anything.

    Raises:
        MemoryError: If there is not so much.
    """
    try:
        return torch.empty(list(shape), dtype=dtype)
    except RuntimeError as error:
        raise MemoryError(str(error)) from None


def _longer(kept: Tensor, places: int) -> Tensor:
    """Return a copy with room for so many places, which are the first axis."""
    larger = room([places, *kept.shape[1:]], kept.dtype)
    larger[: len(kept)] = kept
    return larger
