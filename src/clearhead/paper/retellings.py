"""The part "errata": mistakes in study notes about the paper, each checked in a wrong and a right version."""

from __future__ import annotations

from clearhead.paper.errata.catalogue import ERRATA
from clearhead.paper.errata.page import report
from clearhead.paper.parts import Check, ModelPart


def retellings() -> ModelPart:
    """Return every erratum with what its check measured on the wrong and the right version."""
    found = [(erratum, erratum.check()) for erratum in ERRATA]
    return ModelPart(
        title="Errata: mistakes of the retellings",
        text=report(found),
        data={
            "errata": [
                {
                    "number": erratum.number,
                    "title": erratum.title,
                    "wrong": erratum.wrong,
                    "right": erratum.right,
                    "source": erratum.source,
                    "wrong_fails": result.wrong_fails,
                    "right_passes": result.right_passes,
                    "evidence": result.evidence,
                }
                for erratum, result in found
            ]
        },
        checks=tuple(
            Check(
                f"erratum {erratum.number}, {erratum.title}",
                result.wrong_fails and result.right_passes,
                result.evidence,
            )
            for erratum, result in found
        ),
    )
