"""docs/paper.md is true: every line, name, test, setting, command and count it cites is there, and nothing is left out.

Run as a script, `python tests/docs/test_paper_page.py`, this corrects the line numbers of the page's links, those of
docs/statements.md, and those that commands print on the page and in docs/explain.md.
"""

from __future__ import annotations

import ast
import doctest
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from clearhead.cli.main import app
from clearhead.cli.paper import PartName
from clearhead.config import Config, ModelConfig
from clearhead.config.nested import merge, parse_override
from clearhead.config.presets import PRESETS, table3_row
from clearhead.errors import ConfigError
from clearhead.paper.contents import PARTS
from clearhead.paper.counts import parameter_count
from clearhead.paper.equations import EQUATIONS
from clearhead.paper.table3 import PAPER_TABLE_3

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper.md"

LINK = re.compile(r"\[`([^`]+)`\]\(\.\./(src/[\w/]+\.py)(?:#L(\d+))?\)")
PRINTED_LINE = re.compile(r"(clearhead/[\w/]+\.py):(\d+)  (.+)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SETTING = re.compile(r"`((?:data|tokenizer|model|train|decode)\.\w+(?: = [^`]+)?)`")
COMMAND = re.compile(r"(?:`|^)clearhead ([^`#\n]+)", re.MULTILINE)
COUNTS = re.compile(r"^\| `([\w.-]+)` \| (\d+) \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)
ANCHOR = re.compile(r"\]\(([\w-]+\.md)?#([^)]+)\)")

HEADINGS = [
    "1 Introduction",
    "2 Background",
    "3 Model architecture",
    "3.1 Encoder and decoder stacks",
    "3.2 Attention",
    "3.2.1 Scaled dot-product attention",
    "3.2.2 Multi-head attention",
    "3.2.3 Applications of attention in our model",
    "3.3 Position-wise feed-forward networks",
    "3.4 Embeddings and softmax",
    "3.5 Positional encoding",
    "4 Why self-attention",
    "5 Training",
    "5.1 Training data and batching",
    "5.2 Hardware and schedule",
    "5.3 Optimizer",
    "5.4 Regularization",
    "6 Results",
    "6.1 Machine translation",
    "6.2 Model variations",
    "6.3 English constituency parsing",
    "7 Conclusion",
    "Figures 3 to 5",
    "Where well-known code departs from the paper",
    "Where our own defaults go beyond the paper",
    "What is not reproduced",
]
FIGURES_AND_TABLES = ["Figure 1", "figure 2", "Figures 3 to 5", "Table 1", "Table 2", "Table 3", "Table 4"]


@cache
def definitions(path: str) -> dict[str, int]:
    """Return the line of every name of a module: `name`, `Class.method`, `Class.field`, `Class.attribute_of_self`."""
    found: dict[str, int] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    found.setdefault(prefix + name, node.lineno)
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    found.setdefault(prefix + name, node.lineno)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{node.name}.")
            if isinstance(node, ast.FunctionDef) and prefix:
                for inner in ast.walk(node):
                    match inner:
                        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)]):
                            found.setdefault(prefix + attribute, inner.lineno)

    visit(ast.parse((ROOT / path).read_text(encoding="utf-8")).body, "")
    return found


def line_of(text: str, path: str) -> int:
    """Return the one line that defines a name or holds any other text.

    Raises:
        LookupError: If there is no such file or line, or several.
    """
    if not (ROOT / path).is_file():
        raise LookupError(f"no file {path}")
    if re.fullmatch(r"[A-Za-z_][\w.]*", text):
        if text not in definitions(path):
            raise LookupError(f"{path} does not define {text}")
        return definitions(path)[text]
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    numbers = [number for number, line in enumerate(lines, start=1) if text in line]
    if len(numbers) != 1:
        raise LookupError(f"{path} holds {text!r} in {len(numbers)} lines, not in one")
    return numbers[0]


def renumbered(page: str) -> str:
    """Return the page with the right line in every link, and in what a command prints."""
    page = PRINTED_LINE.sub(lambda line: f"{line[1]}:{line_of(line[3], f'src/{line[1]}')}  {line[3]}", page)
    return LINK.sub(lambda link: f"[`{link[1]}`](../{link[2]}#L{line_of(link[1], link[2])})", page)


def entries(page: str) -> Iterator[tuple[str, str]]:
    """Return each entry as its first line and its whole text: from `**` at the start of a line to the next, or `#`."""
    for block in re.split(r"^(?=\*\*|#)", page, flags=re.MULTILINE):
        if block.startswith("**"):
            yield block.splitlines()[0], block


def wrong_links(page: str) -> Iterator[str]:
    for text, path, number in LINK.findall(page):
        try:
            right = line_of(text, path)
        except LookupError as error:
            yield str(error)
        else:
            if number != str(right):
                yield f"{text} is in {path}#L{right}, not #L{number}; run: python tests/docs/test_paper_page.py"
    stray = set(re.findall(r"\]\(\.\./(src/[^)]+)\)", page)) - {
        path + (f"#L{number}" if number else "") for _, path, number in LINK.findall(page)
    }
    yield from (f"link to {target} does not quote what it leads to" for target in sorted(stray))


def missing_tests(page: str) -> Iterator[str]:
    for path, name in TEST.findall(page):
        if not (ROOT / path).is_file() or name not in definitions(path) or not name.startswith("test_"):
            yield f"no test {path}::{name}"
    whole = page.count("`tests/")
    if whole != len(TEST.findall(page)):
        yield f"{whole - len(TEST.findall(page))} tests are not cited as `path::name`"


def wrong_settings(page: str) -> Iterator[str]:
    for key in (setting.partition(" = ")[0] for setting in SETTING.findall(page)):
        section, name = key.split(".")
        if name not in type(getattr(Config(), section)).model_fields:
            yield f"no setting {key}"
    for line in page.splitlines():  # the settings in one line must be valid together
        given = [parse_override(setting.replace(" = ", "=")) for setting in SETTING.findall(line) if " = " in setting]
        try:
            Config.from_dict(merge({"train": {"max_steps": 7}}, *given))
        except ConfigError as error:
            yield str(error)


def untold_settings(page: str) -> Iterator[str]:
    told = {setting.partition(" = ")[0] for setting in SETTING.findall(page)}
    yield from (f"model.{name} is not told" for name in ModelConfig.model_fields if f"model.{name}" not in told)


def wrong_commands(page: str) -> Iterator[str]:
    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    for command in COMMAND.findall(page):
        words = command.split()
        if words[0] not in known:
            yield f"no command {words[0]}"
        if words[0] == "paper" and len(words) > 1 and words[1] not in list(PartName):
            yield f"no part {words[1]} of the paper"
        if "--preset" in words and words[words.index("--preset") + 1] not in PRESETS:
            yield f"no preset {words[words.index('--preset') + 1]}"


def wrong_counts(page: str) -> Iterator[str]:
    rows = COUNTS.findall(page)
    expected = [
        (name, str(row.millions), *(f"{parameter_count(table3_row(name, vocab_size=v)):,}" for v in (37_000, 41_000)))
        for name, row in PAPER_TABLE_3.items()
        if row.millions is not None
    ]
    yield from (f"count of {name}: the page says {', '.join(rest)}" for name, *rest in set(rows) - set(expected))
    yield from (f"count of {name} is missing" for name, *_ in expected if name not in {row[0] for row in rows})


def wrong_anchors(page: str) -> Iterator[str]:
    for name, anchor in ANCHOR.findall(page):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8") if name else page
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        if anchor not in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}:
            yield f"no heading for {name}#{anchor}"


def left_out(page: str) -> Iterator[str]:
    headings = re.findall(r"^##+ (.+)$", page, re.MULTILINE)
    if [heading for heading in headings if heading in HEADINGS] != HEADINGS:
        yield f"headings missing or out of order: {[h for h in HEADINGS if h not in headings]}"
    yield from (f"{name} is not told" for name in FIGURES_AND_TABLES if name not in page)
    told = list(entries(page))
    for number in (1, 2, 3):
        if not any(first.startswith(f"**Equation {number}.**") for first, _ in told):
            yield f"equation {number} is not told"
    for first, block in told:
        if not LINK.search(block) or not TEST.search(block):
            yield f"no code or no test for {first}"
    for equation in EQUATIONS:
        module, _, name = equation.code.partition(":")
        wanted = (name, f"src/{module.replace('.', '/')}.py")
        blocks = [block for _, block in told if equation.formula in " ".join(block.split())]
        linked = {(text.split(".")[0], path) for block in blocks for text, path, _ in LINK.findall(block)}
        if wanted not in linked:
            yield f"{equation.place}: no entry with {equation.formula!r} and a link to {equation.code}"


CHECKS: tuple[Callable[[str], Iterator[str]], ...] = (
    wrong_links,
    missing_tests,
    wrong_settings,
    untold_settings,
    wrong_commands,
    wrong_counts,
    wrong_anchors,
    left_out,
)


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("check", CHECKS)
def test_the_page_holds(check, page):
    assert not list(check(page))


def test_the_figures_in_its_session_are_what_python_prints(page):
    session = doctest.DocTestParser().get_doctest(page.replace("```", ""), {}, "paper.md", str(PAGE), 0)
    assert len(session.examples) > 5
    assert doctest.DocTestRunner().run(session).failed == 0


@pytest.mark.parametrize("command", ["schedule", 'walk "the cat sleeps"'])
def test_its_example_is_what_the_command_prints(page, command):
    name, *sentence = shlex.split(command)
    part = PARTS[name](*sentence)
    example = page.partition(f"$ clearhead paper {command}\n")[2].partition("```")[0].splitlines()
    printed = [part.title, "=" * len(part.title), *part.text.splitlines()]
    assert len(example) > 10
    assert all(line in printed for line in example if line != "...")


@pytest.mark.parametrize(
    ("there", "instead", "complaint"),
    [
        ("[`FeedForward`]", "[`FeedForwards`]", "feed_forward.py does not define FeedForwards"),
        ("[`Residual.add_and_norm`]", "[`Residual.behind`]", "residual.py does not define Residual.behind"),
        ("scores.softmax(dim=-1)`]", "scores.softmax(dim=-2)`]", "in 0 lines, not in one"),
        ("`joined = heads.transpose(1, 2).flatten(2)`", "`heads, `", "lines, not in one"),
        ("/model/masks.py", "/model/mask.py", "no file src/clearhead/model/mask.py"),
        ("[`causal_mask`]", "[causal mask]", "does not quote what it leads to"),
        (
            "::test_noam_is_the_printed_formula",
            "::test_noam_is_printed",
            "no test tests/unit/training/test_schedule.py",
        ),
        ("::test_the_paper_s_activation_and_its_successors_by_hand", "", "1 tests are not cited"),
        ("`model.final_norm = true`", "`model.last_norm = true`", "no setting model.last_norm"),
        ('`model.positions = "sinusoidal_t2t"`', '`model.positions = "t2t"`', "model.positions = 't2t'"),
        ("`model.num_segments = 2`", "", "model.num_segments is not told"),
        ("`clearhead paper table2`", "`clearhead paper table5`", "no part table5"),
        ("`clearhead average RUN", "`clearhead mean RUN", "no command mean"),
        ("--preset table3-b-dk-16", "--preset table3-b-dk-8", "no preset table3-b-dk-8"),
        ("| 63,045,632 |", "| 63,045,633 |", "count of paper-base"),
        ("(#5-training)", "(#5-the-training)", "no heading for #5-the-training"),
        (
            "### 5.4 Regularization",
            "### 5.4 Regularisation",
            "headings missing or out of order: ['5.4 Regularization']",
        ),
        ("**Equation 2.**", "**Equation two.**", "equation 2 is not told"),
        ("- Code: [`Tokenizer.train`]", "- Code: none [tokenizer]", "no code or no test for **One vocabulary"),
        ("min(step^-0.5, step * warmup_steps^-1.5)", "min(step^-0.5, step)", "equation 3, 5.3: no entry with"),
        ("[`length_penalty`]", "[`Hypothesis`]", "section 6.1: no entry with"),
    ],
)
def test_a_wrong_page_is_caught(page, there, instead, complaint):
    assert there in page
    doctored = page.replace(there, instead)
    assert any(complaint in problem for check in CHECKS for problem in check(doctored))


def test_a_line_that_moved_is_told_with_its_new_number_and_can_be_corrected(page):
    right = renumbered(page)
    link = next(link for link in LINK.finditer(right) if link[1] == "scaled_dot_product_attention")
    moved = right.replace(f"attention.py#L{link[3]})", "attention.py#L1)")
    assert any(f"#L{link[3]}, not #L1" in problem for problem in wrong_links(moved))
    assert renumbered(moved) == right


if __name__ == "__main__":
    for path in (PAGE, PAGE.with_name("statements.md"), PAGE.with_name("explain.md")):
        path.write_text(renumbered(path.read_text(encoding="utf-8")), encoding="utf-8")
