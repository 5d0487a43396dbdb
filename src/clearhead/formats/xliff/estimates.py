"""The model's estimate of the quality of a translation in XLIFF 1.x: MT Confidence of the Internationalization Tag Set.

It is `its:mtConfidence` of the target, beside `its:annotatorsRef`, which names the tool (ITS 2.0, section 8.19).
XLIFF 2.x has no place for it at a segment.
"""

from __future__ import annotations

from collections.abc import Sequence

from clearhead.formats.document import Filling
from clearhead.formats.xml.elements import with_attribute, without_attribute

ITS = "http://www.w3.org/2005/11/its"
"""Namespace of the Internationalization Tag Set."""
ANNOTATORS = "mt-confidence|clearhead"
"""The tool that made the estimate, in the syntax of `its:annotatorsRef`."""


def with_estimate(tag: str, fillings: Sequence[Filling | None]) -> str:
    """Return the start tag of a target with the quality estimate of its only part, and without that of an older text.

    Args:
        tag: The start tag.
        fillings: The translations of the parts of its unit.
    """
    has_estimate = any(new is not None and (new.is_reviewed or new.confidence is not None) for new in fillings)
    if has_estimate:
        tag = without_attribute(without_attribute(tag, "its:mtConfidence"), "its:annotatorsRef")
    if len(fillings) == 1 and fillings[0] is not None and (confidence := fillings[0].confidence) is not None:
        tag = with_attribute(with_attribute(tag, "xmlns:its", ITS), "its:annotatorsRef", ANNOTATORS)
        tag = with_attribute(tag, "its:mtConfidence", f"{confidence:.4f}")
    return tag
