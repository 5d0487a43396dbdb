"""Models with their tokenizers and settings, and the directories in which they are saved."""

from clearhead.bundle.bundle import (
    Bundle,
    load_bundle,
    own_parts,
    read_card,
    read_golden,
    read_languages,
    require_fitting_weights,
    require_same_vocabulary,
    save_bundle,
)

__all__ = [
    "Bundle",
    "load_bundle",
    "own_parts",
    "read_card",
    "read_golden",
    "read_languages",
    "require_fitting_weights",
    "require_same_vocabulary",
    "save_bundle",
]
