"""Search settings and files of transformers, read without its library."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.interop.huggingface.reader import _decode, _not_taken
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
            ["do_sample", "min_length", "repetition_penalty"],
        ),
    ],
)
def test_settings_that_change_nothing_here_are_not_named(generation, named):
    notes = _not_taken(ModelConfig(vocab_size=37, pad_id=0, bos_id=1, eos_id=2), generation, DecodeConfig())
    assert [note.split(" = ")[0] for note in notes] == named


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
