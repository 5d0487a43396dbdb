"""The errata as text: for the terminal, and as the page `docs/errata.md`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from clearhead.paper.errata.catalogue import THEMES
from clearhead.paper.errata.erratum import Erratum, ErratumResult

_WIDTH = 116

_INTRODUCTION = """\
# Errata of the retellings

Generated from `src/clearhead/paper/errata/`. These are mistakes that study notes about "Attention Is All You Need"
make: each with the right statement, its source, and a check. Every erratum exists twice as something that can be
run, the wrong version and the right one (our own code wherever there is some), and one test measures both. It fails for
the wrong version and passes for the right one; the figures below are what it measured.

    clearhead paper errata

runs all of them, and so does `tests/unit/paper/test_errata.py`. Slips of the pen (a missing bracket, an undefined name)
are left out. Numbers 3, 11 and 32 to 35 are not quotations: notes leave these points out or vague, and the erratum
states what a reader would conclude. *Quotation* marks the errata where nothing can be computed: their test compares
with what the paper prints.
"""


def report(found: Iterable[tuple[Erratum[Any], ErratumResult]]) -> str:
    """Return all errata with their results and verdicts as text, ending in a newline.

    Args:
        found: Errata, each with the result of its check.
    """
    lines: list[str] = []
    verdicts: list[bool] = []
    for erratum, result in found:
        verdicts.append(result.holds)
        mark = " (quotation)" if erratum.kind == "quotation" else ""
        lines.append(f"{erratum.number:>2}. {erratum.title}{mark}")
        for label, text in (
            ("wrong", erratum.wrong),
            ("right", erratum.right),
            ("source", erratum.source),
            ("test", erratum.demands),
            ("found", result.evidence),
            ("verdict", _verdict(result)),
        ):
            lines += textwrap.wrap(
                text,
                width=_WIDTH,
                initial_indent=f"    {label:<8}",
                subsequent_indent=" " * 12,
                break_long_words=False,
                break_on_hyphens=False,
            )
        lines.append("")
    lines.append(f"{sum(verdicts)} of {len(verdicts)} checks tell wrong from right.")
    return "\n".join(lines) + "\n"


def errata_page() -> str:
    """Return the text of `docs/errata.md`."""
    lines = [_INTRODUCTION]
    for heading, errata in THEMES.items():
        lines += [f"## {heading}", ""]
        for erratum in errata:
            mark = " (quotation)" if erratum.kind == "quotation" else ""
            lines += [
                f"### {erratum.number}. {erratum.title}{mark}",
                "",
                f"- **Wrong.** {_markdown(erratum.wrong)}",
                f"- **Right.** {_markdown(erratum.right)}",
                f"- **Source.** {_markdown(erratum.source)}",
                f"- **Test.** {_markdown(erratum.demands)}",
                f"- **Found.** {_markdown(erratum.check().evidence)}",
                "",
            ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _verdict(result: ErratumResult) -> str:
    if result.holds:
        return "the wrong version fails, the right one passes"
    problems = [
        *([] if result.wrong_fails else ["the wrong version passes"]),
        *([] if result.right_passes else ["the right version fails"]),
    ]
    return f"DOES NOT HOLD: {' and '.join(problems)}"


def _markdown(text: str) -> str:
    """Escape characters that Markdown would read as emphasis, except inside code."""
    parts = text.split("`")
    parts[::2] = [part.replace("_", "\\_").replace("*", "\\*").replace("<", "\\<") for part in parts[::2]]
    return "`".join(parts)
