"""Tokens added to a vocabulary in fine-tuning are one id each, in every layout, as in Hugging Face transformers.

`tokenizer.add_tokens` adds words; `add_special_tokens` adds markers, which a text may contain if the import is told so
(`--markers`). Tokens that frame a text or name a language are text in a text, whatever is asked for.
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from published import FORMS, PUBLISHED, Published, read_tokenizer, texts, write_json

from clearhead.errors import ConfigError, ModelError
from clearhead.interop.export_model import export_directory
from clearhead.interop.import_model import import_path
from clearhead.tokenizers.learned import load_vocabulary
from every_run import slow

WORDS, MARKERS = ["BRANDX", "BRANDX-2"], ["<hl>", "<sep>"]
LINES = ["Ein BRANDX rennt.", "BRANDX", "BRANDX-2 BRANDX, a BRANDX!", "aBRANDXb"]
MARKED = ["<hl> Ein Hund <hl> rennt <sep> Wiese", "Ein<hl>BRANDX <sep>"]


def bert(directory: Path) -> Published:
    """Write an encoder alone, with vocab.txt."""
    made = tokenizers.BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator(texts(), vocab_size=300, show_progress=False)
    made.save_model(str(directory))
    write_json(directory / "tokenizer_config.json", {"do_lower_case": True})
    shape = {"vocab_size": made.get_vocab_size(), "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.BertConfig(**shape, intermediate_size=64, max_position_embeddings=64)
    transformers.BertModel(config).save_pretrained(directory)
    return Published(directory)


def gpt2(directory: Path) -> Published:
    """Write a decoder alone, with vocab.json and merges.txt."""
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(texts(), vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False)
    made.save_model(str(directory))
    shape = {"vocab_size": made.get_vocab_size(), "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64}
    config = transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(directory)
    return Published(directory)


ALONE = {"bert": bert, "gpt2": gpt2}
LAYOUTS = [*PUBLISHED, *FORMS, *ALONE]
FAST = {"marian", "bart", "t5", "mbart-50", "m2m100", "bert"}


@pytest.fixture
def layout(request: pytest.FixtureRequest, directories: Any, tmp_path: Path) -> Published:
    """Return a copy of a published directory that may be changed."""
    copy = tmp_path / "theirs"
    if request.param in ALONE:
        copy.mkdir()
        torch.manual_seed(1)
        return ALONE[request.param](copy)
    published = directories(request.param)
    shutil.copytree(published.directory, copy)
    return Published(copy, *list(vars(published).values())[1:])


def grow(directory: Path, size: int) -> None:
    """Give the model a row for every token, as `resize_token_embeddings` does."""
    values = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    generation = directory / "generation_config.json"
    kept = generation.read_bytes() if generation.exists() else None
    kinds: dict[str, Any] = {
        "encoder-decoder": transformers.EncoderDecoderModel,
        "bert": transformers.BertModel,
        "gpt2": transformers.GPT2LMHeadModel,
    }
    model = kinds.get(values["model_type"], transformers.AutoModelForSeq2SeqLM).from_pretrained(directory)
    if values["model_type"] == "encoder-decoder":
        model.encoder.resize_token_embeddings(size)
        model.decoder.resize_token_embeddings(size)
        model.config.encoder.vocab_size = model.config.decoder.vocab_size = size
    elif size > model.config.vocab_size:
        model.resize_token_embeddings(size)
    model.save_pretrained(directory)
    if kept is not None:
        generation.write_bytes(kept)


def save_in_old_files(directory: Path, tokenizer: Any, special: list[str]) -> None:
    """Name added tokens as version 4 did, in added_tokens.json alone and special_tokens_map.json."""
    added = {token: tokenizer.convert_tokens_to_ids(token) for token in [*WORDS, *special]}
    write_json(directory / "added_tokens.json", added)
    path = directory / "special_tokens_map.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if special:
        write_json(path, {**known, "extra_special_tokens": [*known.pop("additional_special_tokens", []), *special]})


@pytest.mark.parametrize(
    ("layout", "form"),
    [
        name if name[0] in FAST else slow(*name)
        for name in itertools.product(LAYOUTS, ["old files", "save_pretrained"])
        if name != ("m2m100", "old files")  # version 5 gives languages other ids beside added_tokens.json
    ],
    indirect=["layout"],
)
def test_added_tokens_are_encoded_and_decoded_as_one_id(layout, form):
    directory, tokenizer = layout.directory, read_tokenizer(layout.directory)
    tokenizer.add_tokens(WORDS)
    if form == "old files":
        save_in_old_files(directory, tokenizer, [])
    else:
        tokenizer.save_pretrained(directory)
    grow(directory, max(map(tokenizer.convert_tokens_to_ids, WORDS)) + 1)
    theirs = read_tokenizer(directory)
    if layout.source_lang is not None:
        theirs.src_lang = layout.source_lang
    asked = {"source_lang": layout.source_lang, "target_lang": layout.target_langs[0]}
    number = theirs.convert_tokens_to_ids(WORDS[0])
    found = import_path(directory, **asked)
    ours = found.bundle.tokenizer
    begin = f"{layout.token.format(layout.target_langs[0])} " if layout.heads_source else ""
    for line in LINES:
        expected = theirs(begin + line)["input_ids"]
        assert ours.encode_sources([line], layout.target_langs[0], layout.source_lang) == [expected], line
        assert number in expected
    if number < ours.vocab_size:  # the target may be numbered apart
        assert ours.decode([number]) == theirs.decode([number])
    assert found.prove(["a dog"]) in (None, "the same")


@pytest.mark.parametrize("layout", [name if name in FAST else slow(name) for name in LAYOUTS], indirect=True)
def test_markers_are_text_unless_they_are_named(layout):
    directory, tokenizer = layout.directory, read_tokenizer(layout.directory)
    tokenizer.add_tokens(WORDS)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKERS}, replace_extra_special_tokens=False)
    tokenizer.save_pretrained(directory)
    grow(directory, max(map(tokenizer.convert_tokens_to_ids, [*WORDS, *MARKERS])) + 1)
    theirs = read_tokenizer(directory)
    if layout.source_lang is not None:
        theirs.src_lang = layout.source_lang
    asked = {"source_lang": layout.source_lang, "target_lang": layout.target_langs[0]}
    text, read = import_path(directory, **asked), import_path(directory, **asked, markers=MARKERS)
    assert [note for note in text.notes if "<hl>,<sep>" in note]
    assert not [note for note in read.notes if "<hl>" in note]
    numbers = set(map(theirs.convert_tokens_to_ids, MARKERS))
    begin = f"{layout.token.format(layout.target_langs[0])} " if layout.heads_source else ""
    for line in MARKED:
        expected = theirs(begin + line)["input_ids"]
        of_text, of_read = (
            one.bundle.tokenizer.encode_sources([line], layout.target_langs[0], layout.source_lang)
            for one in (text, read)
        )
        assert of_read == [expected], line
        assert numbers <= set(expected)
        assert not numbers & set(of_text[0])
    assert [one.prove(["a dog"]) for one in (text, read)] == [None, None]
    read.bundle.tokenizer.save(directory / "vocabulary.json")
    assert load_vocabulary(directory / "vocabulary.json").added_tokens.keys() >= {*WORDS[:1], *MARKERS} - {"BRANDX"}
    assert read.bundle.tokenizer.decode([*numbers]) == ""  # as with skip_special_tokens


@pytest.mark.parametrize("layout", [*PUBLISHED, *FORMS], indirect=True)
def test_frame_and_language_tokens_in_a_text_are_text(layout):
    asked = {"source_lang": layout.source_lang, "target_lang": layout.target_langs[0]}
    file = import_path(layout.directory, **asked).bundle.tokenizer
    control = {*file.languages.values(), file.pad_id, file.bos_id, file.eos_id}
    names = [name for name in file.source_pieces(sorted(control)) if name.strip()]
    for name in [*names, "</s>", "en_XX", ">>deu<<", "__de__", "deu_Latn"]:
        [plain], [ids] = (
            file.encode_sources([text], layout.target_langs[0], layout.source_lang) for text in ("x", f"x {name} x")
        )
        framed = [token for token in plain if token in control]
        assert [token for token in ids if token in control] == framed, name


@pytest.mark.parametrize("layout", ["mbart-50", "m2m100", "marian into several languages"], indirect=True)
def test_language_tokens_are_rejected_as_markers(layout):
    name = {"m2m_100": "__de__", "mbart": "de_DE", "marian": ">>deu<<"}[
        json.loads((layout.directory / "config.json").read_text(encoding="utf-8"))["model_type"]
    ]
    with pytest.raises(ConfigError, match="frames a text or names a language"):
        import_path(layout.directory, source_lang=layout.source_lang, markers=[name])


@pytest.mark.parametrize("layout", ["marian", "t5", slow("m2m100"), slow("pegasus"), "bart"], indirect=True)
def test_added_tokens_and_markers_survive_export_and_import(layout, tmp_path):
    directory, tokenizer = layout.directory, read_tokenizer(layout.directory)
    tokenizer.add_tokens(WORDS)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKERS}, replace_extra_special_tokens=False)
    number = tokenizer.convert_tokens_to_ids("BRANDX")
    tokenizer.save_pretrained(directory)
    grow(directory, number + 4)
    asked = {"source_lang": layout.source_lang, "target_lang": layout.target_langs[0]}
    for name in ("spiece.model", "sentencepiece.bpe.model"):
        if (directory / name).exists():  # their tokenizer.json would hide the sentencepiece model
            (directory / "tokenizer.json").unlink(missing_ok=True)
            added = {token: tokenizer.convert_tokens_to_ids(token) for token in [*WORDS, *MARKERS]}
            write_json(directory / "added_tokens.json", added)
    there = import_path(directory, **asked, markers=MARKERS).bundle
    _, compared, _ = export_directory(there, tmp_path / "out", "hf", ["a dog"])
    assert "1 sentences have the same tokens" in compared
    back = import_path(tmp_path / "out").bundle
    assert back.tokenizer.sha256 == there.tokenizer.sha256
    theirs = read_tokenizer(tmp_path / "out")
    assert number in theirs("Ein BRANDX rennt.")["input_ids"]


@pytest.mark.parametrize("layout", ["t5"], indirect=True)
def test_an_unknown_marker_is_an_error(layout):
    with pytest.raises(ConfigError, match="the model has no token '<h1>'"):
        import_path(layout.directory, markers=["<h1>"])


@pytest.mark.parametrize("layout", ["marian"], indirect=True)
@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"BRANDX": -1}, "is damaged: it must give every added token"),
        ({"BRANDX": "7"}, None),
        ({"": 400}, "is damaged: it must give every added token"),
        ({"BRANDX": 10**12}, "is damaged: it must give every added token"),
        ({"BRANDX": 5}, "has the id of the piece"),
    ],
)
def test_damaged_added_tokens_are_refused(layout, added, message):
    write_json(layout.directory / "added_tokens.json", added)
    with pytest.raises(ModelError, match=message or "added token"):
        import_path(layout.directory)
