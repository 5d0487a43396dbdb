"""List of all errata in the order of their numbers, and the headings under which they are grouped."""

from __future__ import annotations

from typing import Any

from clearhead.paper.errata.costs import COSTS_ERRATA
from clearhead.paper.errata.cross import CROSS_ERRATA
from clearhead.paper.errata.embeddings import EMBEDDINGS_ERRATA
from clearhead.paper.errata.erratum import Erratum
from clearhead.paper.errata.history import HISTORY_ERRATA
from clearhead.paper.errata.masks import MASKS_ERRATA
from clearhead.paper.errata.outputs import OUTPUTS_ERRATA
from clearhead.paper.errata.projections import PROJECTIONS_ERRATA
from clearhead.paper.errata.scale import SCALE_ERRATA
from clearhead.paper.errata.shapes import SHAPES_ERRATA
from clearhead.paper.errata.weights import WEIGHTS_ERRATA

THEMES: dict[str, tuple[Erratum[Any], ...]] = {
    "The scale": SCALE_ERRATA,
    "Softmax and values": WEIGHTS_ERRATA,
    "Projections and heads": PROJECTIONS_ERRATA,
    "Masks": MASKS_ERRATA,
    "Encoder and decoder": CROSS_ERRATA,
    "Sizes and the feed-forward network": SHAPES_ERRATA,
    "Embeddings and positions": EMBEDDINGS_ERRATA,
    "Outputs": OUTPUTS_ERRATA,
    "Recurrence and residual connections": COSTS_ERRATA,
    "The paper and earlier work": HISTORY_ERRATA,
}
"""Section heading -> the errata under it."""

ERRATA: tuple[Erratum[Any], ...] = tuple(
    sorted((erratum for errata in THEMES.values() for erratum in errata), key=lambda erratum: erratum.number)
)
