"""Generation settings of every layout are taken over as `generate` of transformers uses them, and compared.

The comparison runs `generate` with the settings of the directory. So a start, forced or end token that is not the
directory's own is refused, also where every score is right.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from published import PUBLISHED, Published, read_tokenizer, write_json

from clearhead.errors import ConfigError, ModelError
from clearhead.interop.import_model import import_path
from every_run import slow

SEVERAL = {"mbart", "mbart-50", "nllb", "m2m100"}
"""Layouts that are told a language by the start token or the forced one."""
FAST = {"marian", "t5", "bart", "bert-generation"}
LAYOUTS = [name if name in FAST else slow(name) for name in PUBLISHED]
WITHOUT_LANGUAGES = [name if name in FAST else slow(name) for name in PUBLISHED if name not in SEVERAL]


def change(directory: Path, **settings: Any) -> None:
    path = directory / "generation_config.json"
    write_json(path, {**json.loads(path.read_text(encoding="utf-8")), **settings})


def read(layout: Published) -> Any:
    return import_path(layout.directory, source_lang=layout.source_lang, target_lang=layout.target_langs[0])


def piece(layout: Published) -> int:
    """Return the id of a piece of text."""
    tokenizer = read_tokenizer(layout.directory)
    if layout.source_lang is not None:
        tokenizer.src_lang = layout.source_lang
    return tokenizer("2", add_special_tokens=False)["input_ids"][-1]


@pytest.mark.parametrize("layout", WITHOUT_LANGUAGES, indirect=True)
@pytest.mark.parametrize("name", ["decoder_start_token_id", "forced_bos_token_id", "eos_token_id"])
def test_special_tokens_of_the_generation_settings_count(layout, name):
    number = piece(layout)
    before = read(layout)
    change(layout.directory, **{name: number})
    with pytest.raises(ModelError, match=r"start tokens|end token|log-probability|is translated"):
        before.prove(["2 2"] * 3 if name != "eos_token_id" else ["2"])
    found = read(layout)
    config, tokenizer = found.bundle.model.config, found.bundle.tokenizer
    expected = {
        "decoder_start_token_id": config.bos_id,
        "forced_bos_token_id": next(iter(tokenizer.given(layout.target_langs[0])), None),
        "eos_token_id": config.eos_id,
    }
    assert expected[name] == number
    assert found.prove(["2 2"]) in (None, "the same")


@pytest.mark.parametrize("layout", LAYOUTS, indirect=True)
def test_several_end_tokens_are_refused(layout):
    change(layout.directory, eos_token_id=[2, piece(layout)])
    with pytest.raises(ConfigError, match="our search ends at one token"):
        read(layout)


@pytest.mark.parametrize("layout", LAYOUTS, indirect=True)
def test_lengths_and_ngrams_are_taken_over_and_compared(layout):
    change(layout.directory, min_length=19, no_repeat_ngram_size=2, repetition_penalty=1.5, max_length=64)
    found = read(layout)
    assert (found.bundle.decode.min_length, found.bundle.decode.no_repeat_ngram_size) == (19, 2)
    named = [note.split(" = ")[0] for note in found.notes if "not taken over" in note and " = " in note]
    assert {"repetition_penalty", "max_length"} <= set(named)
    assert found.prove(["2 2", "a dog"]) in (None, "the same")


@pytest.mark.parametrize("layout", ["mbart-50", slow("nllb"), slow("m2m100")], indirect=True)
def test_forced_bos_token_id_that_is_not_a_language_is_rejected(layout):
    change(layout.directory, forced_bos_token_id=piece(layout))
    with pytest.raises(ConfigError, match="which is no language of the model"):
        read(layout)
