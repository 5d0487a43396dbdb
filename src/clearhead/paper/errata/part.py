"""The part "errata": every erratum with the results of its tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from clearhead.paper.errata.catalogue import ERRATA
from clearhead.paper.errata.erratum import Erratum, ErratumResult
from clearhead.paper.parts import Check, ModelPart, wrapped

Checked = tuple[Erratum, ErratumResult]
"""An erratum with the result of its check."""


def errata_part() -> ModelPart:
    """Return every erratum with the figures that its test measured on the wrong and the right version."""
    checked = [(erratum, erratum.check()) for erratum in ERRATA]
    return ModelPart(
        title="Errata: mistakes in study notes about the paper",
        text=report(checked),
        data={
            "errata": [
                {name: getattr(erratum, name) for name in ("number", "title", "wrong", "right", "source")}
                | asdict(result)
                for erratum, result in checked
            ]
        },
        checks=tuple(
            Check(f"erratum {erratum.number}, {erratum.title}", result.holds, result.evidence)
            for erratum, result in checked
        ),
    )


def report(checked: Iterable[Checked]) -> str:
    """Return errata with their results and verdicts as text, ending in a newline.

    Args:
        checked: Errata, each with the result of its check.
    """
    lines: list[str] = []
    checked = tuple(checked)
    for erratum, result in checked:
        lines += [*entry(erratum, result), ""]
    near_misses, right_variants = other_versions([erratum for erratum, _ in checked])
    missed, refused = (sum(len(getattr(result, names)) for _, result in checked) for names in ("missed", "refused"))
    distinguished = sum(result.wrong_fails and result.right_passes for _, result in checked)
    lines += [
        f"{distinguished} of {len(checked)} tests fail the wrong version and pass the right one.",
        f"They fail {near_misses - missed} of {near_misses} near misses and pass {right_variants - refused} of "
        f"{right_variants} other right versions.",
    ]
    return "\n".join(lines) + "\n"


def other_versions(errata: Sequence[Erratum]) -> tuple[int, int]:
    """Return the numbers of near misses and of other right versions."""
    return sum(len(erratum.mutants) for erratum in errata), sum(len(erratum.also_right) for erratum in errata)


def entry(erratum: Erratum, result: ErratumResult) -> list[str]:
    """Return an erratum and its results as lines."""
    lines = [" " * (erratum.number < 10) + heading(erratum)]
    for label, text in (statements(erratum, result.evidence) | {"verdict": _verdict(result)}).items():
        lines += wrapped(text, first=f"    {label:<12}", others=" " * 16)
    return lines


def heading(erratum: Erratum) -> str:
    """Return the number and the title of an erratum."""
    return f"{erratum.number}. {erratum.title}" + (" (quotation)" if erratum.kind == "quotation" else "")


def statements(erratum: Erratum, evidence: str) -> dict[str, str]:
    """Return what an erratum says and its test found, each under its label."""
    statements = {
        "wrong": erratum.wrong,
        "right": erratum.right,
        "source": erratum.source,
        "test": erratum.demands,
        "found": evidence,
        "also fails": "; ".join(erratum.mutants),
        "also passes": "; ".join(erratum.also_right),
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
