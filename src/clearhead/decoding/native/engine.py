"""The inference engine of the compiled core: translation and scoring on the CPU.

Shapes: B targets, T tokens of a target, or of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import DecodePrecision
from clearhead.decoding.engine import Engine
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.native.slots import NativeSlots
from clearhead.decoding.native.weights import NativeWeights
from clearhead.kernels.library import can_multiply, describe, library
from clearhead.kernels.panels import PANEL, uninitialized
from clearhead.kernels.structs import STRUCTS
from clearhead.model.stored import StoredModel
from clearhead.runtime.device import keep_freed_memory, num_threads

if TYPE_CHECKING:
    from jaxtyping import Float

    from clearhead.decoding.native.shortlist import ListedProducts
    from clearhead.decoding.shortlist import Shortlist
    from clearhead.model.transformer import Transformer


class NativeEngine(Engine):
    """An encoder-decoder prepared for the compiled core; see `supports`.

    Results are reproducible bit for bit: each row is computed by itself in one order, whatever the other rows, the
    batch or the number of threads.
    """

    model: Transformer | StoredModel
    most_scored = 512
    """More tokens than these would not fit into the processor's cache."""

    def __init__(self, model: Transformer | StoredModel, precision: DecodePrecision = "fp32") -> None:
        assert self.supports(model, precision)  # the core does not check, and would write out of bounds
        super().__init__(model, precision)
        keep_freed_memory()
        self.finds_scores = precision == "fp32"
        self.weights = NativeWeights(StoredModel.of(model), precision)
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
        if config.num_target_segments or config.output_transform:
            return "the compiled core has no model.num_target_segments and no model.output_transform"
        if library() is None:
            return describe()
        if not isinstance(model, StoredModel):  # a stored model has such weights
            if model.device.type != "cpu":
                return f"the compiled core computes on the CPU, and the model is on {model.device}"
            if not all(
                str(weight.dtype) == "torch.float32" and weight.is_contiguous() for weight in model.parameters()
            ):
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
        from clearhead.decoding.native.shortlist import ListedProducts

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
        totals, log_probs = np.empty(len(lengths), dtype=np.float32), np.empty(rows, dtype=np.float32)
        memories = self.weights.encode(sources)  # not kept from a search: for all lines they need too much memory
        slots = [STRUCTS["Slot"](source_length=len(memory)).point(memory=memory) for memory in memories]
        core, stack = self.weights.core, self.weights.decoder
        struct = STRUCTS["Targets"](
            num_rows=rows, num_slots=len(slots), longest=longest, slots=(STRUCTS["Slot"] * len(slots))(*slots)
        ).point(
            **{name: column.astype(np.int32) for name, column in columns.items()},
            log_probs=log_probs,
            totals=totals,
            scratch=uninitialized([core.scratch_size(stack, rows, longest, 1, False)], np.uint8),
        )
        core.score(stack, self.weights.tokens("target_embedding", longest), struct)
        return totals, log_probs
