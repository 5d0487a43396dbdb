"""An exercise: a function of the paper with a blank, the tests of what is filled in, and known wrong answers.

The functions of exercises are short and take plain tensors and numbers. An exercise shows the source of its solution
with one expression replaced by `...`, so the two cannot differ in anything else. Which expression that is, and what is
filled in by mistake, is in `exercises.toml`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.paper.errata.erratum import CheckResult
from clearhead.paper.places import read_table

Answer = Callable[..., Any]
Test = Callable[[Answer], CheckResult]

HEADER = """\
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
"""
"""The imports of every exercise."""


class AnswerError(ClearheadError):
    """An answer that cannot be measured: it raises, or what it returns has another type or shape."""


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """A function with a blank to fill in."""

    number: int
    """Number of the exercise, counted from 1 in the order of the paper; it never changes."""
    section: str
    """Section of the paper."""
    solution: Answer
    """The complete function; its docstring is the task."""
    blank: str
    """The expression of the solution that is to be filled in."""
    wrong: Mapping[str, str]
    """Wrong expression -> hint, for mistakes that no erratum of `errata` recognizes."""
    test: Test | None
    """Comparison with a reference that is computed in another way; None where those of `errata` are enough."""
    errata: Mapping[int, Callable[[Answer], Any]]
    """Number of an erratum whose test an answer must pass -> makes of an answer the version that it measures."""

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.solution.__name__

    def source(self, expression: str) -> str:
        """Return the source of the function with an expression in the blank."""
        return inspect.getsource(self.solution).replace(self.blank, expression)

    def filled(self, expression: str) -> Answer:
        """Return the function with an expression in the blank."""
        return functions_of(HEADER + self.source(expression), f"<exercise {self.number}>")[self.name]


_TABLE = read_table("exercises/exercises.toml")
"""Name of the function -> number, section, blank and known mistakes of an exercise."""


def exercise_of(
    solution: Answer, *, test: Test | None = None, errata: Mapping[int, Callable[[Answer], Any]] = MappingProxyType({})
) -> Exercise:
    """Return the exercise on a function, of which `exercises.toml` has the rest; see `Exercise`."""
    said = _TABLE[solution.__name__]
    wrong = {expression: " ".join(hint.split()) for expression, hint in said.get("wrong", {}).items()}
    return Exercise(solution=solution, test=test, errata=errata, **{**said, "wrong": wrong})


def functions_of(code: str | bytes, file: str) -> dict[str, Any]:
    """Run the code of a file and return what it defines, by name."""
    names: dict[str, Any] = {"__name__": "answers"}
    exec(compile(code, file, "exec"), names)
    return names


def equals(reference: Answer, *inputs: tuple[Any, ...], of: Callable[[Answer], Answer] = lambda answer: answer) -> Test:
    """Return a test that compares an answer with a reference function for each of some inputs.

    Args:
        reference: Computes the right result in another way.
        inputs: The arguments of each call.
        of: Makes of an answer the function to compare.
    """

    def test(answer: Answer) -> CheckResult:
        outputs, figures = [], ""
        compute = of(answer)
        for arguments in inputs:
            outputs.append(compute(*arguments))
            wanted = reference(*arguments)
            if not figures and not same(outputs[-1], wanted):
                figures = _difference(arguments, outputs[-1], wanted)
        return CheckResult(not figures, figures, outputs)

    return test


def same(left: Any, right: Any) -> bool:
    """Return whether two results are equal, numbers up to rounding."""
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        left, right = torch.as_tensor(left).double(), torch.as_tensor(right).double()
        return left.shape == right.shape and torch.allclose(left, right, rtol=1e-4, atol=1e-4)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) or isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-4)
    return bool(left == right)


def _difference(arguments: tuple[Any, ...], answer: Any, wanted: Any) -> str:
    """Return in words where a result differs from that of the reference."""
    if isinstance(answer, Tensor):
        wanted = torch.as_tensor(wanted)
        differs = ~torch.isclose(answer.double(), wanted.double(), rtol=1e-4, atol=1e-4)
        place = tuple(int(index) for index in differs.nonzero()[0])
        number = f"[{', '.join(map(str, place))}]" if place else "the result"
        return (
            f"{number} is {_written(answer[place].item())}, expected {_written(wanted[place].item())}; "
            f"{int(differs.sum()):,} of {differs.numel():,} numbers differ"
        )
    given = "" if any(isinstance(each, Tensor) or callable(each) for each in arguments) else f" for {arguments}"
    return f"{_written(answer)}{given}, expected {_written(wanted)}"


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_written, value))})"
    if isinstance(value, Tensor):
        return str(value.tolist())
    return f"{value:.6g}" if isinstance(value, float) else str(value)
