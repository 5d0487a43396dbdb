"""One mistake of the retellings: what it says, what is right, and a check that tells the two apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

__all__ = ["Erratum", "ErratumResult", "Finding", "Kind"]

Version = TypeVar("Version")

Kind = Literal["computed", "quotation"]
"""What a check stands on: something computed, or a sentence of the paper where nothing can be computed."""


@dataclass(frozen=True)
class Finding:
    """What a check found on one version."""

    holds: bool
    """Whether the version keeps what the check demands."""
    figures: str
    """The numbers measured, rounded so far that they are the same on every processor."""


@dataclass(frozen=True)
class ErratumResult:
    """What a check found on both versions."""

    wrong_fails: bool
    right_passes: bool
    evidence: str
    """The numbers measured on the wrong version, then on the right one."""

    @property
    def holds(self) -> bool:
        """Whether the check tells wrong from right."""
        return self.wrong_fails and self.right_passes


@dataclass(frozen=True, kw_only=True)
class Erratum(Generic[Version]):
    """A wrong statement and the right one, each also as something that can be run, and the one test for both."""

    number: int
    """Counted from 1; stays with the erratum."""
    title: str
    wrong: str
    """The statement as the retellings make it."""
    right: str
    source: str
    """Where the right statement stands."""
    demands: str
    """What the test demands of a version, in one sentence."""
    wrong_version: Version
    """The wrong statement as code or data."""
    right_version: Version
    """The right one, by our own code wherever there is some."""
    test: Callable[[Version], Finding]
    """Measure a version against a criterion that knows neither of the two."""
    kind: Kind = "computed"

    def check(self) -> ErratumResult:
        """Run the test on both versions."""
        wrong, right = self.test(self.wrong_version), self.test(self.right_version)
        return ErratumResult(
            wrong_fails=not wrong.holds,
            right_passes=right.holds,
            evidence=f"wrong: {wrong.figures}; right: {right.figures}",
        )
