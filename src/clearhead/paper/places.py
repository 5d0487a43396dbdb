"""The places of the paper in the code: lines that compute its formulas, and its equations, from `places.toml`."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1]


class Code(NamedTuple):
    """A function of PyTorch that a line of the package calls."""

    file: str
    """Path below the package, such as `model/attention.py`."""
    text: str
    """The line, without its comment."""
    function: str


@dataclass(frozen=True)
class CodeLine:
    """A line of the package with its number."""

    file: str
    number: int
    text: str


@dataclass(frozen=True)
class Place:
    """A line of the package that computes something of the paper."""

    file: str
    """Path below the package."""
    line: str
    """The line or a part of it, without its comment; no other line of the file holds it."""
    computes: Mapping[str, str] = field(default_factory=dict)
    """Function of PyTorch that the line calls -> what its result is in the paper."""


def read_table(name: str) -> dict[str, Any]:
    """Return a table that lies beside this module."""
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


_TABLE = read_table("places.toml")
EQUATIONS: Mapping[str, Mapping[str, str]] = _TABLE.pop("equation")
"""Name of an equation -> `place` (its number or section), `formula`, and `code` (the definition that computes it)."""
PLACES = {f"{group}.{name}": Place(**place) for group, places in _TABLE.items() for name, place in places.items()}
"""Name, such as `eq1.scores` -> place."""


def code(name: str, function: str = "") -> Code:
    """Return what a recording finds at a place.

    Args:
        name: Name of the place.
        function: Function of PyTorch; the only one of the place if not given.
    """
    place = PLACES[name]
    if not function:
        [function] = place.computes
    return Code(place.file, place.line, function)


FORMULAS = {code(name, function): formula for name, one in PLACES.items() for function, formula in one.computes.items()}
"""What a line computes in the paper's model; the lines of other models' options are not listed."""


def line_of(reference: str) -> CodeLine:
    """Return the line of a place such as `eq1.scores`, or of a definition such as `model.attention:MultiHeadAttention`.

    Raises:
        LookupError: If there is no such line, or if there are several.
    """
    module, is_definition, name = reference.partition(":")
    if not is_definition and reference not in PLACES:
        raise LookupError(f"places.toml has no place {reference}")
    file = f"{module.replace('.', '/')}.py" if is_definition else PLACES[reference].file
    if not (PACKAGE / file).is_file():
        raise LookupError(f"no file {file}")
    lines = _lines(file)
    if is_definition:
        if name not in definitions(file):
            raise LookupError(f"{file} does not define {name}")
        return CodeLine(file, definitions(file)[name], lines[definitions(file)[name] - 1].strip())
    line = PLACES[reference].line
    numbers = [number for number, text in enumerate(lines, start=1) if line in text]
    if len(numbers) != 1:
        raise LookupError(
            f"{file} holds {line!r} in {len(numbers)} lines, not in one: correct {reference} in places.toml"
        )
    return CodeLine(file, numbers[0], line)


@cache
def _lines(file: str) -> list[str]:
    return (PACKAGE / file).read_text(encoding="utf-8").splitlines()


@cache
def definitions(file: str) -> dict[str, int]:
    """Return the line of each name that a file defines, and of methods, fields and attributes, as `Class.name`."""
    lines_of_names: dict[str, int] = {}
    for name, number in _defined(ast.parse("\n".join(_lines(file))).body, ""):
        lines_of_names.setdefault(name, number)
    return lines_of_names


def _defined(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, int]]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield prefix + name, node.lineno
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name, node.lineno
        match node:
            case ast.ClassDef():
                yield from _defined(node.body, f"{node.name}.")
            case ast.FunctionDef() if prefix:
                for inner in ast.walk(node):
                    match inner:
                        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)]):
                            yield prefix + attribute, inner.lineno
