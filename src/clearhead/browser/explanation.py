"""What a page that explains translations by itself, without a server, needs of a model; see pages/web/explaining.js."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clearhead.inspection.explain import model_facts
from clearhead.inspection.explanation import MOST_EXACT, MOST_ROUNDED, SCHEMA_VERSION
from clearhead.inspection.head_roles import role_rules
from clearhead.inspection.page import MAX_PAGE_WEIGHTS
from clearhead.inspection.token_steps import NUM_CANDIDATES, NUM_LENS_CANDIDATES
from clearhead.translation.alignment import alignment_head

if TYPE_CHECKING:
    from clearhead.bundle import Bundle


def explanation_settings(bundle: Bundle) -> dict[str, Any]:
    """Return facts of a model and constants of explanations, as plain values for JSON.

    Args:
        bundle: An encoder-decoder.

    Raises:
        ModelError: If its alignment.json is damaged.
    """
    head = alignment_head(bundle)
    return {
        "version": SCHEMA_VERSION,
        "model": model_facts(bundle, bundle.directory, bundle.decode),
        "start_token": bundle.tokenizer.pieces([bundle.tokenizer.bos_id])[0],
        "alignment_head": {**head._asdict(), "name": str(head)},
        "roles": role_rules(),
        "num_candidates": NUM_CANDIDATES,
        "num_lens_candidates": NUM_LENS_CANDIDATES,
        "max_page_weights": MAX_PAGE_WEIGHTS,
        "most_exact": MOST_EXACT,
        "most_rounded": MOST_ROUNDED,
    }
