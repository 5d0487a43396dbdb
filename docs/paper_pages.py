"""Generate the pages about the paper from `sources/`, and the lines of code that explain.md shows.

A source writes a line of code as the name of its place, `{eq1.scores}`, and a definition as
`{model.masks:causal_mask}`; `{printed eq1.scores}` is the line as `clearhead paper walk` prints it, and
`{formula attention}` an equation of the paper; `{Formula causality}` begins a sentence.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from clearhead.paper.errata import ERRATA, THEMES
from clearhead.paper.errata.part import entry, heading, other_versions
from clearhead.paper.errata.part import statements as errata_statements
from clearhead.paper.exercises import EXERCISES, check
from clearhead.paper.exercises.checking import summary
from clearhead.paper.places import EQUATIONS, PLACES, line_of

DOCS = Path(__file__).parent
SOURCES = DOCS / "sources"

REFERENCE = re.compile(r"\{(printed )?(\w[\w.]*[.:]\w[\w.]*)\}|\{([Ff])ormula (\w+)\}")
WALK_LINE = re.compile(r"clearhead/[\w/]+\.py:\d+  .+(?=\n +(.+)\n)")
"""A line of code in what `clearhead explain --walk` prints, before what it computes."""

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
    """Return a text with a link or formula in place of each name in braces.

    Raises:
        LookupError: If there is no such place or definition.
    """

    def link(reference: re.Match[str]) -> str:
        if reference[3]:
            formula = EQUATIONS[reference[4]]["formula"]
            return formula[0].upper() + formula[1:] if reference[3] == "F" else formula
        line = line_of(reference[2])
        if reference[1]:
            return f"clearhead/{line.file}:{line.number}  {line.text}"
        shown = reference[2].partition(":")[2] or line.text
        return f"[`{shown}`](../src/clearhead/{line.file}#L{line.number})"

    return REFERENCE.sub(link, text)


def paper_page() -> str:
    """Return the page of the paper, section by section."""
    return linked(source("paper.md"))


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
    lines = source("statements.md").format(example=_row("**3.1-5**", example)).splitlines()
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


def _row(number: str, statement: dict[str, str]) -> str:
    return f"| {number} | {linked(statement['says'])} | {linked(statement['here'])} | {linked(statement['checked'])} |"


def _section(number: str) -> str:
    """Return the target of a link to a section of the paper."""
    return f"paper.md#{anchor_of(_headings()[number])}"


@cache
def _headings() -> dict[str, str]:
    """Return the headings of the page of the paper by their first words, the numbers of sections."""
    return {one.split()[0]: one for one in re.findall(r"^##+ (.+)$", source("paper.md"), re.MULTILINE)}


def glossary_page() -> str:
    """Return the page of words."""
    lines = source("glossary.md").splitlines()
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


def errata_page() -> str:
    """Return the page of mistakes in notes."""
    example = ERRATA[5]
    near_misses, right_variants = other_versions(ERRATA)
    introduction = source("errata.md").format(
        example="\n".join(entry(example, example.check())), near_misses=near_misses, right_variants=right_variants
    )
    lines = [introduction]
    for theme, errata in THEMES.items():
        lines += [f"## {theme}", ""]
        for erratum in errata:
            lines += [f"### {heading(erratum)}", ""]
            said = errata_statements(erratum, erratum.evidence())  # the tests run the near misses
            lines += [*(f"- **{label.capitalize()}.** {_escaped(text)}" for label, text in said.items()), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _escaped(text: str) -> str:
    """Escape characters that Markdown would read as emphasis, except inside code."""
    parts = text.split("`")
    parts[::2] = [part.replace("_", "\\_").replace("*", "\\*").replace("<", "\\<") for part in parts[::2]]
    return "`".join(parts)


def exercises_page() -> str:
    """Return the page of exercises."""
    filled = {one.number: one.filled("1.0" if one.number == 5 else "...") for one in EXERCISES}
    example = summary([check(number, answer) for number, answer in filled.items()])
    lines = [source("exercises.md").format(count=len(EXERCISES), example=example, shown=check(27, lambda n, d: True))]
    for section, exercises in groupby(EXERCISES, lambda one: one.section):
        lines += [f"## {_headings()[section]}", ""]
        for one in exercises:
            lines += [f"### {one.number}. `{one.name}`", "", "```python", one.source("...").rstrip("\n"), "```", ""]
            lines += ["<details markdown><summary>Solution</summary>", "", "```python", one.blank, "```", ""]
            lines += ["</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def explain_page() -> str:
    """Return explain.md with its lines of code as they are now."""
    by_formula = {formula: name for name, place in PLACES.items() for formula in place.computes.values()}
    text = (DOCS / "explain.md").read_text(encoding="utf-8")
    return WALK_LINE.sub(lambda line: linked(f"{{printed {by_formula[line[1]]}}}"), text)


def source(name: str) -> str:
    """Return the text of a source."""
    return (SOURCES / name).read_text(encoding="utf-8")


def read(name: str) -> dict[str, Any]:
    """Return a table of the sources."""
    return tomllib.loads(source(name))
