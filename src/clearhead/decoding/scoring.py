"""Forced decoding with `Transformer`: the log-probability of every token of given translations.

Shapes: B batch, T target length.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.decoding.step import pad_batch
from clearhead.model.transformer import Transformer


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
    shifted = torch.cat([torch.full_like(target[:, :1], config.bos_id), target[:, :-1]], dim=1)
    logits = model(pad_batch(sources, config.pad_id).to(device), shifted)  # (B, T, V)
    # bfloat16 has 8 significant bits; a sum over the vocabulary needs float32.
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    picked = log_probs.gather(-1, target[..., None])[..., 0]  # (B, T)
    return picked.masked_fill(target == config.pad_id, 0.0)


def _continued(model: Transformer, source: list[int], target: list[int]) -> Float[Tensor, " T"]:
    """Return the log-probability of every target token, for a decoder-only model that continues the source."""
    logits = model(None, torch.tensor([[*source, *target[:-1]]], device=model.device))[0, len(source) - 1 :]
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)  # (T, V)
    return log_probs.gather(-1, torch.tensor(target, device=model.device)[:, None])[:, 0]
