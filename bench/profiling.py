"""Where the time of a training step goes, by PyTorch's profiler: by kind of work on a CPU, by kernel on a GPU."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from candidate import Candidate
from clearhead.data.batches import Batch

__all__ = ["GROUPS", "kernels_of", "profile_kernels", "profile_steps"]

GROUPS = (
    "layer products",
    "vocabulary product + loss",
    "attention",
    "dropout",
    "norms",
    "element-wise",
    "optimizer",
    "copies",
    "other",
)
"""`other`: Python, autograd's bookkeeping, embeddings, masks, and what has no name here."""

STEP, DROPOUT = "bench::step", "bench::dropout"
BACKWARD = "autograd::engine::evaluate_function"
NAMES = {
    "optimizer": ("optimizer.", "linalg_vector_norm", "_foreach_"),
    "vocabulary product + loss": ("crossentropy", "cross_entropy"),
    "dropout": ("dropout", "bernoulli"),
    "attention": ("scaled_dot_product", "aten::bmm", "aten::baddbmm", "softmax"),
    "norms": ("layer_norm", "rms_norm", "layernorm"),
}
"""Group to parts of the name of an operation or of an enclosing one; the first match counts."""
OPERATIONS = {
    "layer products": ("mm", "addmm", "addmv"),
    "copies": ("copy", "clone", "cat", "fill", "zero", "index", "index_put", "_index_put_impl", "slice_backward"),
    "element-wise": ("add", "sub", "mul", "div", "neg", "relu", "threshold_backward", "clamp_min", "sum", "pow"),
}
"""Group to operations that are anywhere else."""


def profile_steps(candidate: Candidate, batches: Sequence[Batch]) -> dict[str, float]:
    """Return milliseconds a step in each group; what runs in other threads meanwhile is not counted twice.

    Backward work is counted where its forward operation was.

    Args:
        candidate: One that has warmed up.
        batches: One step each.
    """
    with ExitStack() as hooks:
        for module in candidate.model.modules():
            if type(module).__name__ == "Dropout":
                hooks.enter_context(_scoped(module, DROPOUT))
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for number, batch in enumerate(batches, start=1):
                with record_function(STEP):
                    candidate.step(batch, number)
    events = [event for event in profiler.events() or [] if _chain(event)[-1].name == STEP]
    forward = _forward_groups(events)
    vocab_size = _vocab_size(candidate.model)
    milliseconds = dict.fromkeys(GROUPS, 0.0)
    for event in events:
        milliseconds[_group(event, forward, vocab_size)] += event.self_cpu_time_total / 1e3 / len(batches)
    return milliseconds


def profile_kernels(candidate: Candidate, batches: Sequence[Batch]) -> dict[str, Any]:
    """Return what a GPU does in a step: `kernels_of`, milliseconds a step, and where Python waits for the GPU.

    Args:
        candidate: One that has warmed up on a GPU.
        batches: One step each.
    """

    def train() -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for number, batch in enumerate(batches, start=1):
            candidate.step(batch, number)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / len(batches) * 1e3

    milliseconds = train()  # before the profiler, which slows it down
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        train()
    with TemporaryDirectory() as directory:
        path = Path(directory, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    waits = _waits(candidate, batches[0])
    return {"step_ms": milliseconds, **kernels_of(events, len(batches)), "waits": waits}


def kernels_of(events: Sequence[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Sum up a trace of PyTorch's profiler, in its Chrome form.

    Returns:
        Kernels a step (`kernels`), copies and fills (`copies`), calls that start work on the GPU (`launches`) or wait
        for it (`synchronizations`), milliseconds of kernels and copies (`busy_ms`), and for each name of a kernel
        its number and milliseconds a step, those that take the longest first (`by_name`).
    """
    numbers: Counter[str] = Counter()
    milliseconds: Counter[str] = Counter()
    counted = Counter[str]()
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            counted["kernels" if kind == "kernel" else "copies"] += 1
            numbers[name] += 1
            milliseconds[name] += event["dur"] / 1e3
        elif kind in ("cuda_runtime", "cuda_driver"):
            counted["launches"] += "Launch" in name
            counted["synchronizations"] += "Synchronize" in name
    return {
        **{name: counted[name] / steps for name in ("kernels", "copies", "launches", "synchronizations")},
        "busy_ms": milliseconds.total() / steps,
        "by_name": [[name, numbers[name] / steps, spent / steps] for name, spent in milliseconds.most_common()],
    }


def _waits(candidate: Candidate, batch: Batch) -> dict[str, int]:
    """Return how often a step waits for the GPU, by the line of Python that does."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            candidate.step(batch, 1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = (one for one in caught if "synchroniz" in str(one.message))
    return dict(Counter(f"{Path(one.filename).name}:{one.lineno}" for one in places))


@contextmanager
def _scoped(module: nn.Module, name: str) -> Iterator[None]:
    forward: Callable[..., Any] = module.forward

    def scoped(*arguments: Any, **options: Any) -> Any:
        with record_function(name):
            return forward(*arguments, **options)

    module.forward = scoped
    try:
        yield
    finally:
        del module.forward  # the method of the class shows again


def _vocab_size(model: nn.Module) -> int:
    return max(weight.size(0) for weight in model.parameters())


def _chain(event: FunctionEvent) -> list[FunctionEvent]:
    """Return the event and everything around it, outermost last."""
    chain = [event]
    while chain[-1].cpu_parent is not None:
        chain.append(chain[-1].cpu_parent)
    return chain


def _forward_groups(events: Sequence[FunctionEvent]) -> dict[int, str]:
    """Map the number of each differentiable operation, which its backward operations bear too, to its group."""
    # Of several events with one number the last made the node; those before it had nothing to differentiate.
    in_order = sorted(events, key=lambda event: event.time_range.start)
    return {event.sequence_nr: _named_group(event) for event in in_order if not _is_backward(event)}


def _is_backward(event: FunctionEvent) -> bool:
    return any(around.name.startswith(BACKWARD) for around in _chain(event))


def _named_group(event: FunctionEvent) -> str:
    """Return the group that the names of the event and of what is around it tell, or nothing."""
    names = " ".join(around.name for around in _chain(event) if not around.name.startswith(BACKWARD)).lower()
    for group, words in NAMES.items():
        if any(word in names for word in words):
            return group
    return ""


def _group(event: FunctionEvent, forward: dict[int, str], vocab_size: int) -> str:
    operation = event.name.removeprefix("aten::").rstrip("_")
    named = _named_group(event)
    # Sums of gradients that meet belong to no single operation.
    is_sum = event.cpu_parent is not None and event.cpu_parent.name.startswith(BACKWARD) and operation == "add"
    if not named and not is_sum:
        nodes = [around.sequence_nr for around in _chain(event) if around.name.startswith(BACKWARD)]
        named = next((forward[number] for number in nodes if forward.get(number)), "")
    shapes: Sequence[Any] = event.input_shapes or []
    if named != "optimizer" and any(vocab_size in shape for shape in shapes if shape):
        return "other" if "embedding" in operation else "vocabulary product + loss"
    if named:
        return named
    for group, operations in OPERATIONS.items():
        if operation in operations:
            return group
    return "other"
