"""Mistakes in study notes about the paper, each with a check that the wrong version fails and the right one passes."""

from clearhead.paper.errata.catalogue import ERRATA, THEMES
from clearhead.paper.errata.erratum import CheckResult, Erratum, ErratumResult
from clearhead.paper.errata.part import report

__all__ = ["ERRATA", "THEMES", "CheckResult", "Erratum", "ErratumResult", "report"]
