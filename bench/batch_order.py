"""The order of batches of a corpus of any size: time, memory and padding of made-up lengths, by window.

    python bench/batch_order.py --pairs 300000000

The lengths themselves (2 bytes each) stand for the mapped file of a run; their memory is given, and not counted.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np
from numpy.typing import NDArray

from clearhead.data.batches import WINDOW, BatchOrder

BATCH_TOKENS = 25_000
MILLION = 2**20


def made_up(num_pairs: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return source and target lengths: log-normal with a median of 20, the target within about a fifth of its source.

    The first half is text of half the length, as of another domain.
    """
    random = np.random.default_rng(1)
    sides = np.empty((2, num_pairs), dtype=np.uint16)
    for start in range(0, num_pairs, MILLION):
        rows = slice(start, min(num_pairs, start + MILLION))
        median = 10 if start < num_pairs // 2 else 20
        source = median * random.lognormal(0.0, 0.6, size=rows.stop - start)
        target = source * random.normal(1.0, 0.2, size=source.size)
        sides[:, rows] = np.stack([source, target]).clip(1, 255)
    return sides[0], sides[1]


def main() -> None:
    """Print a line for each order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=MILLION * 8)
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--whole", action="store_true", help="also all pairs as one window")
    given = parser.parse_args()
    source, target = made_up(given.pairs)
    for window in (given.window, None) if given.whole else (given.window,):
        tracemalloc.start()
        started = time.perf_counter()
        order = BatchOrder(source, target, batch_tokens=BATCH_TOKENS, seed=1, window=window)
        per_epoch = order.batches_per_epoch
        print(f"{given.pairs:,} pairs, window {window or given.pairs:,}: {per_epoch:,} steps an epoch, ", end="")
        print(f"{time.perf_counter() - started:.1f} s to begin")
        for step in (1, 10**6, 10**9):
            started = time.perf_counter()
            order.rows(step)
            first, started = time.perf_counter() - started, time.perf_counter()
            order.rows(step)
            print(f"  step {step:,}: {first:.2f} s, again {1e6 * (time.perf_counter() - started):.0f} us")
        used = padded = 0
        for step in range(1_000):
            rows = order.rows(step)
            for lengths in (source, target):
                used, padded = used + int(lengths[rows].sum()), padded + int(lengths[rows].max()) * rows.size
        most = tracemalloc.get_traced_memory()[1] / 2**20
        print(f"  padding {100 * (1 - used / padded):.2f} %, memory {most:,.0f} MiB at most")
        tracemalloc.stop()


if __name__ == "__main__":
    main()
