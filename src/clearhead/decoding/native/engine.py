"""The inference engine of the compiled core: translation and scoring on the CPU.

Shapes: B targets, T tokens of a target, or of all of them; S source length, N positions of the longest source or
target; E encoder layers, L decoder layers, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import DecodePrecision
from clearhead.config.known import COMMON, POSITIONS, Known, unknown_settings
from clearhead.decoding.engine import Engine
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.native.slots import NativeSlots
from clearhead.decoding.native.weights import NativeWeights
from clearhead.decoding.neighbours import Pair
from clearhead.kernels.library import describe, library
from clearhead.kernels.panels import PANEL
from clearhead.kernels.structs import STRUCTS, Struct, uninitialized
from clearhead.model.stored import StoredModel
from clearhead.runtime.device import keep_freed_memory
from clearhead.runtime.threads import num_threads

if TYPE_CHECKING:
    from jaxtyping import Float

    from clearhead.decoding.native.weights import ListedProducts
    from clearhead.decoding.shortlist import Shortlist
    from clearhead.model.transformer import Transformer


CORE: Known = {
    **COMMON,
    "positions": (*POSITIONS, "relative", "none"),
}
"""The settings that the compiled core and `NativeWeights` compute."""

KEPT_BYTES = 16 * 2**20
"""Freed memory kept for the next sentences; nearly as fast as to keep all, which would be half of the memory."""


class NativeEngine(Engine):
    """An encoder-decoder prepared for the compiled core; see `supports`.

    Results are reproducible bit for bit: each row is computed by itself in one order, whatever the other rows, the
    batch or the number of threads.
    """

    model: Transformer | StoredModel
    consults_neighbours = True
    most_scored = 512
    """More tokens than these would not fit into the processor's cache."""

    def __init__(self, model: Transformer | StoredModel, precision: DecodePrecision = "fp32") -> None:
        stored = StoredModel.of(model)
        assert self.supports(stored, precision)  # the core does not check, and would write out of bounds
        super().__init__(model, precision)
        keep_freed_memory(KEPT_BYTES)
        self.finds_scores = precision == "fp32"
        self.weights = NativeWeights(stored, precision)
        self._listed: ListedProducts | None = None

    @staticmethod
    def supports(model: Transformer | StoredModel, precision: DecodePrecision) -> bool:
        """Return whether the core is available, supports the precision, and supports the model's sizes."""
        return NativeEngine.obstacle(model, precision) is None

    @staticmethod
    def obstacle(model: Transformer | StoredModel, precision: DecodePrecision) -> str | None:
        """Return the reason why the core cannot run a model, or None if it can."""
        config = model.config
        if not config.is_encoder_decoder:
            return "a model without encoder or decoder does not translate"
        if unknown := unknown_settings(config, CORE):
            return f"the compiled core does not compute {', '.join(unknown)}"
        if precision == "fp16":
            return "fp16 translation needs a GPU"
        if library() is None:
            return describe()
        d_k, d_v = config.key_dim, config.value_dim
        step = 64 if precision == "int8" else 32
        if any(width % step for width in (config.d_model, config.d_ff, config.num_heads * d_v)):
            return f"for {precision} the compiled core takes d_model, d_ff and num_heads * d_v in multiples of {step}"
        if d_k % 16 or d_v % 16 or config.num_heads * (d_k + d_v) % PANEL:
            return (
                f"the compiled core takes d_k and d_v in multiples of 16, and num_heads * (d_k + d_v) in multiples of "
                f"{PANEL}"
            )
        if not isinstance(model, StoredModel):  # a stored model has such weights
            if model.device.type != "cpu":
                return f"the compiled core computes on the CPU, and the model is on {model.device}"
            if not all(
                str(weight.dtype) == "torch.float32" and weight.is_contiguous() for weight in model.parameters()
            ):
                return "the compiled core takes contiguous float32 weights"
            from clearhead.model.module_state import departure, unknown_parts

            if reason := departure(model):
                return f"the compiled core computes the model of the configuration, and {reason}"
            if others := unknown_parts(model):
                return f"the compiled core does not know the class of {others[0]}"
        return None

    def num_workers(self, most: int) -> int:
        """Return how many threads should work in parallel, at most `most`."""
        return max(1, min(num_threads(), most))

    def slots(
        self, beam_size: int, max_slots: int, shortlist: Shortlist | None = None, team: Team | None = None
    ) -> NativeSlots:
        """Return the slots of one worker, without a limit on their number; see `engine.Engine`."""
        del max_slots  # memory is allocated per slot
        listed = None if shortlist is None else self._listed_products(shortlist)
        return NativeSlots(self.weights, beam_size, listed, team)

    def _listed_products(self, shortlist: Shortlist) -> ListedProducts:
        """Return the packed products of a shortlist; those of the last shortlist are cached."""
        from clearhead.decoding.native.weights import ListedProducts

        listed = self._listed  # another thread may replace it at any time
        if listed is None or listed.shortlist is not shortlist:
            self._listed = listed = ListedProducts(self.weights, shortlist)
        return listed

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return the log-probability of each target given its source, in nats, by forced decoding.

        All positions of all targets are computed at once, so pass no more than `most_scored` tokens. A score equals,
        bit for bit, the sum of an fp32 search over the same tokens, whatever else is in the batch.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            targets: Target ids of each sentence, ended by `eos_id`.

        Raises:
            IndexError: If an id is not in its vocabulary.
            ValueError: If sources and targets do not pair up, or one has no ids.
        """
        return self._forced(sources, targets)[0].tolist()

    def token_log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " T"]]:
        """Return the log-probability of every target token, in nats; see `score` for their sum."""
        return np.split(self._forced(sources, targets)[1], np.cumsum([len(target) for target in targets])[:-1])

    def _forced(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " T"]]:
        """Return the log-probabilities of the whole targets, and those of all their tokens, concatenated."""
        assert self.precision == "fp32"
        totals, log_probs = np.empty(len(targets), dtype=np.float32), np.empty(sum(map(len, targets)), dtype=np.float32)
        self._compute(sources, targets, totals=totals, log_probs=log_probs)
        return totals, log_probs

    def cross_attention(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, "L H T S"]]:
        """Return for each pair the cross-attention weights of every head, at the steps that write the target.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            targets: Target ids of each sentence, ended by `eos_id`.

        Raises:
            IndexError: If an id is not in its vocabulary.
            ValueError: If sources and targets do not pair up, or one has no ids.
        """
        weights = self._no_weights(sources, targets)
        self._compute(sources, targets, record=STRUCTS["Record"]().point(cross_attn=weights))
        of_targets = np.split(weights, np.cumsum([len(target) for target in targets])[:-1], axis=2)
        return [own[..., : len(source)] for own, source in zip(of_targets, sources, strict=True)]

    def attention(
        self, source: Sequence[int], target: Sequence[int]
    ) -> tuple[Float[np.ndarray, "E H S S"], Float[np.ndarray, "L H T T"], Float[np.ndarray, "L H T S"]]:
        """Return the weights of every head for a pair: encoder and decoder self-attention, and cross-attention.

        Args:
            source: Source ids, ended by `eos_id`.
            target: Target ids, ended by `eos_id`.

        Raises:
            IndexError: If an id is not in its vocabulary.
            ValueError: If one has no ids.
        """
        config = self.model.config
        of_encoder = np.zeros((config.num_encoder_layers, config.num_heads, len(source), len(source)), dtype=np.float32)
        of_decoder, cross = self._no_weights([source], [target]), self._no_weights([source], [target])
        record = STRUCTS["Record"]
        self._compute(
            [source],
            [target],
            record=record().point(self_attn=of_decoder, cross_attn=cross),
            encoder_record=record().point(self_attn=of_encoder),
        )
        return of_encoder, of_decoder[..., : len(target)], cross[..., : len(source)]

    def decoder_states(self, pairs: Sequence[Pair]) -> list[Float[np.ndarray, "T D"]]:
        """Return the decoder's output, after its final norm, at the steps that write the targets of pairs."""
        config, sources, targets = self.model.config, *zip(*pairs, strict=True)
        states = uninitialized([config.num_decoder_layers + 1, sum(map(len, targets)), config.d_model])
        self._compute(sources, targets, record=STRUCTS["Record"]().point(states=states))
        ends = np.cumsum([len(target) for target in targets])[:-1]
        return [own.copy() for own in np.split(states[-1], ends)]

    def _no_weights(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> Float[np.ndarray, "L H T N"]:
        """Return zeros, to receive attention weights of the decoder."""
        config, longest = self.model.config, max(map(len, [*sources, *targets]), default=0)
        return np.zeros((config.num_decoder_layers, config.num_heads, sum(map(len, targets)), longest), np.float32)

    def _compute(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        record: Struct | None = None,
        encoder_record: Struct | None = None,
        **results: Float[np.ndarray, "..."],
    ) -> None:
        """Compute all positions of given targets.

        Args:
            sources: Source ids of each sentence.
            targets: Target ids of each sentence.
            record: The core's `Record` of the decoder's arrays to fill with intermediate results.
            encoder_record: Likewise for the encoder, if there is one source.
            results: The arrays of the core's `Targets` that are to be filled.
        """
        # Checked here too, although `decode.score` checks it, because the core uses lengths and ids as addresses.
        if len(sources) != len(targets) or not all(map(len, [*sources, *targets])):
            raise ValueError("every target needs a source, and each of them its end token at least")
        lengths = [len(target) for target in targets]
        rows, longest = sum(lengths), max(map(len, [*sources, *targets]))
        wanted = np.concatenate(targets)
        vocab_size, bos_id = self.model.config.vocab_size, self.model.config.bos_id
        if not 0 <= wanted.min() <= wanted.max() < vocab_size:
            raise IndexError(f"a target id is not in the vocabulary of {vocab_size}")
        slot, first = np.repeat([np.arange(len(lengths)), np.cumsum([0, *lengths[:-1]])], lengths, axis=1)
        position = np.arange(rows) - first
        columns = {
            "slot": slot,
            "position": position,
            "first": first,
            "length": position + 1,
            "token": np.where(position == 0, bos_id, np.roll(wanted, 1)),
            "wanted": wanted,
        }
        # Not kept from a search: for all lines they need too much memory.
        memories = self.weights.encode(sources, record=encoder_record)
        slots = [
            STRUCTS["Slot"](source_length=len(source)).point(memory=memory)
            for source, memory in zip(sources, memories, strict=True)
        ]
        core, stack = self.weights.core, self.weights.decoder
        struct = STRUCTS["Targets"](
            num_rows=rows, num_slots=len(slots), longest=longest, slots=(STRUCTS["Slot"] * len(slots))(*slots)
        ).point(
            **{name: column.astype(np.int32) for name, column in columns.items()},
            **results,
            scratch=uninitialized([core.scratch_size(stack, rows, longest, 1, False)], np.uint8),
        )
        if record is not None:
            struct.record = record
        _, tokens = self.weights.tokens("target_embedding", longest)
        core.score(stack, tokens, struct)
