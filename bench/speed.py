"""Training speed beside plain `torch.nn.Transformer`: the same shape, batches and precision, in turn, in one run.

    make bench

The peer is what most people would write: `torch.nn.Transformer` with tied embeddings, `nn.CrossEntropyLoss` with label
smoothing and Adam. Its attention and feed-forward dropout are switched off, so that both drop at the paper's places.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import Batch
from clearhead.model import Transformer
from clearhead.model.positions import SinusoidalPositions
from clearhead.training.optimizer import build_optimizer
from clearhead.training.step import Stepper

SHAPES = {
    "tiny": ModelConfig(
        vocab_size=8_000, d_model=128, d_ff=512, num_heads=4, num_encoder_layers=4, num_decoder_layers=4, norm="pre"
    ),
    "small": ModelConfig(
        vocab_size=8_000, d_model=256, d_ff=1024, num_heads=4, num_encoder_layers=3, num_decoder_layers=3, norm="pre"
    ),
}


class PlainTransformer(nn.Module):
    """`torch.nn.Transformer` with embeddings, positions and a tied output projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad_id)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.positions = SinusoidalPositions(d_model=config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_encoder_layers,
            config.num_decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        for module in self.layers.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits [B, T, V]."""
        is_padding = source == 0
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        states = self.layers(
            self._embed(source),
            self._embed(target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=is_padding,
            memory_key_padding_mask=is_padding,
        )
        return nn.functional.linear(states, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(scaled + self.positions(0, ids.size(1)))


def batches(num: int, batch_tokens: int) -> list[Batch]:
    """Draw batches with the lengths of image captions: 8 to 24 tokens, alike within a batch, and a little padding."""
    generator = torch.Generator().manual_seed(1)
    result = []
    for _ in range(num):
        length = int(torch.randint(8, 25, (1,), generator=generator))
        rows = batch_tokens // length
        ids = torch.randint(4, 8_000, (rows, length), generator=generator)
        source = ids.clone()
        source[: rows // 2, -1] = 0
        result.append(Batch(source, ids, ids, int((source != 0).sum()), ids.numel(), ()))
    return result


def clearhead_step(config: ModelConfig) -> Callable[[Batch, int], None]:
    train = TrainConfig()
    model = Transformer(config)
    stepper = Stepper(model, build_optimizer(model, train), train)
    return lambda batch, number: stepper.step([batch], number=number, rate=1e-4) and None


def plain_step(config: ModelConfig) -> Callable[[Batch, int], None]:
    model = PlainTransformer(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=config.pad_id, label_smoothing=0.1)

    def step(batch: Batch, number: int) -> None:
        optimizer.zero_grad()
        criterion(model(batch.source, batch.target_in).flatten(0, 1), batch.target_out.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def measure(shape: str, batch_tokens: int, rounds: int, steps: int) -> None:
    config = SHAPES[shape]
    work = batches(steps, batch_tokens)
    tokens = sum(batch.num_target_tokens for batch in work)
    candidates = {"clearhead": clearhead_step(config), "torch.nn.Transformer": plain_step(config)}
    speeds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_number in range(rounds + 1):
        for name, step in candidates.items():
            start = time.perf_counter()
            for number, batch in enumerate(work, start=1):
                step(batch, number)
            if round_number:  # the first round warms up
                speeds[name].append(tokens / (time.perf_counter() - start))
    ratios = [ours / theirs for ours, theirs in zip(*speeds.values(), strict=True)]
    for name, values in speeds.items():
        windows = " ".join(f"{value:,.0f}" for value in values)
        print(f"{shape:6} {batch_tokens:6} {name:21} {statistics.median(values):8,.0f} target tokens/s  ({windows})")
    print(
        f"{shape:6} {batch_tokens:6} ratio {statistics.median(ratios):.2f}  ({min(ratios):.2f} to {max(ratios):.2f})\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="windows of each candidate, in turn")
    parser.add_argument("--steps", type=int, default=10, help="steps in a window")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, fp32")
    for shape, batch_tokens in (("tiny", 1_024), ("small", 4_096)):
        measure(shape, batch_tokens, options.rounds, options.steps)


if __name__ == "__main__":
    main()
