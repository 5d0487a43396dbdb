"""Generate paper.md, statements.md and glossary.md from `sources/`, and the lines of code that explain.md shows.

A source writes a line of code as the name of its place, `{eq1.scores}`, and a definition as
`{model.masks:causal_mask}`; `{printed eq1.scores}` is the line as `clearhead paper walk` prints it.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any

from clearhead.paper.places import PLACES, line_of

DOCS = Path(__file__).parent
SOURCES = DOCS / "sources"

REFERENCE = re.compile(r"\{(printed )?(\w[\w.]*[.:]\w[\w.]*)\}")
WALK_LINE = re.compile(r"clearhead/[\w/]+\.py:\d+  .+(?=\n +(.+)\n)")
"""A line of code in what `clearhead explain --walk` prints, before what it computes."""

STATEMENTS = """# Every sentence of sections 3 to 6

Use this page to find the code and the test for any sentence of sections 3 to 6 of *Attention Is All You Need*
(Vaswani et al. 2017, [arXiv 1706.03762](https://arxiv.org/abs/1706.03762), version 7), of its captions, of its
footnotes 4 and 5 and of its tables. Each row paraphrases one sentence; `3.2.1-4` is the fourth of section 3.2.1, and
a displayed equation belongs to the sentence before it. Section 6 has no sentence of its own. For example:

| no. | the paper says | here | checked by |
| --- | --- | --- | --- |
{example}

"Here" is the line of code, the setting, the command or the page; "checked by" is a test or a command that fails if
the statement does not hold. Scores are not measured again: these tests compare the statement with the paper's tables.
Three statements need a clock or training (3.2.1-10, 3.2.1-11, 3.5-11): their tests check the measurement, and
paper.md has its figures. What a test does not cover follows a semicolon. Where there is no test, the row says *not
checked* and why: mostly about earlier work, or about runs and corpora that are not part of this project ([what is not
reproduced](paper.md#what-is-not-reproduced)). [paper.md](paper.md) explains the entries. This page is generated from
`docs/sources/statements.toml`; `python -m pytest tests/docs/test_paper_pages.py` checks every number, link, test,
setting and command.

| section | sentences | not checked |
| --- | --- | --- |
"""

GLOSSARY = """# Glossary

The words of the paper and of these pages, each with its name in the code and where to read more. Sections are those of
the paper, in [paper.md](paper.md). [concepts.md](concepts.md) explains the larger ones with a program and a picture,
and [tour.ipynb](tour.ipynb) goes through the paper. This page is generated from `docs/sources/terms.toml`. For example,
this runs the program of a word:

```
clearhead paper concepts self-attention
```
"""

TITLED = {
    "departures": "paper.md#where-well-known-code-departs-from-the-paper",
    "the tour": "tour.ipynb",
}
"""Title of a link of the glossary that is neither a section nor the name of its page -> target."""


Statements = list[tuple[str, dict[str, str]]]
"""Statements with their numbers."""


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def linked(text: str) -> str:
    """Return a text with a link to its line in place of each name in braces.

    Raises:
        LookupError: If there is no such place or definition.
    """

    def link(reference: re.Match[str]) -> str:
        line = line_of(reference[2])
        if reference[1]:
            return f"clearhead/{line.file}:{line.number}  {line.text}"
        shown = reference[2].partition(":")[2] or line.text
        return f"[`{shown}`](../src/clearhead/{line.file}#L{line.number})"

    return REFERENCE.sub(link, text)


def paper_page() -> str:
    """Return the page of the paper, section by section."""
    return linked((SOURCES / "paper.md").read_text(encoding="utf-8"))


def statements() -> dict[str, Statements]:
    """Return the statements of each section, each with its number."""
    table = read("statements.toml")
    return {
        section: [(number, one) for number, one in table.items() if number.rpartition("-")[0] == label_of(section)]
        for section in table["sections"]
    }


def label_of(section: str) -> str:
    """Return the first part of a section's numbers: `3.2.1`, `figure1`."""
    return section.split()[0] if section[0].isdigit() else section.lower().replace(" ", "")


def statements_page() -> str:
    """Return the page of every sentence of sections 3 to 6."""
    found, explained = statements(), read("statements.toml")["sections"]
    example = dict(found["3.1 Encoder and decoder stacks"])["3.1-5"]
    lines = STATEMENTS.format(example=_row("**3.1-5**", example)).splitlines()
    unchecked = {
        section: sum(one["checked"].startswith("not checked") for _, one in rows) for section, rows in found.items()
    }
    for section, rows in found.items():
        lines.append(f"| [{section}](#{anchor_of(section)}) | {len(rows)} | {unchecked[section]} |")
    lines.append(f"| all | {sum(map(len, found.values()))} | {sum(unchecked.values())} |")
    for section, rows in found.items():
        lines += ["", f"## {section}", "", f"Explained in [paper.md]({_section(explained[section])}).", ""]
        lines += ["| no. | the paper says | here | checked by |", "| --- | --- | --- | --- |"]
        lines += [_row(number, one) for number, one in rows]
    return "\n".join(lines) + "\n"


def _unchecked(rows: Statements) -> int:
    """Return how many statements have no check."""
    return sum(one["checked"].startswith("not checked") for _, one in rows)


def _row(number: str, statement: dict[str, str]) -> str:
    return f"| {number} | {statement['says']} | {linked(statement['here'])} | {linked(statement['checked'])} |"


def _section(number: str) -> str:
    """Return the target of a link to a section of the paper."""
    headings = re.findall(r"^##+ (.+)$", (SOURCES / "paper.md").read_text(encoding="utf-8"), re.MULTILINE)
    [heading] = [one for one in headings if one.split()[0] == number]
    return f"paper.md#{anchor_of(heading)}"


def glossary_page() -> str:
    """Return the page of words."""
    lines = GLOSSARY.splitlines()
    for term, fields in sorted(read("terms.toml").items(), key=lambda one: one[0].casefold()):
        code = ", ".join(map(_name, fields["code"]))
        more = ", ".join(map(_more, fields["more"]))
        text = f"{fields['means']} In the code: {code}. More: {more}."
        lines += ["", f"## {term}", "", textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def _name(reference: str) -> str:
    """Return a link to a definition, or to a setting."""
    if ":" not in reference:
        return f"[`{reference}`](settings.md#{reference.partition('.')[0]})"
    return f"[`{reference.partition(':')[2]}`](../src/clearhead/{line_of(reference).file})"


def _more(target: str) -> str:
    """Return a link to a section of the paper, or to a page."""
    if target[0].isdigit():
        return f"[section {target}]({_section(target)})"
    page, hash_sign, anchor = target.partition("#")
    return f"[{page}]({TITLED.get(target, f'{page}.md{hash_sign}{anchor}')})"


def explain_page() -> str:
    """Return explain.md with its lines of code as they are now."""
    by_formula = {formula: name for name, place in PLACES.items() for formula in place.computes.values()}
    text = (DOCS / "explain.md").read_text(encoding="utf-8")
    return WALK_LINE.sub(lambda line: linked(f"{{printed {by_formula[line[1]]}}}"), text)


def read(name: str) -> dict[str, Any]:
    """Return a table of the sources."""
    return tomllib.loads((SOURCES / name).read_text(encoding="utf-8"))
