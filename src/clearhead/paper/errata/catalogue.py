"""List of all errata in the order of their numbers, and the headings under which they are grouped."""

from __future__ import annotations

from clearhead.paper.errata.costs import COSTS_ERRATA
from clearhead.paper.errata.cross import CROSS_ERRATA
from clearhead.paper.errata.embeddings import EMBEDDINGS_ERRATA
from clearhead.paper.errata.erratum import STATEMENTS, Erratum
from clearhead.paper.errata.history import HISTORY_ERRATA
from clearhead.paper.errata.masks import MASKS_ERRATA
from clearhead.paper.errata.outputs import OUTPUTS_ERRATA
from clearhead.paper.errata.projections import PROJECTIONS_ERRATA
from clearhead.paper.errata.scale import SCALE_ERRATA
from clearhead.paper.errata.shapes import SHAPES_ERRATA
from clearhead.paper.errata.weights import WEIGHTS_ERRATA

_BY_TITLE = {
    erratum.title: erratum
    for errata in (
        SCALE_ERRATA,
        WEIGHTS_ERRATA,
        PROJECTIONS_ERRATA,
        MASKS_ERRATA,
        CROSS_ERRATA,
        SHAPES_ERRATA,
        EMBEDDINGS_ERRATA,
        OUTPUTS_ERRATA,
        COSTS_ERRATA,
        HISTORY_ERRATA,
    )
    for erratum in errata
}
THEMES = {theme: tuple(_BY_TITLE[title] for title in titles) for theme, titles in STATEMENTS.items()}
"""Section heading -> the errata under it."""

ERRATA: tuple[Erratum, ...] = tuple(sorted(_BY_TITLE.values(), key=lambda erratum: erratum.number))
