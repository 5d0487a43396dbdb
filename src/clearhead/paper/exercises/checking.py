"""Check an answer to an exercise: run its tests, and find the known mistake that computes the same."""

from __future__ import annotations

import ast
import copy
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isroutine
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.errors import LONGEST_MESSAGE, ClearheadError
from clearhead.paper.errata import ERRATA
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.exercises.catalogue import exercise as numbered
from clearhead.paper.exercises.exercise import Answer, AnswerError, Exercise, functions_of, same
from clearhead.paper.growth import one_thread
from clearhead.paper.parts import wrapped

Outcome = CheckResult | AnswerError
"""What a test found, or why it could not measure an answer."""

BLANK = "the blank is not filled in: replace `...`"


@dataclass(frozen=True)
class Verdict:
    """What a check found."""

    number: int
    """Number of the exercise."""
    name: str
    """Name of its function."""
    state: Literal["right", "wrong", "open"]
    """Open: the blank is not filled in."""
    hint: str = ""
    """The mistake, if it is a known one."""
    found: str = ""
    """What was measured, or why nothing could be."""

    def __str__(self) -> str:
        """Return the verdict as lines of text."""
        states = {"right": "right", "wrong": "not right", "open": BLANK}
        lines = [f"Exercise {self.number}, {self.name}: {states[self.state]}"]
        for label, text in (("hint", self.hint), ("found", self.found)):
            lines += wrapped(text, first=f"  {label:<6}", others=" " * 8)
        return "\n".join(lines)

    __repr__ = __str__  # what a notebook shows


def check(number: int, answer: Answer) -> Verdict:
    """Check an answer to an exercise.

    Args:
        number: The number of the exercise.
        answer: The function with its blank filled in.

    Raises:
        ClearheadError: If there is no such exercise.

    >>> from clearhead.paper.exercises import check
    >>> check(27, lambda n, d: n < d)
    Exercise 27, attention_is_cheaper: right
    """
    exercise = numbered(number)
    with one_thread():  # these tensors are too small for more
        outcomes = list(_outcomes(exercise, answer))
        problems = [_problem(outcome) for outcome in outcomes if not _holds(outcome)]
        if not problems:
            return Verdict(number, exercise.name, "right")
        if BLANK in problems:
            return Verdict(number, exercise.name, "open")
        return Verdict(number, exercise.name, "wrong", _hint(exercise, outcomes), problems[0])


def check_file(file: Path, exercises: Sequence[Exercise]) -> list[Verdict]:
    """Run a file of answers and check those to some exercises; if there are several, it need not have all.

    Raises:
        ClearheadError: If the file cannot be read or run, has none of the functions, or is stopped by Ctrl-C.
    """
    names = answers_in(file)
    answered = [(task, names[task.name]) for task in exercises if task.name in names]
    if not answered:
        task, *others = exercises
        raise ClearheadError(
            f"{file} has no function {task.name}{' or any other of an exercise' if others else ''}; "
            f"`clearhead paper exercises {task.number}` shows how it begins"
        )
    verdicts = []
    for task, answer in answered:
        try:
            verdicts.append(check(task.number, answer))
        except KeyboardInterrupt as error:  # an answer that does not end
            raise ClearheadError(f"stopped at exercise {task.number}, {task.name}: it {_raised(error)}") from None
    return verdicts


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the answers that are not right, and how many there are of each kind.

    >>> print(summary([Verdict(27, "attention_is_cheaper", "open")]))
    0 right, 0 not right, 1 open; next: 27, attention_is_cheaper
    """
    states = [verdict.state for verdict in verdicts]
    counts = f"{states.count('right')} right, {states.count('wrong')} not right, {states.count('open')} open"
    following = [f"; next: {verdict.number}, {verdict.name}" for verdict in verdicts if verdict.state == "open"][:1]
    return "\n".join([*(str(verdict) for verdict in verdicts if verdict.state == "wrong"), counts + "".join(following)])


def answers_in(file: Path) -> dict[str, Any]:
    """Run a file of answers and return what it defines, by name, without the functions that it imports.

    Raises:
        ClearheadError: If the file cannot be read or run; the message has the line.
    """
    try:
        code = file.read_bytes()
    except OSError as error:
        raise ClearheadError(f"cannot read {file}: {error.strerror}") from None
    if b"\0" in code:
        raise ClearheadError(f"{file} has bytes that are no text, or is UTF-16; save it as UTF-8")
    try:
        with _settings_kept():
            names = functions_of(code, str(file))
    except SyntaxError as error:
        raise ClearheadError(f"{file}, line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise ClearheadError(f"{file} {_raised(error)}") from None
    lines: dict[str, list[int]] = {}
    for each in ast.parse(code).body:
        if isinstance(each, ast.FunctionDef):
            lines.setdefault(each.name, []).append(each.lineno)
    for name, several in lines.items():
        if len(several) > 1:
            raise ClearheadError(f"{file} has {name} in lines {' and '.join(map(str, several))}; keep one of them")
    own = names["__name__"]
    return {name: value for name, value in names.items() if not isroutine(value) or value.__module__ == own}


@contextmanager
def _settings_kept() -> Iterator[None]:
    """Restore the settings of PyTorch that an answer may change: they would decide about the answers after it."""
    default = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(torch.is_grad_enabled()):
        try:
            yield
        finally:
            torch.set_default_dtype(default)


def solution(number: int) -> str:
    """Return the source of an exercise with its blank filled in.

    Raises:
        ClearheadError: If there is no such exercise.
    """
    exercise = numbered(number)
    return exercise.source(exercise.blank)


def _holds(outcome: Outcome) -> bool:
    return isinstance(outcome, CheckResult) and outcome.holds


def _problem(outcome: Outcome) -> str:
    return outcome.figures if isinstance(outcome, CheckResult) else str(outcome)


def _outcomes(exercise: Exercise, answer: Answer) -> Iterator[Outcome]:
    """Yield what each test of an exercise finds, those of errata last and in the order of `exercise.errata`."""
    guarded = _guarded(exercise, answer)
    own = [exercise.test] if exercise.test else []
    for test in (*own, *(_erratum_test(*each) for each in exercise.errata.items())):
        try:
            yield test(guarded)
        except AnswerError as error:
            yield error
        except Exception as error:  # results of the right type may still be unusable, such as ids that do not exist
            yield AnswerError(f"what the function returns cannot be used: {_shortly(error)}")


def _erratum_test(number: int, version: Callable[[Answer], Any]) -> Callable[[Answer], CheckResult]:
    return lambda answer: ERRATA[number - 1].test(version(answer))


def _guarded(exercise: Exercise, answer: Answer) -> Answer:
    """Return an answer that raises `AnswerError` if it raises anything, or returns another type or shape than asked."""

    def call(*arguments: Any) -> Any:
        wanted = exercise.solution(*map(_copied, arguments))
        try:
            with _settings_kept():
                result = answer(*map(_copied, arguments))
        except (Exception, SystemExit) as error:
            raise AnswerError(BLANK if "ellipsis" in _shortly(error) else f"the function {_raised(error)}") from None
        if result is ... or (isinstance(result, list | tuple) and ... in [part for part in result if part is ...]):
            raise AnswerError(BLANK)
        return _of_kind(result, wanted)

    return call


def _copied(argument: Any) -> Any:
    """Return an argument that may be changed in place; a tensor keeps its gradient."""
    return argument.clone() if isinstance(argument, Tensor) else copy.copy(argument)


def _raised(error: BaseException) -> str:
    """Return what an answer raised, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent != Path(__file__).parent]
    place = f" in line {own[0].lineno} of {own[0].filename}" if own else ""
    return f"raises {_shortly(error)}{place}"


def _shortly(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].splitlines()[0][: LONGEST_MESSAGE // 4]


def _of_kind(result: Any, wanted: Any) -> Any:
    """Return a result, as plain numbers where those are asked for.

    Raises:
        AnswerError: If its type or shape is another than that of the solution.
    """
    if not isinstance(wanted, Tensor) and getattr(result, "shape", None) == ():  # of PyTorch or NumPy
        result = result.item()
    if _kind(result) != _kind(wanted):
        raise AnswerError(f"the function returns {_kind(result)}, expected {_kind(wanted)}")
    return result


def _kind(value: Any) -> str:
    """Return the type and shape of a result in words."""
    match value:
        case Tensor():
            numbers = "True and False" if value.dtype == torch.bool else "numbers"
            return f"a tensor of {numbers}, shape {tuple(value.shape)}"
        case None:
            return "None"
        case bool():
            return "True or False"
        case Real():
            return "a number"
        case tuple():
            return f"({', '.join(map(_kind, value))})"
        case list():
            return f"a list of {' and '.join(sorted({_kind(each) for each in value})) or 'nothing'}"
        case _:
            return f"something of type {type(value).__name__}"


def _hint(exercise: Exercise, outcomes: list[Outcome]) -> str:
    """Return the hint for the known wrong answer that has the same outcomes; empty if there is none."""
    for expression, hint in exercise.wrong.items():
        if _alike(_outcomes(exercise, exercise.filled(expression)), outcomes):
            return hint
    tests = dict(zip(exercise.errata, outcomes[1:] if exercise.test else outcomes, strict=True))
    failed = {number: each.output for number, each in tests.items() if isinstance(each, CheckResult) and not each.holds}
    errata = {number: ERRATA[number - 1] for number in failed}
    for number, erratum in errata.items():
        if same(erratum.test(erratum.wrong_version).output, failed[number]):
            return f"this is erratum {number}, {erratum.title}. Notes say: {erratum.wrong}"
    for number, erratum in errata.items():
        if name := _near_miss(erratum, failed[number]):
            return f"this is like erratum {number}, {erratum.title}; it computes: {name}"
    return ""


def _near_miss(erratum: Erratum, output: Any) -> str:
    """Return the name of the near miss with this output; empty if there is none."""
    return next((name for name, version in erratum.mutants.items() if same(erratum.test(version).output, output)), "")


def _alike(some: Iterable[Outcome], others: Iterable[Outcome]) -> bool:
    """Return whether two answers compute the same in every test, or fail for the same reason.

    At the first difference no further test is run.
    """
    return all(
        same(left.output, right.output)
        if isinstance(left, CheckResult) and isinstance(right, CheckResult)
        else str(left) == str(right)
        for left, right in zip(some, others, strict=True)
    )
