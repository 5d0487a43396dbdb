"""Weights of source tokens for each target token of given pairs, by a head of cross-attention.

Shapes: L layers, H heads, T target length, S source length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from clearhead.config import ModelConfig
from clearhead.decoding.decode import PairEngine, of_pairs

if TYPE_CHECKING:
    from jaxtyping import Float


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

    def of(self, cross: Float[np.ndarray, "L H T S"]) -> Float[np.ndarray, "T S"]:
        """Return the chosen attention weights.

        Args:
            cross: Cross-attention weights of a pair, at the steps that write its target tokens.
        """
        if self.layer is None:
            return cross.mean(axis=1).mean(axis=0)
        heads = cross[self.layer]
        weights = heads.mean(axis=0) if self.head is None else heads[self.head]
        # No step reads the last token, the end token. No word is aligned by it.
        return np.concatenate([weights[1:], weights[-1:]]) if self.is_reading else weights


@runtime_checkable  # so that tests can check annotations
class Attending(PairEngine, Protocol):
    """The inference engine of one encoder-decoder."""

    def cross_attention(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, "L H T S"]]:
        """Return for each pair the weights of every head, at the steps that write its target tokens."""


def attended(
    engine: Attending,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    head: AlignmentHead,
    *,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> list[Float[np.ndarray, "T S"]]:
    """Return for each pair the attention weights of each target token over the source tokens.

    Args:
        engine: The engine of an encoder-decoder, in fp32.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        head: Which attention weights to return.
        batch_tokens: Tokens of the longer side per batch, padding included.
        on_progress: Called with the number of pairs finished, after each batch.
    """

    def weights(_: list[int], *pairs: list[list[int]]) -> list[Float[np.ndarray, "T S"]]:
        # Copied, for a view would keep the weights of all heads.
        return [head.of(cross).copy() for cross in engine.cross_attention(*pairs)]

    return of_pairs(engine, weights, sources, targets, batch_tokens=batch_tokens, on_progress=on_progress)


def candidates(
    engine: Attending,
    config: ModelConfig,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    batch_tokens: int,
) -> Iterator[tuple[AlignmentHead, list[Float[np.ndarray, "T S"]]]]:
    """Yield every alignment head, including the layer means and the overall mean, with its weights as in `attended`.

    Args:
        engine: The engine of an encoder-decoder, in fp32.
        config: The configuration of its model.
        sources: Source ids, ended by `eos_id`; few enough for the attention of all heads to fit into memory.
        targets: Target ids, ended by `eos_id`.
        batch_tokens: Tokens of the longer side per batch, padding included.
    """
    heads = [AlignmentHead()] + [
        AlignmentHead(layer, head, is_reading)
        for layer in range(config.num_decoder_layers)
        for head in (None, *range(config.num_heads))
        for is_reading in (False, True)
    ]

    def weights(_: list[int], *pairs: list[list[int]]) -> list[Float[np.ndarray, "L H T S"]]:
        return engine.cross_attention(*pairs)

    all_weights = of_pairs(engine, weights, sources, targets, batch_tokens=batch_tokens, on_progress=None)
    for head in heads:
        yield head, [head.of(cross) for cross in all_weights]
