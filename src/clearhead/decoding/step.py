"""One step of decoding: from the newest token of every row to the log-probabilities of the next.

Shapes: B sentences, R rows (B times the beams of a sentence), S source length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.decoding.allowed import Mask
from clearhead.decoding.rules import never_written
from clearhead.model.cache import DecoderCache
from clearhead.model.transformer import Transformer

__all__ = ["DecodingBatch", "next_log_probs", "pad_batch"]


@dataclass
class DecodingBatch:
    """The sentences still being decoded, in the model's terms."""

    memory: Float[Tensor, "B S D"]
    memory_mask: Bool[Tensor, "B S"]
    cache: DecoderCache | None = None

    @classmethod
    def encode(cls, model: Transformer, sources: list[list[int]]) -> DecodingBatch:
        """Encode source sentences, each ended by `eos_id`."""
        memory, mask = model.encode(pad_batch(sources, model.config.pad_id).to(model.device))
        return cls(memory, mask)

    def select(self, rows: Int[Tensor, " R"], sentences: Int[Tensor, " B"] | None = None) -> None:
        """Keep and reorder rows, and sentences if some are finished; see `DecoderCache.select`."""
        if self.cache is not None:
            self.cache.select(rows, sentences)
        if sentences is not None:
            self.memory = self.memory[sentences]
            self.memory_mask = self.memory_mask[sentences]


def pad_batch(sequences: list[list[int]], pad_id: int) -> Int[Tensor, "B S"]:
    """Set sequences side by side, the shorter ones padded at the end."""
    width = max(map(len, sequences))
    return torch.tensor([[*ids, *[pad_id] * (width - len(ids))] for ids in sequences], dtype=torch.int64)


def next_log_probs(
    model: Transformer, batch: DecodingBatch, newest: Int[Tensor, " R"], masks: Sequence[Mask | None]
) -> Float[Tensor, "R V"]:
    """Feed each row its newest token and return the log-probabilities of the next.

    Padding and the start token (unless it is also the end token) are impossible, and so is what a row's mask rules out.
    What remains keeps the model's own probability, so that scores compare with scoring.
    """
    logits, batch.cache = model.decode(newest[:, None], batch.memory, batch.memory_mask, batch.cache)
    # bfloat16 has 8 significant bits; a sum over the vocabulary needs float32.
    log_probs = logits[:, 0].float().log_softmax(dim=-1)
    log_probs[:, never_written(model.config)] = float("-inf")
    for row, mask in enumerate(masks):
        if mask is not None:
            log_probs[row, ~torch.from_numpy(mask).to(log_probs.device)] = float("-inf")
    return log_probs
