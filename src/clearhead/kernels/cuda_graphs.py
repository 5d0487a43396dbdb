"""CUDA graphs: the kernels of a function, recorded once and replayed without Python."""

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
        """Call a function on the recording stream, as a warm-up that initialises libraries and allocates tensors."""
        with torch.cuda.device(self.device):
            usual = torch.cuda.current_stream()
            self._stream.wait_stream(usual)
            with torch.cuda.stream(self._stream):
                function()
            usual.wait_stream(self._stream)

    def record(self, function: Callable[[], object], kept: Iterable[Tensor]) -> Callable[[], None]:
        """Record a function without running it, and return a callable that replays it.

        Args:
            function: A function that reads and writes tensors at fixed addresses.
            kept: Tensors to keep alive because the graph has their addresses, such as tables of positions.
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
