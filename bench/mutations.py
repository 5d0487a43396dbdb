"""Small changes of a program's text, each of which a test should notice."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
}


class Mutant(NamedTuple):
    """A change of one place; `before` and `after` are whole lines."""

    file: str
    function: str
    """The outermost one, with its class; empty outside functions."""
    line: int
    column: int
    kind: str
    before: str
    after: str


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Yield every mutant of a file; docstrings, annotations and f-strings stay."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    source = text.encode()

    def places(node: ast.AST, function: str, owner: str) -> Iterator[tuple[str, str, int, int, str]]:
        if not function and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = owner + node.name
        if isinstance(node, ast.ClassDef):
            owner += node.name + "."
        for kind, first, last, new in changes(node, source, starts):
            yield function, kind, first, last, new
        for name, field in ast.iter_fields(node):
            for child in field if isinstance(field, list) else [field]:
                skipped = name in ("annotation", "returns") or isinstance(child, ast.JoinedStr)
                if isinstance(child, ast.AST) and not skipped:
                    yield from places(child, function, owner)

    for function, kind, first, last, new in places(ast.parse(text), "", ""):
        top = max(at for at, start in enumerate(starts) if start <= first)
        end = next(at for at, start in enumerate(starts) if start >= last)
        before = source[starts[top] : starts[end]].decode()
        after = (source[starts[top] : first] + new.encode() + source[last : starts[end]]).decode()
        yield Mutant(file, function, top + 1, first - starts[top], kind, before, after)


def changes(node: ast.AST, source: bytes, starts: list[int]) -> Iterator[tuple[str, int, int, str]]:
    """Yield the changes of a node itself: the kind, where in the file it starts and ends, and the new text."""

    def start(part: Any) -> int:
        return starts[part.lineno - 1] + part.col_offset

    def end(part: Any) -> int:
        return starts[part.end_lineno - 1] + part.end_col_offset

    def text(part: Any) -> str:
        return source[start(part) : end(part)].decode()

    def between(left: ast.AST, operator: ast.AST, right: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        if type(operator) in OPERATORS:
            old, new = OPERATORS[type(operator)]
            gap = source[end(left) : start(right)].decode()
            spelled = rf"\b{old}\b" if old[0].isalpha() else old
            yield "operator", end(left), start(right), re.sub(spelled, new, gap, count=1)

    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield from between(left, operator, right)
        case ast.BoolOp(op=operator, values=[left, right, *_]):
            yield from between(left, operator, right)
        case ast.BinOp(left=left, op=operator, right=right) if not any(
            isinstance(side, ast.JoinedStr | ast.List | ast.Constant) and not str(getattr(side, "value", "")).isdigit()
            for side in (left, right)
        ):
            yield from between(left, operator, right)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", start(node), end(node), text(operand)
        case ast.Constant(value=bool() as value):
            yield "constant", start(node), end(node), str(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", start(node), end(node), str(value + 1)
        case ast.Return(value=ast.expr() as value) if text(value) != "None":
            yield "return", start(value), end(value), "None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() | ast.Break() | ast.Continue():
            yield "statement", start(node), end(node), "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", start(node), end(node), "pass"
    if isinstance(node, ast.If | ast.IfExp | ast.While) and text(node.test) != "TYPE_CHECKING":
        yield "condition", start(node.test), end(node.test), f"(not ({text(node.test)}))"
    for condition in node.ifs if isinstance(node, ast.comprehension) else []:
        yield "condition", start(condition), end(condition), f"(not ({text(condition)}))"


def draw(tree: Path, seed: int) -> Iterator[Mutant]:
    """Yield mutants of different lines in random order, each line with equal chance."""
    lines: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for path in sorted(tree.glob("src/**/*.py")):
        file = path.relative_to(tree).as_posix()
        for mutant in mutants_of(file, path.read_text(encoding="utf-8")):
            lines[file, mutant.line].append(mutant)
    chance = random.Random(seed)
    for line in chance.sample(sorted(lines), len(lines)):
        yield chance.choice(lines[line])


def counterparts(tree: Path, earlier: list[Mutant]) -> Iterator[tuple[Mutant, Mutant]]:
    """Yield mutants of another tree, each with the same change of the same lines in a function of that name here."""

    def key(mutant: Mutant) -> tuple[str, ...]:
        name = mutant.function.split(".")[-1]
        return name, *(line.strip() for line in (mutant.before + mutant.after).splitlines())

    here: dict[tuple[str, ...], list[Mutant]] = defaultdict(list)
    for path in sorted(tree.glob("src/**/*.py")):
        for mutant in mutants_of(path.relative_to(tree).as_posix(), path.read_text(encoding="utf-8")):
            here[key(mutant)].append(mutant)
    for mutant in earlier:
        if same := here.get(key(mutant)):
            yield mutant, min(same, key=lambda other: Path(other.file).name != Path(mutant.file).name)
