"""Search settings and files of transformers, read without its library."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import transformers

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.errors import ConfigError
from clearhead.interop.huggingface.generation import (
    NOT_TAKEN,
    SEPARATE,
    TAKEN,
    WITHOUT_EFFECT,
    generation_notes,
    read_generation,
    search_settings,
    with_special_tokens,
)
from clearhead.interop.huggingface.reader import _decode
from clearhead.interop.vocabularies.huggingface_files import _sides


@pytest.mark.parametrize(
    ("generation", "named"),
    [
        (
            {"bad_words_ids": [[0], [1]], "suppress_tokens": [0]},
            [],
        ),  # padding and start, which ours never writes either
        ({"bad_words_ids": [[0], [5]]}, ["bad_words_ids"]),
        ({"bad_words_ids": [[0, 1]]}, ["bad_words_ids"]),
        ({"suppress_tokens": [0, 5]}, ["suppress_tokens"]),
        ({"min_length": 0, "repetition_penalty": 1.0, "do_sample": False}, []),
        (
            {"min_length": 1, "repetition_penalty": 1.5, "do_sample": True},
            ["do_sample", "repetition_penalty"],
        ),
        ({"min_length": 9, "min_new_tokens": 7, "no_repeat_ngram_size": 3}, []),  # taken over
        ({"begin_suppress_tokens": [0]}, []),
        ({"begin_suppress_tokens": [7]}, ["begin_suppress_tokens"]),
        ({"exponential_decay_length_penalty": [5, 1.5]}, ["exponential_decay_length_penalty"]),
        ({"forced_eos_token_id": 2}, []),
        ({"forced_eos_token_id": 5}, ["forced_eos_token_id"]),
        ({"max_length": 20}, ["max_length"]),
        ({"max_length": 5_000, "max_new_tokens": 2_000}, []),  # more than ours ever writes
        ({"temperature": 0.5, "use_cache": True, "bos_token_id": 7}, []),
        ({"penalty_of_tomorrow": 2, "flag_of_tomorrow": False}, ["penalty_of_tomorrow"]),
    ],
)
def test_settings_that_change_nothing_here_are_not_named(generation, named):
    notes = generation_notes(ModelConfig(vocab_size=37, pad_id=0, bos_id=1, eos_id=2), generation, DecodeConfig())
    assert [note.split(" = ")[0] for note in notes] == named


def test_every_generation_setting_of_transformers_is_known():
    fields = {name for name in vars(transformers.GenerationConfig()) if name != "_original_object_hash"}
    assert fields - {*TAKEN, *NOT_TAKEN, *SEPARATE, *WITHOUT_EFFECT} == set()


def test_search_settings_count_as_in_transformers():
    said = {"min_length": 9, "min_new_tokens": 3, "no_repeat_ngram_size": 2, "num_beams": 5, "length_penalty": 0.8}
    found = {"beam_size": 5, "length_penalty": 0.8, "min_length": 4, "no_repeat_ngram_size": 2}  # the end token as well
    assert search_settings(said, is_decoder_alone=False) == found
    assert search_settings({"min_length": 9}, is_decoder_alone=False)["min_length"] == 9
    assert "no_repeat_ngram_size" not in search_settings(said, is_decoder_alone=True)  # there the input counts as well
    [least, ngrams] = generation_notes(
        ModelConfig(vocab_size=37, num_encoder_layers=0, tying="decoder"),
        {"min_length": 9, "no_repeat_ngram_size": 2},
        DecodeConfig(),
    )
    assert (least[:10], ngrams[:8]) == ("min_length", "no_repea")


def test_generation_settings_count_more_than_the_configuration(tmp_path):
    values = {"eos_token_id": 2, "decoder_start_token_id": 2, "num_beams": 4, "decoder": {"length_penalty": 0.5}}
    tokens = {"eos_token_id": 2, "decoder_start_token_id": 2}
    assert read_generation(tmp_path, values) == {**tokens, "num_beams": 4, "length_penalty": 0.5}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5], "bos_token_id": 3, "num_beams": null}')
    found = read_generation(tmp_path, values)
    assert found == {"eos_token_id": [5], "bos_token_id": 3}
    changed = with_special_tokens(values, found, tmp_path)
    assert (changed["eos_token_id"], changed["decoder_start_token_id"]) == (5, 3)
    with pytest.raises(ConfigError, match=r"eos_token_id is \[2, 5\], but our search ends at one token"):
        with_special_tokens(values, {"eos_token_id": [2, 5]}, tmp_path)


@pytest.mark.parametrize(
    ("generation", "settings", "asked", "language"),
    [
        ({"forced_bos_token_id": 7}, {}, None, "de"),
        ({"forced_bos_token_id": 8}, {}, None, "fr"),
        ({"forced_bos_token_id": 0}, {}, None, None),
        ({}, {}, None, None),
        ({"forced_bos_token_id": 7}, {"tgt_lang": "fr"}, None, "fr"),
        ({"forced_bos_token_id": 7}, {"tgt_lang": "fr"}, "de", "de"),
    ],
)
def test_the_target_language_is_the_asked_one_then_the_tokenizer_s_then_that_of_the_forced_token(
    tmp_path, generation, settings, asked, language
):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = SimpleNamespace(languages={"de": 7, "fr": 8}, language_tags=("de", "fr"))
    config = ModelConfig(vocab_size=37, pad_id=0, bos_id=1, eos_id=2)
    assert _decode(tmp_path, config, generation, tokenizer, None, asked).target_lang == language


@pytest.mark.parametrize("kind", ["bart", "gpt2"])
def test_all_special_tokens_of_byte_level_files_are_cut_out_of_text(tmp_path, kind):
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>"]
    ids = {token: number for number, token in enumerate([*names, "a", "b", "ab"])}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    side, other = _sides(tmp_path, kind, ModelConfig(), {})
    assert other is None
    model = json.loads(side.model)
    assert sorted(token["content"] for token in model["added_tokens"] if token["special"]) == sorted(names)
    assert [
        tuple(merge) if isinstance(merge, list) else tuple(merge.split()) for merge in model["model"]["merges"]
    ] == [("a", "b")]
