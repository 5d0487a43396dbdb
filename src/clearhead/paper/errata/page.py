"""The errata with the results of their tests, as text for the terminal and as the page `docs/errata.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from clearhead.paper.errata.catalogue import ERRATA, THEMES
from clearhead.paper.errata.erratum import Erratum, ErratumResult
from clearhead.paper.parts import Check, ModelPart, wrapped

_INTRODUCTION = """\
# Errata: mistakes in study notes about the paper

Study notes about "Attention Is All You Need" make the mistakes listed here. Use this page to check what you read or
write about the paper: each mistake comes with the right statement, its source, and a test that fails the wrong version
and passes the right one. The tests also fail {near_misses} near misses, versions that are wrong in another way, and
pass {right_variants} other right versions.

    clearhead paper errata

runs all tests and prints one entry for each erratum:

```
{example}
```

The wrong and the right version are both code or data that the test measures; the right version uses the code of this
package wherever there is some. Most tests also compare what a version computes from random input with the same
computed number by number (`src/clearhead/paper/plain.py`), since a property alone lets near misses pass: with a hard
maximum in place of the softmax, the weights still sum to 1. *Found* gives the measured figures of the wrong and the
right version; *also fails* and *also passes* name the other versions. `tests/unit/paper/test_errata.py` runs the same
tests, and checks that no near miss computes what the right version does. This page is generated from
`src/clearhead/paper/errata/`.

- Slips such as a missing bracket or an undefined name are left out.
- Numbers 3, 11 and 32 to 35 are not quoted from notes. They state what readers are likely to conclude where notes omit
  something or are vague.
- *Quotation* marks errata for which nothing can be computed: their test compares with what the paper, or the one that
  they are about, prints.
"""

Checked = tuple[Erratum[Any], ErratumResult]
"""An erratum with the result of its check."""


def errata_part() -> ModelPart:
    """Return every erratum with the figures that its test measured on the wrong and the right version."""
    found = [(erratum, erratum.check()) for erratum in ERRATA]
    return ModelPart(
        title="Errata: mistakes in study notes about the paper",
        text=report(found),
        data={
            "errata": [
                {name: getattr(erratum, name) for name in ("number", "title", "wrong", "right", "source")}
                | asdict(result)
                for erratum, result in found
            ]
        },
        checks=tuple(
            Check(f"erratum {erratum.number}, {erratum.title}", result.holds, result.evidence)
            for erratum, result in found
        ),
    )


def report(found: Iterable[Checked]) -> str:
    """Return errata with their results and verdicts as text, ending in a newline.

    Args:
        found: Errata, each with the result of its check.
    """
    lines: list[str] = []
    found = tuple(found)
    for erratum, result in found:
        lines += [*_entry(erratum, result), ""]
    near_misses, right_variants = _other_versions([erratum for erratum, _ in found])
    missed, refused = (sum(len(getattr(result, names)) for _, result in found) for names in ("missed", "refused"))
    distinguished = sum(result.wrong_fails and result.right_passes for _, result in found)
    lines += [
        f"{distinguished} of {len(found)} tests fail the wrong version and pass the right one.",
        f"They fail {near_misses - missed} of {near_misses} near misses and pass {right_variants - refused} of "
        f"{right_variants} other right versions.",
    ]
    return "\n".join(lines) + "\n"


def _other_versions(errata: Sequence[Erratum[Any]]) -> tuple[int, int]:
    """Return the numbers of near misses and of other right versions."""
    return sum(len(erratum.mutants) for erratum in errata), sum(len(erratum.also_right) for erratum in errata)


def errata_page() -> str:
    """Return the text of `docs/errata.md`."""
    example = ERRATA[5]
    near_misses, right_variants = _other_versions(ERRATA)
    introduction = _INTRODUCTION.format(
        example="\n".join(_entry(example, example.check())), near_misses=near_misses, right_variants=right_variants
    )
    lines = [introduction]
    for theme, errata in THEMES.items():
        lines += [f"## {theme}", ""]
        for erratum in errata:
            lines += [f"### {heading(erratum)}", ""]
            statements = _statements(erratum, erratum.evidence())  # the tests run the near misses
            lines += [f"- **{label.capitalize()}.** {_markdown(text)}" for label, text in statements.items()]
            lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _entry(erratum: Erratum[Any], result: ErratumResult) -> list[str]:
    lines = [" " * (erratum.number < 10) + heading(erratum)]
    for label, text in (_statements(erratum, result.evidence) | {"verdict": _verdict(result)}).items():
        lines += wrapped(text, first=f"    {label:<12}", others=" " * 16)
    return lines


def heading(erratum: Erratum[Any]) -> str:
    """Return the heading of an erratum on the page."""
    return f"{erratum.number}. {erratum.title}" + (" (quotation)" if erratum.kind == "quotation" else "")


def _statements(erratum: Erratum[Any], evidence: str) -> dict[str, str]:
    statements = {
        "wrong": erratum.wrong,
        "right": erratum.right,
        "source": erratum.source,
        "test": erratum.demands,
        "found": evidence,
        "also fails": "; ".join(name for name, _ in erratum.mutants),
        "also passes": "; ".join(name for name, _ in erratum.also_right),
    }
    return {label: text for label, text in statements.items() if text}


def _verdict(result: ErratumResult) -> str:
    if result.holds:
        return "the wrong version fails, the right one passes"
    problems = [
        *([] if result.wrong_fails else ["the wrong version passes"]),
        *([] if result.right_passes else ["the right version fails"]),
        *(f"{name} passes" for name in result.missed),
        *(f"{name} fails" for name in result.refused),
    ]
    return f"DOES NOT HOLD: {' and '.join(problems)}"


def _markdown(text: str) -> str:
    """Escape characters that Markdown would read as emphasis, except inside code."""
    parts = text.split("`")
    parts[::2] = [part.replace("_", "\\_").replace("*", "\\*").replace("<", "\\<") for part in parts[::2]]
    return "`".join(parts)
