"""Learn a shortlist from parallel text and the cross-attention of a model; see `shortlist`.

At the step that writes a token, cross-attention looks at the source tokens that it translates. So its weights are
summed over the text for every pair of source and target token.

Shapes: B pairs, T target length, S source length, E entries, C tokens that a source token allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.decoding.pytorch.weights import cross_attention_weights
from clearhead.decoding.sentence import advice_on_memory, length_batches
from clearhead.decoding.shortlist import NONE, Shortlist
from clearhead.decoding.step import pad_batch
from clearhead.model.transformer import Transformer

PER_TOKEN = 20
"""Default number of target tokens per source token."""
COMMON = 1_000
"""Default number of target tokens that are always allowed; all sentences share their output rows."""

LINKS = 3
"""Number of source tokens that each target token is linked to: those with the largest attention weights."""
BUFFER = 1 << 22
"""Number of entries collected before equal keys are summed."""


@torch.inference_mode()
def learn_shortlist(
    model: Transformer,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    per_token: int = PER_TOKEN,
    common: int = COMMON,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> Shortlist:
    """Learn from parallel text which target tokens each source token may become.

    Args:
        model: An encoder-decoder in evaluation mode.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        per_token: Maximum target tokens per source token; with a shared vocabulary, the token itself is one of them.
        common: Number of most frequent target tokens that are always allowed; the end token is one of them.
        batch_tokens: Tokens of the longer side per batch, padding included.
        on_progress: Called with the number of pairs finished, after each batch.
    """
    config = model.config
    num_sources = config.source_vocabulary
    frequencies = torch.zeros(config.vocab_size, dtype=torch.int64)
    counts = _Counts()
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for indices in length_batches(lengths, batch_tokens):
        source, target = (pad_batch([side[i] for i in indices], config.pad_id) for side in (sources, targets))
        frequencies += target.flatten().bincount(minlength=config.vocab_size)
        with advice_on_memory(batch_tokens):
            counts.add(*_links(model, source.to(model.device), target.to(model.device)))
        if on_progress is not None:
            on_progress(len(indices))

    frequencies[[config.pad_id, config.bos_id]] = 0
    frequencies[config.eos_id] = max(map(len, [*targets, []])) * len(targets) + 1
    always = frequencies.topk(min(common, int((frequencies > 0).sum()))).indices
    if num_sources == config.vocab_size:
        # Allows copying of names, numbers and the like, even if this text does not contain them.
        tokens = torch.arange(num_sources)
        tokens = tokens[(tokens != config.pad_id) & (tokens != config.bos_id) & (tokens != config.eos_id)]
        counts.add(tokens * config.vocab_size + tokens, torch.full(tokens.shape, float("inf")))
    keys, weights = counts.totals()
    is_own = torch.ones(config.vocab_size, dtype=torch.bool)
    is_own[always] = False
    is_own[[config.pad_id, config.bos_id]] = False
    kept = is_own[keys % config.vocab_size]
    rows = _heaviest(keys[kept], weights[kept], num_sources, config.vocab_size, per_token)
    return Shortlist(always.int().numpy(), rows.int().numpy())


def _links(
    model: Transformer, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]
) -> tuple[Int[Tensor, " E"], Float[Tensor, " E"]]:
    """Return the attention links of each target token: keys (source id times V plus target id) and weights."""
    config = model.config
    layers = cross_attention_weights(model, source, target)
    weights = torch.stack([layer.float().mean(dim=1) for layer in layers]).mean(dim=0)
    # Attention often falls on the end of the source if nothing there is relevant.
    weights = weights.masked_fill(((source == config.eos_id) | (source == config.pad_id))[:, None], 0.0)
    weights, places = weights.topk(min(LINKS, weights.size(-1)), dim=-1)  # (B, T, LINKS)
    looked_at = source[:, None].expand(-1, target.size(1), -1).gather(2, places)
    keys = looked_at * config.vocab_size + target[..., None]
    counts = (weights > 0) & ((target != config.pad_id) & (target != config.eos_id))[..., None]
    return keys[counts].cpu(), weights[counts].cpu()


class _Counts:
    """Sums of weights by key; a table of all token pairs would not fit into memory."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = [torch.empty(0, dtype=torch.int64)]
        self._weights: list[Tensor] = [torch.empty(0)]
        self._waiting = 0

    def add(self, keys: Int[Tensor, " E"], weights: Float[Tensor, " E"]) -> None:
        """Add weights to the sums of their keys."""
        self._keys.append(keys)
        self._weights.append(weights)
        self._waiting += len(keys)
        if self._waiting > BUFFER:
            self.totals()

    def totals(self) -> tuple[Int[Tensor, " E"], Float[Tensor, " E"]]:
        """Return every distinct key, ascending, and its sum."""
        keys, places = torch.cat(self._keys).unique(return_inverse=True)
        sums = torch.zeros(len(keys)).index_add_(0, places, torch.cat(self._weights))
        self._keys, self._weights, self._waiting = [keys], [sums], 0
        return keys, sums


def _heaviest(
    keys: Int[Tensor, " E"], weights: Float[Tensor, " E"], num_sources: int, vocab_size: int, most: int
) -> Int[Tensor, "_ C"]:
    """Return for each source token the target tokens with the largest weights, largest first, padded with -1."""
    order = weights.argsort(descending=True, stable=True)
    order = order[(keys[order] // vocab_size).argsort(stable=True)]
    sources, targets = keys[order] // vocab_size, keys[order] % vocab_size
    starts = torch.searchsorted(sources, sources)  # start of each source token's entries
    ranks = torch.arange(len(sources)) - starts
    kept = ranks < most
    rows = torch.full((num_sources, most), NONE)
    rows[sources[kept], ranks[kept]] = targets[kept]
    return rows
