"""docs/statements.md has every sentence of sections 3 to 6 of the paper, each with a place that exists and a check."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from test_paper_page import (
    LINK,
    ROOT,
    SETTING,
    TEST,
    missing_tests,
    renumbered,
    wrong_anchors,
    wrong_commands,
    wrong_links,
    wrong_settings,
)

PAGE = ROOT / "docs" / "statements.md"

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

ROW = re.compile(r"^\| ([\w.]+)-(\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
COUNT = re.compile(r"^\| \[([^]]+)\]\(#[^)]+\) \| (\d+) \| (\d+) \|$", re.MULTILINE)
COMMAND = re.compile(r"`(?:clearhead \w+|python (bench/\w+\.py) (\w+))[^`]*`")
TARGET = re.compile(r"\]\(([\w./-]+\.(?:md|toml))[#)]")
UNCHECKED = re.compile(r"not checked: \w+ .+")


def label(section: str) -> str:
    """Return the first part of a section's numbers: `3.2.1`, `figure1`."""
    return section.split()[0] if section[0].isdigit() else section.lower().replace(" ", "")


def sections(page: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of each section."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for block in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, body = block.partition("\n")
        found[title] = ROW.findall(body)
    return found


def wrong_numbers(page: str) -> Iterator[str]:
    found = sections(page)
    if list(found) != list(SENTENCES):
        yield f"sections missing or out of order: {set(SENTENCES) ^ set(found)}"
    for title, rows in found.items():
        if [row[:2] for row in rows] != [(label(title), str(n + 1)) for n in range(SENTENCES.get(title, 0))]:
            yield f"{title} has not the numbers 1 to {SENTENCES.get(title)}"


def wrong_counts(page: str) -> Iterator[str]:
    unchecked = {title: sum(row[4].startswith("not checked") for row in rows) for title, rows in sections(page).items()}
    expected = [(title, str(count), str(unchecked.get(title, 0))) for title, count in SENTENCES.items()]
    if COUNT.findall(page) != expected:
        yield f"the table of counts: {set(COUNT.findall(page)) ^ set(expected)}"
    if f"| all | {sum(SENTENCES.values())} | {sum(unchecked.values())} |" not in page:
        yield f"the sum is {sum(SENTENCES.values())}, of which {sum(unchecked.values())} are not checked"


def without_place_or_check(page: str) -> Iterator[str]:
    for rows in sections(page).values():
        for name, number, _, here, checked in rows:
            if not any(kind.search(here) for kind in (LINK, SETTING, COMMAND, TARGET)):
                yield f"{name}-{number} has no place"
            if not (TEST.search(checked) or COMMAND.search(checked) or UNCHECKED.match(checked)):
                yield f"{name}-{number} has no check"


def wrong_files(page: str) -> Iterator[str]:
    yield from (f"no file {name}" for name in TARGET.findall(page) if not (PAGE.parent / name).is_file())
    for script, part in COMMAND.findall(page):
        if script and f'"{part}"' not in (ROOT / script).read_text(encoding="utf-8"):
            yield f"{script} knows no {part}"


CHECKS: tuple[Callable[[str], Iterator[str]], ...] = (
    wrong_numbers,
    wrong_counts,
    without_place_or_check,
    wrong_files,
    wrong_links,
    missing_tests,
    wrong_settings,
    wrong_commands,
    wrong_anchors,
)


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("check", CHECKS)
def test_the_page_holds(check, page):
    assert not list(check(page))


def test_no_statement_is_there_twice(page):
    says = [row[2] for rows in sections(page).values() for row in rows]
    assert len(set(says)) == len(says)


@pytest.mark.parametrize(
    ("there", "instead", "complaint"),
    [
        ("| 3.2.1-7 |", "| 3.2.1-8 |", "3.2.1 Scaled dot-product attention has not the numbers 1 to 13"),
        ("| 4-22 |", "| row |", "4 Why self-attention has not the numbers 1 to 22"),
        ("## Footnote 4", "### Footnote 4", "sections missing or out of order: {'Footnote 4'}"),
        ("(#32-attention) | 2 | 0 |", "(#32-attention) | 2 | 1 |", "the table of counts"),
        ("| `model.d_ff = 2048` |", "| there |", "3.3-5 has no place"),
        ("not checked: a plan", "not checked", "4-14 has no check"),
        ("(explain.md#which-heads-matter)", "(explained.md#which)", "no file explained.md"),
        ("`python bench/statements.py scale`", "`python bench/statements.py scales`", "knows no scales"),
        ("::test_a_shift_is_one_matrix_for_all_positions", "::test_a_shift", "no test tests/unit/paper"),
        ("[`restricted_attention`]", "[`restricted`]", "growth.py does not define restricted"),
        ("`model.num_heads = 8`", "`model.heads = 8`", "no setting model.heads"),
        ("`clearhead paper table4`", "`clearhead paper table5`", "no part table5"),
        ("(paper.md#53-optimizer)", "(paper.md#53-optimiser)", "no heading for paper.md#53-optimiser"),
    ],
)
def test_a_wrong_page_is_caught(page, there, instead, complaint):
    assert there in page
    doctored = page.replace(there, instead)
    checks = [check for check in CHECKS if check is not wrong_anchors or "explained" not in instead]
    assert any(complaint in problem for check in checks for problem in check(doctored))


def test_its_line_numbers_can_be_corrected(page):
    link = LINK.search(page)
    assert link is not None
    moved = page.replace(f"#L{link[3]})", "#L9999)", 1)
    assert any("not #L9999" in problem for problem in wrong_links(moved))
    assert renumbered(moved) == renumbered(page)
