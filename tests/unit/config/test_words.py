"""The words of settings, read from their docstrings."""

from __future__ import annotations

from typing import Annotated

import pytest

import clearhead.config
from clearhead.config.settings import Settings
from clearhead.config.words import SECTIONS, SameAs, words


class Reading(Settings):
    """Arguments of somebody else."""

    beams: Annotated[int | None, SameAs("decode.beam_size", "By default the model's.")] = None
    words: int = 1
    """Number of words."""


BEAMS = f"{words('decode.beam_size')} By default the model's."


@pytest.mark.parametrize("section", SECTIONS)
def test_words_are_the_first_paragraph_of_a_docstring(section):
    named = getattr(clearhead.config, SECTIONS[section].partition(":")[2])
    for key, text in named.descriptions().items():
        said = words(f"{section}.{key}".removeprefix("."))
        assert said == " ".join(text.split("\n\n")[0].split())
        assert said.endswith(".")


def test_fields_that_are_the_same_as_a_setting_have_its_words():
    assert Reading.descriptions() == {"beams": BEAMS, "words": "Number of words."}
    schema = Reading.model_json_schema()["properties"]["beams"]
    assert (schema["description"], [one["type"] for one in schema["anyOf"]]) == (BEAMS, ["integer", "null"])
