"""A recording of what each line of the package computes: tensors, and the lines that they come from."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearhead.paper.places import PACKAGE, Code

_OPERATIONS = "kernels/"
"""What this folder computes is recorded at the line of a layer that uses it."""


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A call of a function of PyTorch, and what it returned."""

    code: Code
    number: int
    """Number of the line."""
    tensor: Tensor


class Recording(TorchFunctionMode):
    """Records, inside its `with` block, every tensor and the line of the package that computed it.

    Args:
        kept: Returns what is kept of a tensor, which a later line may change in place; None to leave out the call.
    """

    def __init__(self, kept: Callable[[Tensor], Tensor | None] = Tensor.clone) -> None:
        super().__init__()
        self._kept = kept
        self.calls: list[RecordedCall] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of PyTorch, and keep of the tensor that it returns what is to be kept."""
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and (kept := self._kept(result)) is not None:
            calls = package_calls(sys._getframe(1))
            file, number = next((file, call.f_lineno) for file, call in calls if not file.startswith(_OPERATIONS))
            code = Code(file, line_text(file, number), func.__name__)
            self.calls.append(RecordedCall(code, number, kept))
        return result

    def tensor(self, code: Code, place: int) -> Tensor:
        """Return what a call at a line returned; the calls there are counted from 0."""
        return [call.tensor for call in self.calls if call.code == code][place]


def package_calls(frame: FrameType) -> Iterator[tuple[str, FrameType]]:
    """Yield the calls in the package from a frame outwards, with their file, such as `model/attention.py`."""
    for call, _ in walk_stack(frame):
        path = Path(call.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            yield path.relative_to(PACKAGE).as_posix(), call


def line_text(file: str, number: int) -> str:
    """Return a line of a file of the package, without its comment."""
    return linecache.getline(str(PACKAGE / file), number).partition("  #")[0].strip()
