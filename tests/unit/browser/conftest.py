"""What the tests of pages without a server share."""

from __future__ import annotations

from typing import Any

import pytest

from clearhead.text.line_statistics import LineCounter


@pytest.fixture(scope="module")
def trained_info(sentences) -> dict[str, Any]:
    """Return what a model says of its training lines: single sentences, without capitals and stray spaces."""
    counter = LineCounter("de")
    for sentence in sentences:
        for target in (sentence[:5], sentence * 2):
            counter.add(sentence, target, 40, 40)
    return {"data": {"line_statistics": counter.statistics().model_dump(mode="json")}}
