"""Where the time of clearhead's translation goes: the compiled core's own clock, on one thread.

python bench/translation_profile.py MODEL --beam 1 5
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearhead.bundle import load_bundle
from clearhead.config import DecodeConfig
from clearhead.decoding import NativeEngine, SearchOptions, decode
from clearhead.decoding.native.slots import NativeSlots
from clearhead.files import read_lines
from translation_work import TEXT

PARTS = ("layer products", "attention", "norms, activations", "vocabulary product", "softmax, best tokens")
"""What the core books its time on, in its order."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL", help="a trained model or run")
    parser.add_argument("--source", type=Path, help="lines for it (default: Multi30k's German test of 2016)")
    parser.add_argument("--beam", nargs="+", type=int, default=[1, 5], metavar="K", help="default: 1 5")
    parser.add_argument("--precision", nargs="+", default=["fp32"], choices=["fp32", "bf16x3", "bf16", "int8"])
    parser.add_argument("--batch", type=int, default=32, help="sentences at once, on average (default: 32)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bundle = load_bundle(options.model)
    lines = [line for line in read_lines(str(options.source or TEXT)) if line.strip()]
    sources = bundle.tokenizer.encode_sources(lines)
    tables = {}
    for precision in options.precision:
        if not NativeEngine.supports(bundle.model, precision):
            sys.exit(f"the compiled core cannot run this model in {precision} here")
        model = NativeEngine(bundle.model, precision)
        for beam in options.beam:
            tables[f"{precision}, beam {beam}"] = _profile(model, sources, beam, options.batch)
    print(f"{len(sources):,} sentences, {options.batch} at a time, one thread")
    print("".join([f"{'':24}", *(f"{name:>16}" for name in tables)]))
    for part in next(iter(tables.values())):
        print(f"{part:24}" + "".join(f"{table[part] / sum(table.values()):16.1%}" for table in tables.values()))
    print(f"{'all, s':24}" + "".join(f"{sum(table.values()):16.2f}" for table in tables.values()))


def _profile(model: NativeEngine, sources: list[list[int]], beam: int, batch: int) -> dict[str, float]:
    """Return seconds by part."""
    tokens = batch * beam * sum(map(len, sources)) // len(sources)
    config = DecodeConfig(beam_size=beam, length_penalty=0.0, batch_tokens=tokens)
    options = SearchOptions(config, scores=False)  # as for plain text
    decode(model, sources[:batch], options)  # warm up
    encoder = 0.0
    encode = NativeSlots.encode

    def timed_encode(self: NativeSlots, sources: Sequence[Sequence[int]]) -> list[Any]:
        nonlocal encoder
        start = time.perf_counter()
        encoded = encode(self, sources)
        encoder += time.perf_counter() - start
        return encoded

    NativeSlots.spent = np.zeros(len(PARTS))
    NativeSlots.encode = timed_encode  # type: ignore[method-assign]
    start = time.perf_counter()
    decode(model, sources, options)
    wall = time.perf_counter() - start
    NativeSlots.encode = encode  # type: ignore[method-assign]
    spent = dict(zip(PARTS, NativeSlots.spent.tolist(), strict=True))
    return {"encoder": encoder, **spent, "search": wall - encoder - sum(spent.values())}


if __name__ == "__main__":
    main()
