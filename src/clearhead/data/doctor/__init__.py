"""The data doctor: finds defects of a corpus in one pass over its pairs."""

from __future__ import annotations

from clearhead.data.doctor.examination import Examination, examine, measure
from clearhead.data.doctor.findings import KINDS, Finding

__all__ = ["KINDS", "Examination", "Finding", "examine", "measure"]
