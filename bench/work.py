"""The work that every candidate does: shapes, dropout places, batches, and the operations they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearhead.config import ModelConfig
from clearhead.data.batches import Batch, BatchOrder, collate
from clearhead.data.store import PairStore, StoreWriter
from clearhead.formats import read_parallel
from clearhead.tokenizers import Tokenizer

__all__ = ["CASES", "Case", "Flops", "choose_batches", "count_flops", "padding_share", "write_store"]

MULTI30K = Path(__file__).parents[1].parent / "shared" / "data" / "multi30k"
PAD_ID, BOS_ID, EOS_ID = range(3)  # as in every vocabulary that we learn
VOCAB_SIZE = 8_000
SYNTHETIC_PAIRS = 29_000
EVERYWHERE = {"attention_dropout": 0.1, "feed_forward_dropout": 0.1}


@dataclass(frozen=True)
class Case:
    """A model and the size of its batches."""

    config: ModelConfig
    batch_tokens: int
    """Target tokens in a batch, padding not counted."""
    about: str
    """Shape and dropout, for the reader."""


def _pre_norm(num_encoder_layers: int, num_decoder_layers: int, d_model: int, d_ff: int, num_heads: int) -> ModelConfig:
    return ModelConfig(
        vocab_size=VOCAB_SIZE,
        d_model=d_model,
        d_ff=d_ff,
        num_heads=num_heads,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        norm="pre",
    )


CASES = {
    "yardstick": Case(
        _pre_norm(3, 3, 256, 1_024, 4).model_copy(update=EVERYWHERE),
        4_096,
        "3+3 layers, d_model 256, 4 heads, d_ff 1,024; dropout 0.1 everywhere (residual, attention, feed-forward)",
    ),
    "yardstick-paper": Case(
        _pre_norm(3, 3, 256, 1_024, 4),
        4_096,
        "the same; dropout 0.1 at the paper's places alone (residual and embedding)",
    ),
    "tiny": Case(
        _pre_norm(4, 4, 128, 512, 4).model_copy(update=EVERYWHERE),
        1_024,
        "4+4 layers, d_model 128, 4 heads, d_ff 512; dropout 0.1 everywhere",
    ),
    "paper-base": Case(
        _pre_norm(6, 6, 512, 2_048, 8),
        8_192,
        "the paper's base model, pre-norm: 6+6 layers, d_model 512, 8 heads, d_ff 2,048; dropout 0.1 at its places",
    ),
    "small": Case(
        _pre_norm(4, 4, 256, 1_024, 4).model_copy(update=EVERYWHERE),
        4_096,
        "4+4 layers, d_model 256, 4 heads, d_ff 1,024; dropout 0.1 everywhere",
    ),
    "paper-big": Case(
        _pre_norm(6, 6, 1_024, 4_096, 16).model_copy(update={"dropout": 0.3}),
        8_192,
        "the paper's big model, pre-norm: 6+6 layers, d_model 1,024, 16 heads, d_ff 4,096; dropout 0.3 at its places",
    ),
    "toy": Case(
        _pre_norm(1, 2, 12, 20, 2).model_copy(update=EVERYWHERE),
        96,
        "1+2 layers, d_model 12, 2 heads, d_ff 20; to see whether the benchmark runs",
    ),
}
"""Name to case; all pre-norm."""


def write_store(path: Path, *, synthetic: bool) -> str:
    """Write tokenised pairs to an Arrow file, and say what they are.

    Args:
        path: The file to write.
        synthetic: Draw them even where Multi30k lies beside the repository.
    """
    is_real = MULTI30K.is_dir() and not synthetic
    with StoreWriter(path) as writer:
        for source, target in _multi30k() if is_real else _synthetic():
            writer.append("", "", source, target)
    if is_real:
        return f"Multi30k de-en, {writer.num_rows:,} pairs in {VOCAB_SIZE:,} joint BPE pieces"
    return f"synthetic, {writer.num_rows:,} pairs with the lengths of Multi30k de-en"


def _multi30k() -> Iterator[tuple[list[int], list[int]]]:
    sides = [str(MULTI30K / f"train.{language}.gz") for language in ("de", "en")]
    pairs = list(read_parallel(sides[:1], sides[1:]))
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    tokenizer = Tokenizer.train([*sources, *targets], vocab_size=VOCAB_SIZE)
    yield from zip(tokenizer.encode_sources(sources), tokenizer.encode_targets(targets), strict=True)


def _synthetic() -> Iterator[tuple[list[int], list[int]]]:
    # Multi30k de-en in 8,000 pieces: log of target length 2.68 +- 0.30, log of source by target length 0.02 +- 0.17.
    random = np.random.default_rng(1)
    targets = np.exp(random.normal(2.68, 0.30, SYNTHETIC_PAIRS))
    sources = targets * np.exp(random.normal(0.02, 0.17, SYNTHETIC_PAIRS))
    lengths = np.stack([sources, targets], axis=1).round().astype(int).clip(3, 60)
    # Zipf's law over the pieces, so that there is something to learn.
    frequencies = 1.0 / np.arange(10, VOCAB_SIZE + 6)
    pieces = random.choice(
        np.arange(4, VOCAB_SIZE), size=int(lengths.sum() - lengths.size), p=frequencies / frequencies.sum()
    )
    texts = np.split(pieces, np.cumsum(lengths.reshape(-1) - 1)[:-1])
    for source, target in zip(texts[::2], texts[1::2], strict=True):
        yield [*source.tolist(), EOS_ID], [*target.tolist(), EOS_ID]


def choose_batches(store: PairStore, batch_tokens: int, number: int) -> list[Batch]:
    """Return batches spread evenly over the lengths of the corpus, in random order."""
    order = BatchOrder(store.source_lengths, store.target_lengths, batch_tokens=batch_tokens, seed=1)
    epoch = [order.rows(step) for step in range(order.batches_per_epoch)]
    by_length = sorted(epoch, key=len)
    chosen = {int((place + 0.5) * len(epoch) / number) for place in range(number)}
    rows = [by_length[place] for place in np.random.default_rng(1).permutation(sorted(chosen))]
    return [collate(store, part, pad_id=PAD_ID, bos_id=BOS_ID) for part in rows]


def padding_share(batches: Sequence[Batch]) -> float:
    """Return the share of the cells of both sides that hold no token."""
    cells = sum(batch.source.numel() + batch.target_out.numel() for batch in batches)
    tokens = sum(int((side != PAD_ID).sum()) for batch in batches for side in (batch.source, batch.target_out))
    return 1.0 - tokens / cells


@dataclass(frozen=True)
class Flops:
    """Floating-point operations that a training step needs for a target token, padding not counted."""

    encoder: int
    """P_enc: weights in the matrices of the encoder's layers."""
    decoder: int
    """P_dec: the same of the decoder's."""
    output: int
    """V d: weights of the output matrix."""
    ratio: float
    """r: source tokens for each target token."""
    attention: float
    """Products of queries and keys, and of weights and values."""

    @property
    def total(self) -> float:
        """All of them."""
        return 6 * (self.decoder + self.output) + 6 * self.encoder * self.ratio + self.attention

    def explain(self) -> str:
        """Return the formula with its numbers."""
        return (
            f"model FLOPs a target token = 6 (P_dec + V d) + 6 P_enc r + attention"
            f" = 6 ({self.decoder / 1e6:.2f} M + {self.output / 1e6:.2f} M) + 6 x {self.encoder / 1e6:.2f} M"
            f" x {self.ratio:.3f} + {self.attention / 1e6:.2f} M = {self.total / 1e6:.1f} M\n"
            f"    (6: a multiply-add, forward and backward; r: source tokens a target token; attention: 12 d for a\n"
            f"    query and each key it may see, in each attention; padding, embeddings, norms and loss count nothing)"
        )


def count_flops(config: ModelConfig, batches: Sequence[Batch]) -> Flops:
    """Count what the batches need."""
    d_model, feed_forward = config.d_model, 2 * config.d_model * config.d_ff
    targets = sum(batch.num_target_tokens for batch in batches)
    pairs = 0  # of a query and a key it may see, over all attentions
    for batch in batches:
        source = (batch.source != config.pad_id).sum(dim=1)
        target = (batch.target_out != config.pad_id).sum(dim=1)
        seen = config.num_encoder_layers * source * source
        seen += config.num_decoder_layers * (target * (target + 1) // 2 + target * source)
        pairs += int(seen.sum())
    return Flops(
        encoder=config.num_encoder_layers * (4 * d_model**2 + feed_forward),
        decoder=config.num_decoder_layers * (8 * d_model**2 + feed_forward),
        output=config.vocab_size * d_model,
        ratio=sum(int((batch.source != PAD_ID).sum()) for batch in batches) / targets,
        attention=12 * d_model * pairs / targets,
    )
