"""Every place of the paper is one line of its file, and whatever names a place names one that exists."""

from __future__ import annotations

import re

import pytest

from clearhead.paper.concepts import CONCEPTS
from clearhead.paper.places import EQUATIONS, FORMULAS, PACKAGE, PLACES, Place, code, definitions, line_of


@pytest.mark.parametrize("name", PLACES)
def test_place_is_one_line_of_its_file(name: str):
    line = line_of(name)
    text = (PACKAGE / line.file).read_text(encoding="utf-8").splitlines()[line.number - 1]
    assert line.text in text
    if PLACES[name].computes:  # what a recording sees is the whole line
        assert text.partition("  #")[0].strip() == line.text


def test_lines_and_formulas_are_unique():
    assert len({(place.file, place.line) for place in PLACES.values()}) == len(PLACES)
    assert len({*FORMULAS.values()}) == len(FORMULAS) > 15


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("paper/**/*.py")), ids=lambda path: path.name)
def test_names_of_places_in_the_code_exist(path):
    groups = "|".join({name.partition(".")[0] for name in PLACES})
    named = set(re.findall(rf'"((?:{groups})\.\w+)"', path.read_text(encoding="utf-8")))
    assert named <= PLACES.keys()


def test_every_place_of_a_concept_exists():
    assert {concept.place for concept in CONCEPTS} <= PLACES.keys()


@pytest.mark.parametrize("name", EQUATIONS)
def test_code_of_an_equation_exists(name: str):
    line = line_of(EQUATIONS[name]["code"])
    assert line.text.startswith(("def ", "class "))


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("eq1.score", "places.toml has no place eq1.score"),
        ("model.attention:Attention", "model/attention.py does not define Attention"),
        ("model.attentions:Attention", "no file model/attentions.py"),
        ("test.gone", "model/attention.py holds 'scores = 1' in 0 lines, not in one"),
        ("test.twice", "lines, not in one"),
    ],
)
def test_line_of_names_what_is_missing(monkeypatch, reference, complaint):
    monkeypatch.setitem(PLACES, "test.gone", Place("model/attention.py", "scores = 1"))
    monkeypatch.setitem(PLACES, "test.twice", Place("model/attention.py", "return "))
    with pytest.raises(LookupError, match=re.escape(complaint)):
        line_of(reference)


def test_definitions_have_methods_fields_and_attributes():
    file = "model/attention.py"
    lines = (PACKAGE / file).read_text(encoding="utf-8").splitlines()
    assert lines[definitions(file)["MultiHeadAttention.q_proj"] - 1].strip().startswith("self.q_proj = ")
    assert lines[definitions(file)["MultiHeadAttention.attend"] - 1].strip().startswith("def attend(")
    assert "ModelConfig.d_ff" in definitions("config/model.py")


def test_code_of_a_place_with_several_functions_names_one():
    assert code("residual.add", "layer_norm").function == "layer_norm"
    assert code("eq1.scores").function == "matmul"
    with pytest.raises(ValueError, match="too many values"):
        code("residual.add")
