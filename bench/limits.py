"""The share of the machine's own limit that a translation reaches: its work, and peaks measured in the same run.

Batches are limited by the peak of products. Counted are the multiply-adds of all matrix products, two operations each:
of the encoder, of every step of the decoder for each hypothesis, and of the whole vocabulary, at the peak of the
precision of the weights (attention too, which most engines compute in float32). Padding, norms, softmax and the search
count nothing. One sentence at a time is limited by reading the weights: once for the encoder and for the keys and
values of the source, once a step for the rest of the decoder and the vocabulary, at the bandwidth measured on as many
bytes as are read in a step. Steps are those of the output that is returned.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from clearhead.config import ModelConfig

__all__ = ["PRECISIONS", "GpuLimits", "Limits", "Precision", "Weights", "operations", "weights_read"]

TRIES = 20
"""Measurements of each limit in each thread, of which the best counts."""
GPU_TRIES = 5
SECONDS = 0.005
"""Least duration of one."""


@dataclass(frozen=True)
class Weights:
    """Weights in matrices, which are also the multiply-adds for a token."""

    source: int
    """The encoder's, and those for keys and values of the source: used for each source token, read once a sentence."""
    step: int
    """All others: used for each target token of each hypothesis, read once a step."""
    pair: int
    """Multiply-adds for a query and a key, scores and weighted sum, in one attention."""

    @classmethod
    def of(cls, config: ModelConfig) -> Weights:
        """Count them."""
        widths = config.num_heads * (config.key_dim + config.value_dim)
        half = config.d_model * widths  # queries and output, or keys and values
        feed_forward = (3 if config.gated else 2) * config.d_model * config.d_ff
        return cls(
            config.num_encoder_layers * (2 * half + feed_forward) + config.num_decoder_layers * half,
            config.num_decoder_layers * (3 * half + feed_forward) + config.d_model * config.vocab_size,
            widths,
        )


def operations(config: ModelConfig, source_length: int, target_length: int, beam_size: int) -> int:
    """Return the operations to translate one sentence: two for each multiply-add.

    Args:
        config: Of a model with an encoder and a decoder.
        source_length: Source tokens, the end token included.
        target_length: Steps: output tokens, the end token included.
        beam_size: Hypotheses in every step.
    """
    weights, source, target = Weights.of(config), source_length, target_length
    encoder_pairs = config.num_encoder_layers * source * source
    decoder_pairs = config.num_decoder_layers * (target * (target + 1) // 2 + target * source)
    return 2 * (
        weights.source * source
        + weights.step * target * beam_size
        + weights.pair * (encoder_pairs + beam_size * decoder_pairs)
    )


def weights_read(config: ModelConfig, target_length: int) -> int:
    """Return the weights read to translate one sentence alone, once for all its hypotheses."""
    weights = Weights.of(config)
    return weights.source + weights.step * target_length


@dataclass(frozen=True)
class Precision:
    """A precision of weights: how much room they take, and what they are multiplied with."""

    bytes: int
    """Of one weight."""
    peak: str
    """The kind of products."""
    products: int = 1
    """Products for a multiply-add."""


PRECISIONS: Mapping[str, Precision] = {
    "float32": Precision(4, "float32"),
    "bfloat16 x3": Precision(4, "bfloat16", 3),
    "bfloat16": Precision(2, "bfloat16"),
    "int8": Precision(1, "int8"),
    **{f"{name} on the GPU": Precision(size, name) for name, size in (("float32", 4), ("float16", 2), ("bfloat16", 2))},
}
"""By the name that an engine has for it."""

FLAGS: Mapping[str | None, tuple[str, ...]] = {None: ("-march=native",), "avx2": ("-mavx2", "-mfma")}
"""Compiler flags for the instructions that engines may use: all of this processor, or those of AVX2."""


class Limits:
    """What this machine can do at most; measured again by every call."""

    def __init__(self, directory: Path, isa: str | None, threads: int) -> None:
        """Compile the kernels.

        Args:
            directory: Where to.
            isa: The instructions that the engines are held to; None for all.
            threads: Of each engine.

        Raises:
            RuntimeError: If there is no C compiler, or it fails; the text says so in one line.
        """
        compiler = shutil.which("cc")
        if compiler is None:
            raise RuntimeError("shares of the machine's limit are left out: there is no C compiler (cc)")
        library = directory / "limits.so"
        kernels = Path(__file__).with_name("limits.c")
        done = subprocess.run(
            [compiler, "-O3", "-shared", "-fPIC", *FLAGS[isa], "-o", str(library), str(kernels)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = next((line for line in done.stderr.splitlines() if "error" in line), "it gives no reason")
            raise RuntimeError(f"shares of the machine's limit are left out: {compiler} failed ({reason.strip()})")
        self._library = ctypes.CDLL(str(library))
        for kind in ("float32", "bfloat16", "int8"):
            self._library[f"peak_{kind}"].restype = ctypes.c_int64
        self._library.read_bytes.restype = ctypes.c_int64
        self._library.read_bytes.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        self._threads = threads

    def peak(self, kind: str) -> float:
        """Return operations per second of all threads; 0.0 if the instructions have no such products."""
        function = self._library[f"peak_{kind}"]
        return self._best([function] * self._threads)

    def bandwidth(self, size: int) -> float:
        """Return bytes per second when all threads together read the same bytes over and over, each its part.

        Args:
            size: Bytes, such as the weights that a step reads.
        """
        data = np.ones(size, np.uint8)
        part = size // self._threads
        times = max(1, 2**21 // max(1, part))
        read, start = self._library.read_bytes, data.ctypes.data
        return self._best([partial(read, start + number * part, part, times) for number in range(self._threads)])

    def _best(self, tasks: Sequence[Callable[[], int]]) -> float:
        """Run tasks at the same time, a thread each; return the sum of the best rates."""

        def best(task: Callable[[], int]) -> float:
            return max(_rate(task) for _ in range(TRIES))

        with ThreadPoolExecutor(self._threads) as pool:
            return sum(pool.map(best, tasks))


class GpuLimits:
    """The same of the GPU, by PyTorch."""

    def peak(self, kind: str) -> float:
        """Return operations per second of products of large matrices."""
        import torch

        size = 8_192
        left, right = (torch.randn(size, size, device="cuda", dtype=getattr(torch, kind)) for _ in range(2))
        return max(2 * size**3 / _gpu_seconds(lambda: left @ right) for _ in range(GPU_TRIES))

    def bandwidth(self, size: int) -> float:
        """Return bytes per second of a copy that no cache holds, read and written, whatever the size asked for."""
        del size
        import torch

        data = torch.empty(2**30, dtype=torch.uint8, device="cuda")
        return max(2 * data.numel() / _gpu_seconds(data.clone) for _ in range(GPU_TRIES))


def _gpu_seconds(task: Callable[[], object]) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    task()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _rate(task: Callable[[], int]) -> float:
    amount, start = 0, time.perf_counter()
    while True:
        amount += task()
        seconds = time.perf_counter() - start
        if seconds > SECONDS:
            return amount / seconds
