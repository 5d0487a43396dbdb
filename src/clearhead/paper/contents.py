"""Names of the parts that `clearhead paper` computes, with the function for each, in the paper's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clearhead.config import ModelConfig
from clearhead.paper.errata.part import errata_part
from clearhead.paper.figures.figure1 import figure1
from clearhead.paper.figures.figure2 import figure2
from clearhead.paper.formulas import formulas
from clearhead.paper.parts import ModelPart
from clearhead.paper.positions import positions
from clearhead.paper.schedule import schedule
from clearhead.paper.table1 import table1
from clearhead.paper.table2 import table2
from clearhead.paper.table3 import table3
from clearhead.paper.table4 import table4
from clearhead.paper.walk.part import walk

FIGURES: Mapping[str, Callable[[ModelConfig], ModelPart]] = {"figure1": figure1, "figure2": figure2}
"""Parts that can be computed of any configuration."""
PARTS: Mapping[str, Callable[[], ModelPart]] = {
    "figure1": figure1,
    "figure2": figure2,
    "formulas": formulas,
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "schedule": schedule,
    "positions": positions,
    "errata": errata_part,
    "walk": walk,
}
"""Name on the command line -> function that computes the part."""
