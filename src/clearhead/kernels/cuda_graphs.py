"""CUDA graphs: what a function did on a GPU, recorded once and repeated without Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor


class GraphRecorder:
    """Records functions as CUDA graphs that share memory. Such a function waits for no value of the device.

    Args:
        device: A GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        with torch.cuda.device(device):
            self._memory, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def prepare(self, function: Callable[[], object]) -> None:
        """Call a function on the stream of recordings, so that its libraries prepare, and what it makes can stay."""
        with torch.cuda.device(self.device):
            usual = torch.cuda.current_stream()
            self._stream.wait_stream(usual)
            with torch.cuda.stream(self._stream):
                function()
            usual.wait_stream(self._stream)

    def record(self, function: Callable[[], object], kept: Iterable[Tensor]) -> Callable[[], None]:
        """Return what repeats a function, which is recorded without being computed.

        Args:
            function: Reads and writes tensors that stay where they are.
            kept: Tensors that it reads and that may be replaced elsewhere, as tables of positions are.
        """
        graph, tensors = torch.cuda.CUDAGraph(), list(kept)
        recording = torch.cuda.graph(  # another thread may use the device meanwhile
            graph, self._memory, self._stream, capture_error_mode="thread_local"
        )
        with torch.cuda.device(self.device), recording:
            function()
        return partial(_replay, graph, tensors)


def _replay(graph: torch.cuda.CUDAGraph, _: list[Tensor]) -> None:
    graph.replay()
