"""Settings of a sentencepiece model count as in sentencepiece; what transformers makes of the file may lose some."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import published
import pytest
import sentencepiece
import torch
from published import read_tokenizer, sentencepiece_model, write_json, write_t5
from test_added_tokens import grow

from clearhead.errors import ModelError
from clearhead.interop.export_model import export_directory
from clearhead.interop.import_model import import_path

LINES = ["Ein Hund rennt.", " ein  Hund ", "Straße ﬁn ①", "a👍🏽b", "x\ty", "EIN HUND"]
LOST = {
    "add_dummy_prefix": {"add_dummy_prefix": False},
    "remove_extra_whitespaces": {"remove_extra_whitespaces": False},
    "treat_whitespace_as_suffix": {"treat_whitespace_as_suffix": True},
    "model_type": {"model_type": "bpe"},
}
READ = {
    "no normalization": {"normalization_rule_name": "identity"},
    "case folding": {"normalization_rule_name": "nmt_nfkc_cf"},
    "unknown surface": {"unk_surface": "X"},
    "id of unknown pieces": {"unk_id": 3, "bos_id": 2},
    "a control symbol": {"control_symbols": ["<ctl>"]},
}


def t5_of(directory: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> Path:
    """Write a T5 whose sentencepiece model has some settings."""
    asked = dict(settings)
    kind = asked.pop("model_type", "unigram")
    monkeypatch.setattr(
        published,
        "sentencepiece_model",
        lambda lines, size, **ids: sentencepiece_model(lines, size, kind, **{**ids, **asked}),
    )
    torch.manual_seed(3)
    write_t5(directory, published.pairs("en", "fr"))
    return directory


@pytest.mark.parametrize("name", [*LOST, *READ])
def test_text_is_tokenized_as_sentencepiece_does(tmp_path, monkeypatch, name):
    directory = t5_of(tmp_path, monkeypatch, {**LOST, **READ}[name])
    processor = sentencepiece.SentencePieceProcessor(model_file=str(directory / "spiece.model"))
    found = import_path(directory)
    for line in LINES:
        ids = processor.encode(line)
        assert found.bundle.tokenizer.encode_batch([line]) == [ids], line
        known = [one for one in ids if one != processor.unk_id()]
        assert found.bundle.tokenizer.decode(ids) == processor.decode(known).strip()
    assert found.prove is not None
    said = found.prove(["Ein Hund rennt."])
    if name in LOST:
        assert f"their tokenizer does not read {name} = {next(iter(LOST[name].values()))}" in said
    else:
        assert said is None


def test_an_export_says_what_the_other_tokenizer_does_not_read(tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    bundle = import_path(t5_of(tmp_path / "theirs", monkeypatch, LOST["add_dummy_prefix"])).bundle
    _, compared, _ = export_directory(bundle, tmp_path / "out", "hf", ["Ein Hund rennt."])
    assert "the tokens of 1 of 1 sentences" in compared
    assert "does not read add_dummy_prefix = False" in compared


@pytest.fixture
def layout(request: pytest.FixtureRequest, directories: Any, tmp_path: Path) -> Path:
    """Return a copy of a published directory that may be changed."""
    return Path(shutil.copytree(directories(request.param).directory, tmp_path / "theirs"))


def change(path: Path, **values: Any) -> None:
    write_json(path, {**(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}), **values})


def rename(path: Path, old: str, new: str) -> None:
    ids = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, {new if piece == old else piece: number for piece, number in ids.items()})


@pytest.mark.parametrize("layout", ["marian", "m2m100"], indirect=True)
@pytest.mark.parametrize("unknown", ["[UNK]", {"content": "[UNK]", "__type": "AddedToken"}])
def test_the_unknown_piece_of_vocab_json_has_the_name_of_the_settings(layout, unknown):
    number = json.loads((layout / "vocab.json").read_text(encoding="utf-8"))["<unk>"]
    rename(layout / "vocab.json", "<unk>", "[UNK]")
    values = json.loads((layout / "config.json").read_text(encoding="utf-8"))
    asked = {"source_lang": "en", "target_lang": "de"} if values["model_type"] == "m2m_100" else {}
    with pytest.raises(ModelError, match=r"vocab\.json has no piece <unk> .*; unk_token names it"):
        import_path(layout, **asked)
    change(layout / "tokenizer_config.json", unk_token=unknown)
    [ids] = import_path(layout, **asked).bundle.tokenizer.encode_batch(["☃"])
    assert ids[-1] == number
    assert number in read_tokenizer(layout)("☃")["input_ids"]


@pytest.mark.parametrize("layout", ["m2m100"], indirect=True)
@pytest.mark.parametrize("change_list", ["shuffled", "left out", "of version 4, with added tokens"])
def test_languages_of_m2m100_have_the_rows_of_its_tokenizer_class(layout, change_list):
    path = layout / "special_tokens_map.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    match change_list:
        case "shuffled":
            random.Random(1).shuffle(values["additional_special_tokens"])
            write_json(path, values)
        case "left out":
            path.unlink()
        case _:  # behind the 100 languages and the 8 words made up
            rows = len(json.loads((layout / "vocab.json").read_text(encoding="utf-8"))) + 108
            write_json(layout / "added_tokens.json", {"BRANDX": rows})
            grow(layout, rows + 1)
    found = import_path(layout, source_lang="en", target_lang="de")
    theirs = read_tokenizer(layout)
    assert found.bundle.tokenizer.languages == theirs.lang_code_to_id
    theirs.src_lang = "en"
    for line in ["Ein Hund rennt.", "Ein BRANDX rennt."]:
        assert found.bundle.tokenizer.encode_sources([line], "de", "en") == [theirs(line)["input_ids"]]
    assert found.prove is not None
    assert found.prove(["a dog"]) is None


@pytest.mark.parametrize("layout", ["marian"], indirect=True)
def test_sampling_of_segmentations_is_named_and_not_taken_over(layout):
    change(layout / "tokenizer_config.json", sp_model_kwargs={"enable_sampling": True, "nbest_size": -1, "alpha": 0.1})
    assert [note for note in import_path(layout).notes if note.startswith("sp_model_kwargs is not taken over")]


def test_the_languages_of_m2m100_are_those_of_its_tokenizer_class():
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    from clearhead.interop.vocabularies.huggingface_files import _M2M100_CODES

    assert {name: codes.split() for name, codes in _M2M100_CODES.items()} == FAIRSEQ_LANGUAGE_CODES
