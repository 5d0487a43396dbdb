"""Weights of source tokens for each target token of given pairs, by occlusion: what is lost without the source token.

Shapes: T target length, S source length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float

from clearhead.decoding.sentence import advice_on_memory
from clearhead.decoding.step import token_log_probs
from clearhead.model.transformer import Transformer


@torch.inference_mode()
def occluded(
    model: Transformer,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> list[Float[np.ndarray, "T S"]]:
    """Return for each pair how much log-probability, in nats, each target token loses without each source token.

    A source token is masked like padding, so the others keep their positions. A target token that gets more probable
    counts as losing 0 (Li et al. 2019, "On the Word Alignment from Neural Machine Translation": prediction difference).
    This takes one forward pass per source token.

    Args:
        model: An encoder-decoder in evaluation mode.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        batch_tokens: Tokens of the longer side per batch, padding included.
        on_progress: Called with 1 after each pair.
    """
    drops = []
    for source, target in zip(sources, targets, strict=True):
        hidden = [[*source[:place], model.config.pad_id, *source[place + 1 :]] for place in range(len(source))]
        rows = [source, *hidden]
        size = max(1, batch_tokens // max(len(source), len(target)))
        with advice_on_memory(batch_tokens):
            parts = [
                token_log_probs(model, rows[start : start + size], [target] * len(rows[start : start + size]))
                for start in range(0, len(rows), size)
            ]
        log_probs = torch.cat(parts)  # (1 + S, T)
        drops.append((log_probs[0] - log_probs[1:]).clamp(min=0).T.float().cpu().numpy())
        if on_progress is not None:
            on_progress(1)
    return drops
