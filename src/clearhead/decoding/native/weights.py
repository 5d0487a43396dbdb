"""The weights of a model in the structures of the compiled core, the encoding of sentences, shortlist products.

Shapes: B blocks of positions, L decoder layers, W width of keys and values together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import pointer
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, assert_never

import numpy as np

from clearhead.config import DecodePrecision
from clearhead.decoding.rules import never_written
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.kernels.library import library
from clearhead.kernels.panels import LANES, make_product
from clearhead.kernels.structs import CONSTANTS, STRUCTS, Struct, uninitialized
from clearhead.model.position_tables import relative_rows, require_positions, rotary_table, sinusoid_table
from clearhead.model.stored import StoredModel
from clearhead.runtime.lazy import cached_property

if TYPE_CHECKING:
    from jaxtyping import Float


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

    def __init__(self, model: StoredModel, precision: DecodePrecision) -> None:
        core = library()
        assert core is not None
        self.core = core
        self.model = StoredModel(model.config, model.arrays)  # kept alive, even if the model gets other weights
        self.precision = precision
        config = model.config
        cross = [f"decoder.layers.{number}.cross_attn" for number in range(config.num_decoder_layers)]
        memory = self._product([f"{name}.{part}" for name in cross for part in ("k_proj", "v_proj")])
        self.encoder = self._stack("encoder", config.num_encoder_layers, memory)
        self.decoder = self._stack("decoder", config.num_decoder_layers, self._product(["output_proj"]))
        self.memory_width = self.encoder.output.outputs
        self._tokens: dict[str, tuple[int, Struct]] = {}

    @cached_property
    def greedy_decoder(self) -> Struct | None:
        """The decoder for a greedy search that needs no log-probabilities; None if the output weights are no numbers.

        In float32 it has the output matrix in 8 bits too. In 8 bits every logit is known up to a bound. The few tokens
        that may be the best are compared in float32, so the search finds the same tokens.
        """
        weight, bias = self.model["output_proj.weight"], self.model.get("output_proj.bias")
        magnitudes = np.abs(weight)
        steps = np.maximum(magnitudes.max(axis=1) / CONSTANTS["MOST_LEVEL"], np.finfo(np.float32).tiny)  # as packed
        with np.errstate(over="ignore"):
            sizes = 1.001 * (magnitudes.sum(axis=1) + weight.shape[1] / 2 * steps)
        if not np.isfinite(sizes).all() or not (bias is None or np.isfinite(bias).all()):
            return None  # the ordinary search reports it
        decoder = STRUCTS["Stack"].from_buffer_copy(self.decoder)
        decoder.keep("layers", self.decoder)  # not this object, which keeps the decoder: it would never be freed
        decoder.finds_best_alone = True
        if self.precision == "fp32" and weight.shape[1] % 64 == 0:
            product = make_product(weight, bias, "int8", on_amx=False)  # a stack in float32 configures no tiles
            sizes = np.pad(sizes, (0, product.outputs - len(sizes)))
            decoder.rough = STRUCTS["Rough"](product=product).point(matrix=weight, sizes=sizes)
        return decoder

    def encode(
        self,
        sources: Sequence[Sequence[int]],
        team: Struct | None = None,
        record: Struct | None = None,
    ) -> list[Float[np.ndarray, "B LW"]]:
        """Return the cross-attention keys and values of every decoder layer for each sentence.

        They are in blocks of `LANES` positions, with turned keys; see `Slot` in csrc/types.h.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            team: Helper threads.
            record: The core's `Record` of arrays to fill with intermediate results; for a single sentence.

        Raises:
            IndexError: If an id is not in the source vocabulary.
        """
        before = [0, *accumulate(map(len, sources))]
        num_groups = -(-before[-1] // ENCODED_ROWS)
        # Groups as equal in size as whole sentences allow, because a few rows take nearly as long as many.
        groups = groupby(range(len(sources)), lambda number: before[number] * num_groups // before[-1])
        memories: list[np.ndarray] = []
        for _, group in groups:
            memories += self._encode([sources[number] for number in group], team, record)
        return memories

    def _encode(self, sources: Sequence[Sequence[int]], team: Struct | None, record: Struct | None) -> list[np.ndarray]:
        lengths = [len(source) for source in sources]
        rows, longest = sum(lengths), max(lengths)
        vocabulary, stack = self.model.config.source_vocabulary, self.encoder
        block = list(accumulate((-(-length // LANES) for length in lengths), initial=0))
        ids = np.concatenate(sources)
        if not 0 <= ids.min() <= ids.max() < vocabulary:  # the core uses them as addresses
            raise IndexError(f"a source id is not in the vocabulary of {vocabulary}")
        columns = np.empty((5, rows), dtype=np.int32)  # token, position, first, length, block
        columns[0] = ids
        columns[2:] = np.repeat([[0, *accumulate(lengths[:-1])], lengths, block[:-1]], lengths, axis=1)
        columns[1] = np.arange(rows) - columns[2]
        memory = uninitialized([block[-1], LANES * self.memory_width])
        scratch = uninitialized([self.core.scratch_size(stack, rows, longest, 0, False)], np.uint8)
        struct = STRUCTS["Sources"](num_rows=rows, longest=longest)
        struct.point(memory=memory, scratch=scratch)
        struct.point_into(columns, token=0, position=rows, first=2 * rows, length=3 * rows, block=4 * rows)
        if team is not None:
            struct.team = pointer(team)
        if record is not None:
            struct.record = record
        _, tokens = self.tokens("source_embedding", longest)
        self.core.encode(stack, tokens, struct)
        return np.split(memory, block[1:-1])

    def tokens(self, embedding: str, longest: int) -> tuple[int, Struct]:
        """Return a number of positions, at least `longest`, and the core's structure for embedding tokens there.

        Args:
            embedding: `source_embedding` or `target_embedding`.
            longest: Smallest number of positions.

        Raises:
            ConfigError: If the model has learned positions, and fewer.
        """
        room, tokens = self._tokens.get(embedding, (0, None))  # read together: other workers may replace both meanwhile
        if tokens is None or longest > room:
            room = max(2 * longest, FEWEST_POSITIONS)
            room = max(longest, min(room, self.model.config.max_length or room))
            self._tokens[embedding] = room, tokens = room, self._make_tokens(embedding, room)
        return room, tokens

    def _make_tokens(self, embedding: str, longest: int) -> Struct:
        config, model = self.model.config, self.model
        tokens = STRUCTS["Tokens"](
            num_ids=config.vocab_size,
            embedding_scale=math.sqrt(config.d_model) if config.embedding_scale else 1.0,
            embedding_norm=self._norm(f"{embedding}.norm"),
        )
        positions = cos = sin = relative = None
        match config.positions:
            case "sinusoidal" | "sinusoidal_halves" | "sinusoidal_t2t" as layout:
                positions = sinusoid_table(longest, config.d_model, layout, first=config.first_position)
            case "learned":
                require_positions(longest, config.max_positions)
                positions = model[f"{embedding}.positions.weight"][:longest]
            case "rotary":
                cos, sin = rotary_table(longest, config.key_dim)
            case "relative":
                tokens.reach = longest
                stack = "encoder" if embedding == "source_embedding" else "decoder"
                buckets, farthest = config.relative_attention_num_buckets, config.relative_attention_max_distance
                edges, rows = relative_rows(buckets, farthest, is_causal=stack == "decoder")
                row = rows[np.searchsorted(edges, np.arange(1 - longest, longest), "right")]
                relative = np.ascontiguousarray(model[f"{stack}.relative_positions.weight"][row].T)
            case "none":
                pass
            case unknown:
                assert_never(unknown)
        return tokens.point(
            embedding=model[f"{embedding}.weight"],
            positions=positions,
            segment=model.get(f"{embedding}.segments.weight"),
            cos=cos,
            sin=sin,
            relative=relative,
        )

    def _stack(self, name: str, num_layers: int, output: Struct) -> Struct:
        config = self.model.config
        structs = [self._layer(f"{name}.layers.{number}") for number in range(num_layers)]
        stack = STRUCTS["Stack"](
            d_model=config.d_model,
            num_heads=config.num_heads,
            d_k=config.key_dim,
            d_v=config.value_dim,
            d_ff=config.d_ff,
            num_layers=len(structs),
            is_pre=config.norm == "pre",
            divides_scores=config.attention_scale,
            divides_output=config.output_scale and name == "decoder",
            activation=CONSTANTS[config.activation.upper()],
            layers=(STRUCTS["Layer"] * len(structs))(*structs),
            final_norm=self._norm(f"{name}.final_norm"),
            output=output,
        )
        stack.keep("layers", structs)
        return stack

    def _layer(self, name: str) -> Struct:
        struct = STRUCTS["Layer"](
            self_norm=self._norm(f"{name}.self_attn_residual.norm"),
            qkv=self._product([f"{name}.self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj")]),
            self_out=self._product([f"{name}.self_attn.out_proj"]),
            ff_norm=self._norm(f"{name}.feed_forward_residual.norm"),
            up=self._product([f"{name}.feed_forward.up_proj"]),
            down=self._product([f"{name}.feed_forward.down_proj"]),
        )
        if self.model.config.gated:
            struct.gate = self._product([f"{name}.feed_forward.gate_proj"])
        if name.startswith("decoder"):
            struct.cross_norm = self._norm(f"{name}.cross_attn_residual.norm")
            struct.query = self._product([f"{name}.cross_attn.q_proj"])
            struct.cross_out = self._product([f"{name}.cross_attn.out_proj"])
        return struct

    def _product(self, projections: Sequence[str]) -> Struct:
        """Return one product that applies several projections to the same rows."""
        weights = [self.model[f"{name}.weight"] for name in projections]
        biases = [bias for name in projections if (bias := self.model.get(f"{name}.bias")) is not None]
        return make_product(_joined(weights), _joined(biases) if biases else None, self.precision)

    def _norm(self, name: str) -> Struct:
        """Return the structure of a norm, which references the model's weights; an empty one if there is none."""
        weight, config = self.model.get(f"{name}.weight"), self.model.config
        if weight is None:
            return STRUCTS["Norm"]()
        match config.norm_kind:
            case "layer" | "rms" as kind:
                struct = STRUCTS["Norm"](eps=config.norm_eps, is_rms=kind == "rms")
            case unknown:
                assert_never(unknown)
        return struct.point(weight=weight, bias=self.model.get(f"{name}.bias"))


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class ListedProducts:
    """The packed products of a shortlist.

    Args:
        weights: Packed weights of the model.
        shortlist: A shortlist learned with the same model.

    Raises:
        ModelError: If the shortlist does not fit the model.
    """

    def __init__(self, weights: NativeWeights, shortlist: Shortlist) -> None:
        config, model = weights.model.config, weights.model
        shortlist.check(config)
        self.shortlist = shortlist
        self._weight, self._bias = model["output_proj.weight"], model.get("output_proj.bias")
        # Tokens that are never written keep their share of the probability.
        always = np.array([config.eos_id, *never_written(config)], dtype=np.int32)
        self.common = np.union1d(shortlist.common, always)
        self.decoder = STRUCTS["Stack"].from_buffer_copy(weights.decoder)
        self.decoder.keep("layers", weights)
        self.decoder.output = make_product(self._weight, self._bias, weights.precision, rows=self.common)

    def tokens(self, tokens: Struct) -> Struct:
        """Return a structure for embedding tokens that allows the common tokens alone."""
        listed = STRUCTS["Tokens"].from_buffer_copy(tokens)
        listed.num_ids = len(self.common)
        listed.keep("embedding", tokens)
        return listed.point(ids=self.common)

    def enter(self, slot: Struct, sentence: Sentence) -> None:
        """Create the product with the sentence's own tokens, in its slot."""
        allowed = self.shortlist.tokens_for(sentence)
        if sentence.neighbours is not None:
            allowed = np.union1d(allowed, sentence.neighbours.values)
        own = np.setdiff1d(allowed, self.common, assume_unique=True)
        slot.own = make_product(self._weight, self._bias, "fp32", rows=own)
        slot.point(own_ids=own)
        slot.num_own = len(own)
