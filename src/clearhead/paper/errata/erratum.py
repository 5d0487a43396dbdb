"""Data types of an erratum: a wrong statement, the right one, and a test that distinguishes them.

What errata say is in `errata.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from clearhead.paper.places import read_table

Kind = Literal["computed", "quotation"]
"""Basis of a check: something computed, or a sentence of the paper where nothing can be computed."""


@dataclass(frozen=True)
class CheckResult:
    """Result of a test on one version."""

    holds: bool
    """Whether the version meets the demand of the test."""
    figures: str
    """The measured numbers, rounded so that they are the same on every processor."""
    output: Any
    """What the version computed, from random input if it takes any: versions with the same output are the same."""


@dataclass(frozen=True)
class ErratumResult:
    """Results of a test on all versions."""

    wrong_fails: bool
    right_passes: bool
    evidence: str
    """The numbers measured on the wrong version, then on the right one."""
    missed: tuple[str, ...]
    """Names of the near misses that pass the test."""
    refused: tuple[str, ...]
    """Names of the other right versions that fail it."""

    @property
    def holds(self) -> bool:
        """Whether the test fails every wrong version and passes every right one."""
        return self.wrong_fails and self.right_passes and not self.missed and not self.refused


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """A wrong and a right statement, each also in a form that can be run, and one test for these and other versions."""

    number: int
    """Number of the erratum, counted from 1; it never changes."""
    title: str
    wrong: str
    """The wrong statement as study notes make it."""
    right: str
    source: str
    """Where the right statement is found."""
    wrong_version: Any
    """The wrong statement as code or data."""
    right_version: Any
    """The right statement as code or data, using the package's own code where possible."""
    test: Callable[[Any], CheckResult]
    """Measures a version against a criterion that is independent of both versions; its docstring is that criterion."""
    mutants: Mapping[str, Any] = field(default_factory=dict)
    """Near misses by name: versions that are wrong in another way, which the test must fail too."""
    also_right: Mapping[str, Any] = field(default_factory=dict)
    """Other right versions by name, which the test must pass."""
    kind: Kind = "computed"

    @property
    def demands(self) -> str:
        """The criterion of the test, on one line."""
        return " ".join((self.test.__doc__ or "").split())

    def evidence(self) -> str:
        """Return the numbers measured on the wrong version, then on the right one."""
        return _evidence(self.test(self.wrong_version), self.test(self.right_version))

    def check(self) -> ErratumResult:
        """Run the test on all versions."""
        wrong, right = self.test(self.wrong_version), self.test(self.right_version)
        return ErratumResult(
            wrong_fails=not wrong.holds,
            right_passes=right.holds,
            evidence=_evidence(wrong, right),
            missed=tuple(name for name, version in self.mutants.items() if self.test(version).holds),
            refused=tuple(name for name, version in self.also_right.items() if not self.test(version).holds),
        )


STATEMENTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = read_table("errata/errata.toml")
"""Heading -> title -> number, statements, source and kind of an erratum."""
_BY_TITLE = {title: fields for titles in STATEMENTS.values() for title, fields in titles.items()}


def erratum(title: str, **versions: Any) -> Erratum:
    """Return the erratum of a title in `errata.toml`.

    Args:
        title: The title.
        **versions: What can be run of it: `wrong_version`, `right_version`, `test`, `mutants` and `also_right`.
    """
    said: dict[str, Any] = {
        name: " ".join(value.split()) if isinstance(value, str) else value for name, value in _BY_TITLE[title].items()
    }
    return Erratum(title=title, **said, **versions)


def _evidence(wrong: CheckResult, right: CheckResult) -> str:
    return f"wrong: {wrong.figures}; right: {right.figures}"
