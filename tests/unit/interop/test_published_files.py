"""Files of published models that name or set something otherwise than files written today."""

from __future__ import annotations

import json

import pytest
import tokenizers
import torch
from safetensors.torch import save_file

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.interop.readers.foreign_config import parse_yaml
from clearhead.interop.readers.foreign_weights import read_their_weights
from clearhead.interop.vocabularies.huggingface_files import checked_json, their_vocabulary
from clearhead.tokenizers import tokenizer_json
from clearhead.tokenizers.subword_encoders import TokenizersEncoder
from sentencepiece_models import sentencepiece_model

LINES = ["Ein Hund rennt.", "Zwei Hunde bellen laut.", "A dog runs."] * 20


@pytest.mark.parametrize("text", ["[" * 200_000, "a: " + "[" * 5_000 + "]" * 5_000, "- " * 100_000 + "a"])
def test_deeply_nested_yaml_is_an_error_and_ends_no_process(text):
    with pytest.raises(ModelError, match="is damaged"):
        parse_yaml(text, "config.yaml")


def test_norms_named_gamma_and_beta_are_weight_and_bias(tmp_path):
    names = {"a.LayerNorm.gamma": 1.0, "a.LayerNorm.beta": 2.0, "gamma": 3.0}
    save_file({name: torch.full((2,), value) for name, value in names.items()}, tmp_path / "model.safetensors")
    found = {name: tensor[0].item() for name, tensor in read_their_weights(tmp_path)[0].items()}
    assert found == {"a.LayerNorm.weight": 1.0, "a.LayerNorm.bias": 2.0, "gamma": 3.0}


@pytest.mark.parametrize("name", ["<unk>", "[UNK]"])
def test_unknown_pieces_have_the_id_of_the_sentencepiece_model_whatever_its_name(tmp_path, name):
    made = sentencepiece_model(LINES, 40, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, unk_piece=name)
    (tmp_path / "spiece.model").write_bytes(made)
    side = their_vocabulary(tmp_path, "t5", ModelConfig(vocab_size=200, pad_id=0, bos_id=0, eos_id=1)).source
    assert (side.unk_id, 2 in side.special) == (2, True)


@pytest.mark.parametrize(
    ("asked", "lowers"),
    [
        ({"do_lower_case": False, "tokenizer_class": "BertTokenizer"}, False),
        ({"do_lower_case": True}, True),
        ({}, True),  # as the file says
        ({"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}, True),  # takes the file as it is
    ],
)
def test_settings_beside_a_tokenizer_json_count_for_bert(tmp_path, asked, lowers):
    made = tokenizers.BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator([*LINES, *map(str.lower, LINES)], vocab_size=120, show_progress=False)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(asked), encoding="utf-8")
    config = ModelConfig(vocab_size=200, pad_id=0, bos_id=2, eos_id=3)
    encoder = TokenizersEncoder(their_vocabulary(tmp_path, "bert", config).source.model)
    [upper], [lower] = encoder.encode(["Hund"]), encoder.encode(["hund"])
    assert (upper == lower) is lowers


def test_a_tokenizer_json_of_too_many_pieces_is_refused_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_json, "_MOST_PIECES", 100)
    values = {
        "model": {"type": "WordPiece", "vocab": {f"p{number}": number for number in range(101)}},
        "added_tokens": [],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ModelError, match="its vocab has 101 entries, but must have at most 100"):
        checked_json(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("space", [True, False])
def test_settings_beside_a_tokenizer_json_count_for_byte_level_bpe(tmp_path, space):
    made = tokenizers.ByteLevelBPETokenizer(add_prefix_space=not space)
    made.train_from_iterator(LINES, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>"], show_progress=False)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": space}), encoding="utf-8")
    side = their_vocabulary(tmp_path, "bart", ModelConfig(vocab_size=300, pad_id=1, bos_id=2, eos_id=2)).source
    [plain], [spaced] = (TokenizersEncoder(side.model).encode([text]) for text in ("Hund", " Hund"))
    assert (plain == spaced) is space
