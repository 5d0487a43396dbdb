"""Weights of source tokens for each target token of given pairs: by an attention head, or by source occlusion.

Shapes: B pairs, L layers, H heads, T target length, S source length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.decoding.batching import advice_on_memory, length_batches
from clearhead.decoding.scoring import token_log_probs
from clearhead.decoding.step import pad_batch
from clearhead.model.transformer import Transformer


class AlignmentHead(NamedTuple):
    """A choice of cross-attention weights that aligns target tokens with source tokens."""

    layer: int | None = None
    """Decoder layer, counted from 0; None is the mean over all layers and heads, at the step that writes a token."""
    head: int | None = None
    """Head of the layer, counted from 0; None is the mean over all its heads."""
    is_reading: bool = False
    """Whether to use the step that has the token as its input, rather than the step that predicts it. The input step
    already knows the token (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation")."""

    def __str__(self) -> str:
        """Describe the choice in words, counted from 1."""
        if self.layer is None:
            return "the mean over all layers and heads"
        which = "the mean over the heads" if self.head is None else f"head {self.head + 1}"
        return f"{which} of layer {self.layer + 1}, at the step that {'reads' if self.is_reading else 'writes'} a word"

    def of(self, cross: Sequence[Float[Tensor, "B H T S"]]) -> Float[Tensor, "B T S"]:
        """Return the chosen attention weights.

        Args:
            cross: Cross-attention weights of each layer, at the steps that write the target tokens.
        """
        if self.layer is None:
            return torch.stack([layer.float().mean(dim=1) for layer in cross]).mean(dim=0)
        heads = cross[self.layer].float()
        weights = heads.mean(dim=1) if self.head is None else heads[:, self.head]
        # No step reads the last token, the end token. No word is aligned by it.
        return torch.cat([weights[:, 1:], weights[:, -1:]], dim=1) if self.is_reading else weights

    def of_pair(self, cross: Float[np.ndarray, "L H T S"]) -> Float[np.ndarray, "T S"]:
        """Return the chosen attention weights of a single pair; see `of`."""
        return self.of(list(torch.from_numpy(cross)[:, None]))[0].numpy()


def cross_attention_weights(
    model: Transformer, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]
) -> list[Float[Tensor, "B H T S"]]:
    """Return the cross-attention weights of each layer: one row for each target token, at the step that writes it.

    Args:
        model: An encoder-decoder in evaluation mode.
        source: Source ids, ended by `eos_id` and padded.
        target: Target ids, ended by `eos_id` and padded.
    """
    start = target.new_full((len(target), 1), model.config.bos_id)
    return model.attention_weights(source, torch.cat([start, target[:, :-1]], dim=1)).cross


@torch.inference_mode()
def attended(
    model: Transformer,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    head: AlignmentHead,
    *,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> list[Float[np.ndarray, "T S"]]:
    """Return for each pair the attention weights of each target token over the source tokens.

    Args:
        model: An encoder-decoder in evaluation mode.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        head: Which attention weights to return.
        batch_tokens: Tokens of the longer side per batch, padding included.
        on_progress: Called with the number of pairs finished, after each batch.
    """
    found: dict[int, Float[np.ndarray, "T S"]] = {}
    for indices, cross in _in_batches(model, sources, targets, batch_tokens):
        for index, weights in zip(indices, head.of(cross).cpu().numpy(), strict=True):
            found[index] = weights[: len(targets[index]), : len(sources[index])]
        if on_progress is not None:
            on_progress(len(indices))
    return [found[index] for index in range(len(sources))]


def candidates(
    model: Transformer, sources: Sequence[list[int]], targets: Sequence[list[int]], *, batch_tokens: int
) -> Iterator[tuple[AlignmentHead, list[Float[np.ndarray, "T S"]]]]:
    """Yield every alignment head, including the layer means and the overall mean, with its weights as in `attended`.

    Args:
        model: An encoder-decoder in evaluation mode.
        sources: Source ids, ended by `eos_id`; few enough for the attention of all heads to fit into memory.
        targets: Target ids, ended by `eos_id`.
        batch_tokens: Tokens of the longer side per batch, padding included.
    """
    config = model.config
    heads = [AlignmentHead()] + [
        AlignmentHead(layer, head, is_reading)
        for layer in range(config.num_decoder_layers)
        for head in (None, *range(config.num_heads))
        for is_reading in (False, True)
    ]
    with torch.inference_mode():
        batches = list(_in_batches(model, sources, targets, batch_tokens))
    for head in heads:
        found = {
            index: weights[: len(targets[index]), : len(sources[index])]
            for indices, cross in batches
            for index, weights in zip(indices, head.of(cross).cpu().numpy(), strict=True)
        }
        yield head, [found[index] for index in range(len(sources))]


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
    found = []
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
        found.append((log_probs[0] - log_probs[1:]).clamp(min=0).T.float().cpu().numpy())
        if on_progress is not None:
            on_progress(1)
    return found


def _in_batches(
    model: Transformer, sources: Sequence[list[int]], targets: Sequence[list[int]], batch_tokens: int
) -> Iterator[tuple[list[int], list[Float[Tensor, "B H T S"]]]]:
    """Yield the indices of the pairs in each batch, and their cross-attention, layer by layer."""
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for indices in length_batches(lengths, batch_tokens):
        source, target = (
            pad_batch([side[index] for index in indices], model.config.pad_id).to(model.device)
            for side in (sources, targets)
        )
        with advice_on_memory(batch_tokens):
            yield indices, cross_attention_weights(model, source, target)
