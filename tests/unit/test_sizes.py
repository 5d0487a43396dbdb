"""The ledger: how many lines of code each room holds, and which files and functions are long.

Code lines are lines without blanks, comments and docstrings. Whoever needs more than a room's number allows raises the
number in the same commit, whose message says what the raise bought. The lists of long files and functions only shrink.
"""

from __future__ import annotations

import ast
import tokenize
from collections import Counter
from pathlib import Path

import pytest

import clearhead

PACKAGE = Path(clearhead.__file__).parent

ROOMS = {
    "__init__.py": 94,
    "__main__.py": 3,
    "browser": 538,
    "bundle": 494,
    "cli": 4_530,
    "config": 976,
    "conversion.py": 73,
    "data": 4_234,
    "decoding": 4_487,
    "errors.py": 26,
    "evaluation": 357,
    "files": 908,
    "formats": 7_560,
    "inspection": 2_270,
    "interop": 6_039,
    "kernels": 838,
    "model": 1_387,
    "pages": 288,
    "paper": 6_378,
    "pipelines.py": 259,
    "runtime": 624,
    "serving": 4_720,
    "text": 2_060,
    "tokenizers": 1_115,
    "training": 6_130,
    "translation": 4_825,
}
"""Folder or file of the package to its code lines."""

SLACK = 0.02
"""The share by which a room may pass its number, or fall below it before the number is lowered."""

LONG_FILES: dict[str, int] = {}
"""Files over `LONG_FILE` to their code lines."""

LONG_FUNCTIONS: dict[str, int] = {}
"""Functions over `LONG_FUNCTION` to their code lines."""

LONG_FILE = 350
LONG_FUNCTION = 60

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code."""
    tokens = tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__)
    lines = {line for one in tokens if one.type not in LAYOUT for line in range(one.start[0], one.end[0] + 1)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return lines


def function_sizes(code: set[int], tree: ast.Module) -> dict[str, int]:
    """Return the code lines of each function; of functions of one name, those of the longest."""
    sizes = dict[str, int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(code.intersection(range(node.lineno, node.end_lineno + 1)))
            sizes[node.name] = max(size, sizes.get(node.name, 0))
    return sizes


@pytest.fixture(scope="module")
def files() -> dict[str, tuple[set[int], ast.Module]]:
    """Path within the package to the code lines and the tree of each of its files."""
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    return {path: (code_lines(texts[path], tree), tree) for path, tree in trees.items()}


@pytest.fixture(scope="module")
def file_sizes(files: dict[str, tuple[set[int], ast.Module]]) -> dict[str, int]:
    return {path: len(code) for path, (code, _) in files.items()}


def test_rooms_keep_to_their_size(file_sizes):
    sizes = Counter[str]()
    for path, size in file_sizes.items():
        sizes[path.partition("/")[0]] += size
    assert sizes.keys() == ROOMS.keys(), "each room is in ROOMS"
    off = {room: size for room, size in sizes.items() if abs(size - ROOMS[room]) > max(3, SLACK * ROOMS[room])}
    assert off == {}, "shorten these rooms, or write their new sizes into ROOMS and say in the commit what they bought"


def test_long_files_are_listed_and_grow_no_longer(file_sizes):
    long = {path: size for path, size in file_sizes.items() if size > LONG_FILE}
    assert long.keys() == LONG_FILES.keys()
    assert {path: size for path, size in long.items() if size > LONG_FILES[path]} == {}


def test_long_functions_are_listed_and_grow_no_longer(files):
    sizes = {f"{path}:{name}": size for path, one in files.items() for name, size in function_sizes(*one).items()}
    long = {name: size for name, size in sizes.items() if size > LONG_FUNCTION}
    assert long.keys() == LONG_FUNCTIONS.keys()
    assert {name: size for name, size in long.items() if size > LONG_FUNCTIONS[name]} == {}


def test_code_lines_leave_out_blanks_comments_and_docstrings():
    text = '"""Of."""\n\nimport ast  # a\n\n\ndef f(\n    a,\n):\n    """Return a."""\n    # 1\n    return """a\n\n"""'
    code = code_lines(text, tree := ast.parse(text))
    assert code == {3, 6, 7, 8, 11, 12, 13}
    assert function_sizes(code, tree) == {"f": 6}
