"""What the tests of pages without a server share."""

from __future__ import annotations

from typing import Any

import pytest
from trained_text import counted, info_of


@pytest.fixture(scope="module")
def trained_info(sentences) -> dict[str, Any]:
    """Return what a model says of its training lines: single sentences, without capitals and stray spaces."""
    pairs = [(sentence, target) for sentence in sentences for target in (sentence[:5], sentence * 2)]
    return info_of(counted(pairs, "de", (40, 40)))
