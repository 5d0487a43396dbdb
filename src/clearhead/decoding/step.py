"""The model in plain code: one step of a search, from newest tokens to next log-probabilities; and forced decoding.

Shapes: B sentences, R rows (B times the beams of a sentence), S source length, T target length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.decoding.neighbours import Neighbours, Pair, mix_rows
from clearhead.decoding.rules import first_token, never_written
from clearhead.decoding.token_masks import Mask
from clearhead.model.cache import DecoderCache
from clearhead.model.recorder import HiddenStates, Recorder
from clearhead.model.transformer import Transformer


@dataclass
class DecodingBatch:
    """The encoder output and decoder cache of the sentences in a batch."""

    newest: Int[Tensor, " B"]
    """The first decoder input of each sentence."""
    memory: Float[Tensor, "B S D"] | None
    memory_mask: Bool[Tensor, "B S"] | None
    cache: DecoderCache | None = None

    @classmethod
    def encode(cls, model: Transformer, sources: list[list[int]], beam_size: int = 1) -> DecodingBatch:
        """Encode source sentences, each ended by `eos_id`.

        Args:
            model: A model in evaluation mode.
            sources: Source ids; for a decoder-only model the texts to continue, all of one length. Their tokens except
                the last are then in the cache.
            beam_size: Rows of each sentence.
        """
        newest = torch.tensor([first_token(model.config, source) for source in sources], device=model.device)
        if not model.config.is_decoder_alone:
            return cls(newest, *model.encode(pad_batch(sources, model.config.pad_id).to(model.device)))
        batch = cls(newest, None, None)
        before = torch.tensor([source[:-1] for source in sources], dtype=torch.int64, device=model.device)
        if before.size(1):
            _, batch.cache = model.decode(before.repeat_interleave(beam_size, dim=0))
        return batch

    def select(self, rows: Int[Tensor, " R"], sentences: Int[Tensor, " B"] | None = None) -> None:
        """Keep and reorder rows, and sentences if some are finished; see `DecoderCache.select`."""
        if self.cache is not None:
            self.cache.select(rows, sentences)
        if sentences is not None and self.memory is not None and self.memory_mask is not None:
            self.memory = self.memory[sentences]
            self.memory_mask = self.memory_mask[sentences]


def pad_batch(sequences: list[list[int]], pad_id: int) -> Int[Tensor, "B S"]:
    """Stack sequences into a batch, the shorter ones padded at the end."""
    width = max(map(len, sequences))
    return torch.tensor([[*ids, *[pad_id] * (width - len(ids))] for ids in sequences], dtype=torch.int64)


def shifted(target: Int[Tensor, "B T"], config: ModelConfig) -> Int[Tensor, "B T"]:
    """Return targets shifted right: the start token, then all tokens but the last (teacher forcing)."""
    return torch.cat([torch.full_like(target[:, :1], config.bos_id), target[:, :-1]], dim=1)


def next_log_probs(
    model: Transformer,
    batch: DecodingBatch,
    newest: Int[Tensor, " R"],
    masks: Sequence[Mask | None],
    neighbours: Sequence[Neighbours | None] = (),
) -> Float[Tensor, "R V"]:
    """Feed each row its newest token and return the log-probabilities of the next, `restricted` by its mask.

    Args:
        model: A model in evaluation mode.
        batch: The encoded sentences; its cache is extended.
        newest: The newest token of each row.
        masks: The allowed tokens of each row.
        neighbours: The neighbours of each row, whose probabilities are mixed in; empty if no row has any.
    """
    hidden = HiddenStates()
    recorded = [Recorder(hidden=hidden)] if any(neighbours) else []
    logits, batch.cache = model.decode(newest[:, None], batch.memory, batch.memory_mask, batch.cache, *recorded)
    # bfloat16 has 8 significant bits; a sum over the vocabulary needs float32.
    log_probs = logits[:, 0].float().log_softmax(dim=-1)
    log_probs = restricted(log_probs, masks, model.config)
    if not recorded:
        return log_probs
    states = hidden.decoder[-1][:, 0].float()
    mixed = mix_rows(log_probs.numpy(force=True), states.numpy(force=True), neighbours)
    return torch.from_numpy(mixed).to(log_probs.device)


def restricted(
    log_probs: Float[Tensor, "R V"], masks: Sequence[Mask | None], config: ModelConfig
) -> Float[Tensor, "R V"]:
    """Give the tokens that a row's mask excludes minus infinity, and return the same tensor.

    Without a mask, these are padding and the start token, unless it is also the end token. The others keep the model's
    own probability, so that search scores are comparable with `score`.
    """
    for row, mask in enumerate(masks):
        if mask is None:
            log_probs[row, never_written(config)] = float("-inf")
        else:
            log_probs[row, ~torch.from_numpy(mask).to(log_probs.device)] = float("-inf")
    return log_probs


def decoder_states(model: Transformer, pairs: Sequence[Pair]) -> list[Float[np.ndarray, "T D"]]:
    """Return the decoder's output, after its final norm, at the steps that write the targets of pairs."""
    sources, targets = ([list(ids) for ids in side] for side in zip(*pairs, strict=True))
    source, target = (pad_batch(side, model.config.pad_id).to(model.device) for side in (sources, targets))
    hidden = model.hidden_states(source, shifted(target, model.config))
    states = hidden.decoder[-1].float().numpy(force=True)  # (B, T, D)
    return [own[: len(pair.target)].copy() for own, pair in zip(states, pairs, strict=True)]


def token_log_probs(model: Transformer, sources: list[list[int]], targets: list[list[int]]) -> Float[Tensor, "B T"]:
    """Return the log-probability of every target token given the source and the tokens before it.

    `score` runs the compiled core instead (`native/engine.py`), where it supports the model; with `plain=True` and
    `--plain`, this function. tests/unit/decoding/test_native.py holds them equal.

    Args:
        model: A model in evaluation mode.
        sources: Source ids, ended by `eos_id`; for a decoder-only model the texts to continue.
        targets: Target ids, ended by `eos_id`.

    Returns:
        Log-probabilities in nats, 0 at padding; the sum of a row is the log-probability of its translation.
    """
    config = model.config
    device = model.device
    if config.is_decoder_alone:
        rows = [_continued(model, source, target) for source, target in zip(sources, targets, strict=True)]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    target = pad_batch(targets, config.pad_id).to(device)
    logits = model(pad_batch(sources, config.pad_id).to(device), shifted(target, config))  # (B, T, V)
    # bfloat16 has 8 significant bits; a sum over the vocabulary needs float32.
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    picked = log_probs.gather(-1, target[..., None])[..., 0]  # (B, T)
    return picked.masked_fill(target == config.pad_id, 0.0)


def _continued(model: Transformer, source: list[int], target: list[int]) -> Float[Tensor, " T"]:
    """Return the log-probability of every target token, for a decoder-only model that continues the source."""
    logits = model(None, torch.tensor([[*source, *target[:-1]]], device=model.device))[0, len(source) - 1 :]
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)  # (T, V)
    return log_probs.gather(-1, torch.tensor(target, device=model.device)[:, None])[:, 0]
