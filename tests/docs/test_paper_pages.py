"""The pages about the paper name lines, tests, settings, commands and counts that exist, and leave nothing out."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import paper_pages
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
from clearhead.paper.places import PLACES
from clearhead.paper.table3 import PAPER_TABLE_3

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

LINK = re.compile(r"\[`([^`]+)`\]\(\.\./(src/[\w/]+\.py)(?:#L\d+)?\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SETTING = re.compile(r"`((?:data|tokenizer|model|train|decode)\.\w+(?: = [^`]+)?)`")
COMMAND = re.compile(r"(?:`|^)clearhead ([^`#\n]+)", re.MULTILINE)
COUNTS = re.compile(r"^\| `([\w.-]+)` \| (\d+) \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)
ANCHOR = re.compile(r"\]\(([\w-]+\.md)?#([^)]+)\)")
STATEMENT = re.compile(r"`(?:clearhead \w+|python (bench/\w+\.py) (\w+))[^`]*`")
TARGET = re.compile(r"\]\(([\w./-]+\.(?:md|toml))[#)]")
UNCHECKED = re.compile(r"not checked: \w+ .+")

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

SENTENCES = {
    # Counted in version 7 of the paper; a table has one more for all of its rows, Table 1 one for each.
    "3 Model architecture": 5,
    "Figure 1": 1,
    "3.1 Encoder and decoder stacks": 11,
    "3.2 Attention": 2,
    "Figure 2": 2,
    "3.2.1 Scaled dot-product attention": 13,
    "Footnote 4": 2,
    "3.2.2 Multi-head attention": 10,
    "3.2.3 Applications of attention in our model": 11,
    "3.3 Position-wise feed-forward networks": 5,
    "3.4 Embeddings and softmax": 4,
    "3.5 Positional encoding": 11,
    "4 Why self-attention": 22,
    "Table 1": 2 + 4,
    "5 Training": 1,
    "5.1 Training data and batching": 5,
    "5.2 Hardware and schedule": 5,
    "5.3 Optimizer": 4,
    "5.4 Regularization": 6,
    "6.1 Machine translation": 13,
    "Table 2": 1 + 1,
    "Footnote 5": 1,
    "6.2 Model variations": 9,
    "Table 3": 4 + 1,
    "6.3 English constituency parsing": 11,
    "Table 4": 1 + 1,
}


@cache
def names_of_tests(path: str) -> set[str]:
    """Return the names of the tests of a file, those of classes among them."""
    if not (ROOT / path).is_file():
        return set()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")}


def entries(page: str) -> Iterator[tuple[str, str]]:
    """Return each entry as its first line and its whole text: from `**` at the start of a line to the next, or `#`."""
    for block in re.split(r"^(?=\*\*|#)", page, flags=re.MULTILINE):
        if block.startswith("**"):
            yield block.splitlines()[0], block


def missing_tests(page: str) -> Iterator[str]:
    for path, name in TEST.findall(page):
        if name not in names_of_tests(path):
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
        if words[0] == "paper" and len(words) > 1 and words[1] not in get_args(PartName):
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
        if anchor not in map(paper_pages.anchor_of, headings):
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
        blocks = [block for _, block in told if equation.formula[1:] in " ".join(block.split())]
        linked = {(text.split(".")[0], path) for block in blocks for text, path in LINK.findall(block)}
        if wanted not in linked:
            yield f"{equation.place}: no entry with {equation.formula!r} and a link to {equation.code}"


def wrong_numbers(_: str) -> Iterator[str]:
    found = paper_pages.statements()
    if list(found) != list(SENTENCES):
        yield f"sections missing or out of order: {set(SENTENCES) ^ set(found)}"
    for section, rows in found.items():
        label, count = paper_pages.label_of(section), SENTENCES.get(section, 0)
        if [number for number, _ in rows] != [f"{label}-{place + 1}" for place in range(count)]:
            yield f"{section} has not the numbers 1 to {count}"
    if sum(map(len, found.values())) != len(paper_pages.read("statements.toml")) - len(["sections"]):
        yield "statements of no section"


def without_place_or_check(page: str) -> Iterator[str]:
    for number, here, checked in re.findall(r"^\| ([\w.]+-\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE):
        if not any(kind.search(here) for kind in (LINK, SETTING, STATEMENT, TARGET)):
            yield f"{number} has no place"
        if not (TEST.search(checked) or STATEMENT.search(checked) or UNCHECKED.match(checked)):
            yield f"{number} has no check"


def wrong_files(page: str) -> Iterator[str]:
    yield from (f"no file {name}" for name in TARGET.findall(page) if not (DOCS / name).is_file())
    for script, part in STATEMENT.findall(page):
        if script and f'"{part}"' not in (ROOT / script).read_text(encoding="utf-8"):
            yield f"{script} knows no {part}"


CHECKS: dict[str, tuple[Callable[[str], Iterator[str]], ...]] = {
    "paper": (missing_tests, wrong_settings, untold_settings, wrong_commands, wrong_counts, wrong_anchors, left_out),
    "statements": (
        *(wrong_numbers, without_place_or_check, wrong_files, missing_tests, wrong_settings, wrong_commands),
        wrong_anchors,
    ),
    "glossary": (wrong_anchors, wrong_files),
    "exercises": (wrong_anchors,),
}


def page_of(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "check"), [(name, check) for name, checks in CHECKS.items() for check in checks])
def test_page_passes_check(name, check):
    assert list(check(page_of(name))) == []


def test_session_in_paper_page_prints_its_figures():
    session = doctest.DocTestParser().get_doctest(page_of("paper").replace("```", ""), {}, "paper.md", None, 0)
    assert len(session.examples) > 5
    assert doctest.DocTestRunner().run(session).failed == 0


@pytest.mark.parametrize("command", ["schedule", 'walk "the cat sleeps"'])
def test_example_in_paper_page_is_what_the_command_prints(command):
    name, *sentence = shlex.split(command)
    part = PARTS[name](*sentence)
    example = page_of("paper").partition(f"$ clearhead paper {command}\n")[2].partition("```")[0].splitlines()
    printed = [part.title, "=" * len(part.title), *part.text.splitlines()]
    assert len(example) > 10
    assert all(line in printed for line in example if line != "...")


@pytest.mark.parametrize(
    ("name", "there", "instead", "complaint"),
    [
        (
            *("paper", "::test_noam_is_the_printed_formula", "::test_noam_is_printed"),
            "no test tests/unit/training/test_schedule.py",
        ),
        ("paper", "::test_the_paper_s_activation_and_its_successors_by_hand", "", "1 tests are not cited"),
        ("paper", "`model.final_norm = true`", "`model.last_norm = true`", "no setting model.last_norm"),
        ("paper", '`model.positions = "sinusoidal_t2t"`', '`model.positions = "t2t"`', "model.positions = 't2t'"),
        ("paper", "`model.num_segments = 2`", "", "model.num_segments is not told"),
        ("paper", "`clearhead paper table2`", "`clearhead paper table5`", "no part table5"),
        ("paper", "`clearhead average RUN", "`clearhead mean RUN", "no command mean"),
        ("paper", "--preset table3-b-dk-16", "--preset table3-b-dk-8", "no preset table3-b-dk-8"),
        ("paper", "| 63,045,632 |", "| 63,045,633 |", "count of paper-base"),
        ("paper", "(#5-training)", "(#5-the-training)", "no heading for #5-the-training"),
        (
            *("paper", "### 5.4 Regularization", "### 5.4 Regularisation"),
            "headings missing or out of order: ['5.4 Regularization']",
        ),
        ("paper", "**Equation 2.**", "**Equation two.**", "equation 2 is not told"),
        ("paper", "- Code: [`Tokenizer.train`]", "- Code: none [tokenizer]", "no code or no test for **One vocabulary"),
        ("paper", "min(step^-0.5, step * warmup_steps^-1.5)", "min(step^-0.5, step)", "equation 3, 5.3: no entry with"),
        ("paper", "[`length_penalty`]", "[`Hypothesis`]", "section 6.1: no entry with"),
        ("statements", "| `model.d_ff = 2048` |", "| there |", "3.3-5 has no place"),
        ("statements", "not checked: a plan", "not checked", "4-14 has no check"),
        ("statements", "(paper.md#figures-3-to-5)", "(papers.md#figures)", "no file papers.md"),
        ("statements", "`python bench/statements.py scale`", "`python bench/statements.py scales`", "knows no scales"),
    ],
)
def test_wrong_page_is_caught(name, there, instead, complaint):
    page = page_of(name)
    assert there in page
    doctored = page.replace(there, instead)
    checks = [check for check in CHECKS[name] if check is not wrong_anchors or "papers.md" not in instead]
    assert any(complaint in problem for check in checks for problem in check(doctored))


def test_wrong_numbers_of_statements_are_caught(monkeypatch):
    right = paper_pages.statements()
    wrong = {
        section: rows[1:] if section == "Footnote 4" else rows
        for section, rows in right.items()
        if section != "Table 2"
    }
    monkeypatch.setattr(paper_pages, "statements", lambda: wrong)
    assert list(wrong_numbers("")) == [
        "sections missing or out of order: {'Table 2'}",
        "Footnote 4 has not the numbers 1 to 2",
        "statements of no section",
    ]


def test_statements_are_unique():
    says = [one["says"] for rows in paper_pages.statements().values() for _, one in rows]
    assert len(set(says)) == len(says)


@pytest.mark.parametrize(("term", "fields"), paper_pages.read("terms.toml").items())
def test_term_has_a_short_meaning_names_of_the_code_and_more_to_read(term: str, fields: dict):
    assert fields.keys() == {"means", "code", "more"}
    assert fields["more"]
    assert 1 <= len(re.findall(r"[.?](?= [A-Z]|$)", fields["means"])) <= 3
    for key in (one for one in fields["code"] if ":" not in one):
        section, name = key.split(".")
        assert name in Config.model_fields[section].annotation.model_fields
    assert fields["code"]


def test_terms_are_unique():
    terms = list(paper_pages.read("terms.toml"))
    assert len({term.casefold() for term in terms}) == len(terms) >= 80


@pytest.mark.parametrize("page", ["paper.md", "concepts.md", "tour.ipynb", "exercises.md"])
def test_pages_about_the_paper_link_to_the_glossary(page: str):
    assert "](glossary.md" in (DOCS / page).read_text(encoding="utf-8")


def test_sources_have_no_links_to_lines():
    for source in paper_pages.SOURCES.iterdir():
        assert re.findall(r"src/clearhead/[\w/]+\.py#L", source.read_text(encoding="utf-8")) == [], source


def test_lines_of_the_model_are_quoted_nowhere_but_in_places_and_generated_pages():
    generated = {"docs/paper.md", "docs/statements.md", "docs/concepts.md", "docs/explain.md"}
    by_chance = {  # code of their own that computes the same
        "examples/text_to_numbers.py",
        "src/clearhead/paper/exercises/training.py",
        "tests/unit/paper/test_equations.py",
    }
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    quoted = []
    for path in listed.splitlines():
        if path in generated | by_chance or path.endswith("places.toml") or path.startswith("src/clearhead/model/"):
            continue
        if path.endswith((".py", ".md", ".toml", ".ipynb", ".js")) and (ROOT / path).is_file():
            text, own = (ROOT / path).read_text(encoding="utf-8"), path.removeprefix("src/clearhead/")
            quoted += [(path, name) for name, place in PLACES.items() if place.line in text and own != place.file]
    assert quoted == [], "name the place of clearhead.paper.places instead"
