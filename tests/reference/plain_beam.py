"""A slow beam search that is easy to check by reading: no cache, one sentence at a time, no early stopping."""

from __future__ import annotations

from collections.abc import Callable

import torch

from clearhead.model import Transformer

Found = list[tuple[tuple[int, ...], float]]
"""Tokens and rank score."""


@torch.inference_mode()
def plain_beam_search(
    model: Transformer,
    source: list[int],
    *,
    max_length: int,
    beam_size: int,
    alpha: float,
    num_best: int,
    may_be_written: Callable[[tuple[int, ...]], bool] = lambda tokens: True,
) -> Found:
    config = model.config
    open_beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: Found = []
    for length in range(1, max_length + 1):
        targets = torch.tensor([[config.bos_id, *tokens] for _, tokens in open_beams])
        logits = model(torch.tensor([source] * len(open_beams)), targets)
        log_probs = logits[:, -1].log_softmax(dim=-1).tolist()
        if length == max_length:
            allowed = [config.eos_id]
        else:
            allowed = [token for token in range(config.vocab_size) if token not in (config.pad_id, config.bos_id)]
        ways = [
            (score + row[token], (*tokens, token))
            for (score, tokens), row in zip(open_beams, log_probs, strict=True)
            for token in allowed
            if may_be_written((*tokens, token))
        ]
        ways.sort(reverse=True)
        for score, tokens in ways[:beam_size]:
            if tokens[-1] == config.eos_id:
                finished.append((tokens, score / ((5 + length) / 6) ** alpha))
        open_beams = [way for way in ways if way[1][-1] != config.eos_id][:beam_size]
    return sorted(finished, key=lambda found: -found[1])[:num_best]
