"""Where the time of clearhead's translation goes, by kind of work, as PyTorch's profiler sees it on the processor.

python bench/translation_profile.py MODEL --beam 1 5
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from clearhead.bundle import load_bundle
from clearhead.config import DecodeConfig
from clearhead.corpora import read_lines
from clearhead.decoding import PackedModel, SearchOptions, decode
from translation_work import TEXT

GROUPS = {
    "layer products": ("mm", "addmm"),
    "attention": ("_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention"),
    "log-softmax": ("_log_softmax", "log_softmax"),
    "best tokens": ("topk", "amax", "gather"),
    "norms": ("native_layer_norm", "layer_norm"),
    "keys, values, masks": ("index_copy_", "index", "_index_put_impl_", "copy_", "fill_", "argsort", "sort"),
    "element-wise": ("add", "mul", "relu_", "clamp_min_"),
}
"""Group to operations; `vocabulary product` are products with the output matrix, `other` is everything else."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL", help="a trained model or run")
    parser.add_argument("--source", type=Path, help="lines for it (default: Multi30k's German test of 2016)")
    parser.add_argument("--beam", nargs="+", type=int, default=[1, 5], metavar="K", help="default: 1 5")
    parser.add_argument("--batch", type=int, default=64, help="sentences at once, on average (default: 64)")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    bundle = load_bundle(options.model)
    lines = [line for line in read_lines(str(options.source or TEXT)) if line.strip()]
    sources = bundle.tokenizer.encode_sources(lines)
    tables = {beam: _profile(PackedModel(bundle.model), sources, beam, options.batch) for beam in options.beam}
    print(f"{len(sources):,} sentences, {options.batch} at a time, {options.threads} threads")
    print("".join([f"{'':22}", *(f"{f'beam {beam}':>12}" for beam in tables)]))
    for group in next(iter(tables.values())):
        print(f"{group:22}" + "".join(f"{table[group] / sum(table.values()):12.1%}" for table in tables.values()))
    print(f"{'all, s':22}" + "".join(f"{sum(table.values()):12.2f}" for table in tables.values()))


def _profile(model: PackedModel, sources: list[list[int]], beam: int, batch: int) -> dict[str, float]:
    """Return seconds by group; they add up to the time without the profiler, and `other` is what no group has."""
    tokens = batch * beam * sum(map(len, sources)) // len(sources)
    options = SearchOptions(DecodeConfig(beam_size=beam, length_penalty=0.0, batch_tokens=tokens))
    decode(model, sources[:batch], options)  # warm up
    start = time.perf_counter()
    decode(model, sources, options)
    wall = time.perf_counter() - start
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        decode(model, sources, options)
    seconds = dict.fromkeys(["vocabulary product", *GROUPS, "other"], 0.0)
    for event in profiler.events() or []:
        group = _group(event.name.removeprefix("aten::"), event.input_shapes or [], model.config.vocab_size)
        seconds[group] += event.self_cpu_time_total / 1e6
    seconds["other"] += max(0.0, wall - sum(seconds.values()))
    return {group: value * wall / sum(seconds.values()) for group, value in seconds.items()}


def _group(operation: str, shapes: Sequence[Any], vocab_size: int) -> str:
    if operation in GROUPS["layer products"] and any(max(shape, default=0) >= vocab_size for shape in shapes):
        return "vocabulary product"
    return next((group for group, operations in GROUPS.items() if operation in operations), "other")


if __name__ == "__main__":
    main()
