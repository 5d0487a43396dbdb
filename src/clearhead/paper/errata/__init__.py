"""The mistakes that study notes about the paper make, each with a check that fails for the wrong version."""

from clearhead.paper.errata.catalogue import ERRATA, THEMES
from clearhead.paper.errata.erratum import Erratum, ErratumResult, Finding
from clearhead.paper.errata.page import errata_page, report

__all__ = ["ERRATA", "THEMES", "Erratum", "ErratumResult", "Finding", "errata_page", "report"]
