"""The page of concepts says what the programs print, and has their pictures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clearhead.inspection.plots import draw
from clearhead.paper.concepts import CONCEPTS, Concept, concept_part

DOCS = Path(__file__).parents[2] / "docs"
LEARN = {"masked-word", "patches-and-frames", "reverse-digits"}
"""Their numbers are of this processor; what they assert holds on all."""
SLOW = {*LEARN, "why-not-recurrent"}
DRAWN_BY_OTHERS = {"bert-generation"}
"""Its weights are drawn by the version of transformers that is installed."""


def texts_of(picture: bytes) -> list[str]:
    """Return all words and numbers in a picture."""
    return [text for element in ElementTree.fromstring(picture).iter() if (text := (element.text or "").strip())]


def as_number(text: str) -> str | float:
    """Return a number with a fraction as one: processors round its last digit otherwise."""
    return float(text) if re.fullmatch(r"-?\d+\.\d+", text) else text


@pytest.mark.usefixtures("fonts")
@pytest.mark.parametrize(
    "concept",
    [pytest.param(one, marks=pytest.mark.slow if one.name in SLOW else ()) for one in CONCEPTS],
    ids=lambda one: one.name,
)
def test_a_section_says_what_its_program_prints_and_has_its_picture(concept: Concept, generate, monkeypatch):
    if concept.name in {"bert-generation", "masked-word"}:
        pytest.importorskip("transformers")
    # Where words stand in a picture is not compared, and takes half of drawing it.
    monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda *_: {})
    part = concept_part(concept)
    assert part.failures == []
    page, section = (DOCS / "concepts.md").read_text(encoding="utf-8"), generate.concept_section(concept, part)
    picture = (DOCS / "concepts" / f"{concept.name}.svg").read_bytes()
    drawn = draw(part.figures[concept.name], "svg")
    if concept.name in LEARN | DRAWN_BY_OTHERS:
        page, section = (re.sub(r"\d+(\.\d+)?", "#", text) for text in (page, section))
        assert len(texts_of(picture)) == len(texts_of(drawn))
    else:
        found, expected = (list(map(as_number, texts_of(one))) for one in (drawn, picture))
        assert found == [pytest.approx(one, abs=0.02) if isinstance(one, float) else one for one in expected]
    assert section in page


def test_the_page_has_every_concept_once_and_says_how_to_find_it(generate):
    page = (DOCS / "concepts.md").read_text(encoding="utf-8")
    assert page.startswith(generate.concepts_page({}))
    opening, _, sections = page.partition("\n## ")
    assert opening.split("```\n")[1] in sections
    assert re.findall("^## (.+)", page, flags=re.MULTILINE) == [concept.title for concept in CONCEPTS]
