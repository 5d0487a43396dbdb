"""A name in backticks, in a page, a docstring or a comment, is one that the code has: renamed things leave no trace."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Set
from functools import cache
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
TOUR = ROOT / "docs" / "tour.ipynb"

NAME = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)*)`")
LITERAL = re.compile(
    r"(?P<comment>#[^\n]*)|"
    r"""(?:\b[bfru]{1,2})?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""",
    flags=re.DOTALL | re.IGNORECASE,
)
"""A comment, or a string with its prefix, so that a `#` in it begins no comment."""
OF_OTHERS = {
    "format_datetime",
    "in_proj_weight",
    "monitored_barrier",
    "transformer_base_v1",
    "transformer_base_v2",
    "transformer_parsing_base",
    "_v3",
}
"""Names in Babel, torch.nn, torch.distributed and tensor2tensor, which the text speaks of and the code does not use."""


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements of a module; looking into their expressions as well takes five times as long."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node
            yield from statements(node)


def prose_and_words(text: str) -> tuple[list[str], set[str]]:
    """Return the docstrings and comments of a module, and the words of all else."""
    starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    docstrings = {
        starts[node.value.lineno - 1] + node.value.col_offset: node.value.value
        for node in statements(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    comments = []

    def without_prose(literal: re.Match[str]) -> str:
        if literal["comment"]:
            comments.append(literal["comment"])
            return " "
        return " " if literal.start() in docstrings else literal[0]

    words = set(re.findall(r"\w+", LITERAL.sub(without_prose, text)))
    return [*docstrings.values(), *comments], words


@cache
def prose_and_words_of(path: Path) -> tuple[list[str], set[str]]:
    """Return those of a file, which is read once."""
    return prose_and_words(path.read_text(encoding="utf-8"))


def strange_names(prose: str, words: Set[str]) -> Iterator[str]:
    """Yield every name in backticks with a part that looks like a name of code, as it has a `_`, and is none.

    PyTorch answers for its own names.
    """
    for name in NAME.findall(prose):
        if not name.startswith("torch.") and any(
            "_" in part and part not in words | OF_OTHERS for part in name.split(".")
        ):
            yield name


@cache
def words_of_the_code() -> frozenset[str]:
    words = {word for path in SOURCES for word in re.findall(r"\w+", path.relative_to(ROOT).as_posix())}
    for path in SOURCES:
        words |= prose_and_words_of(path)[1]
    for path in (ROOT / "src").rglob("*.[ch]"):
        words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return frozenset(words)


def test_names_in_docstrings_and_comments_are_names_of_the_code():
    words = words_of_the_code()
    texts = {path: "\n".join(prose_and_words_of(path)[0]) for path in SOURCES}
    found = {path.name: names for path, text in texts.items() if (names := sorted(strange_names(text, words)))}
    assert found == {}


def test_names_on_the_pages_are_names_of_the_code_or_of_its_tests():
    words = set(words_of_the_code())
    for path in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").glob("*.py"), *(ROOT / "examples").glob("*.py")]:
        words |= {path.stem} | prose_and_words_of(path)[1]
    cells = json.loads(TOUR.read_text(encoding="utf-8"))["cells"]
    texts = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
    texts[TOUR.name] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = {name: names for name, text in texts.items() if (names := sorted(strange_names(text, words)))}
    assert found == {}


def test_a_name_that_was_changed_is_found():
    prose, words = prose_and_words('"""See `old_name` and `module.new_name`."""\nnew_name = 1  # was `older_name`\n')
    assert [name for text in prose for name in strange_names(text, words)] == ["old_name", "older_name"]


def test_tests_that_the_code_names_exist():
    named = {
        path for source in SOURCES for path in re.findall(r"\btests/[\w/]+\.py\b", source.read_text(encoding="utf-8"))
    }
    assert len(named) > 3
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
