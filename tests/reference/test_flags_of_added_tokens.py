"""Added tokens that take white space, or are text within a word, are found in a text as in transformers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from published import FORMS, PUBLISHED, Published, read_tokenizer
from test_added_tokens import grow

from clearhead.errors import ConfigError
from clearhead.interop.export_model import export_directory
from clearhead.interop.import_model import import_path
from clearhead.interop.imported import as_vocabulary
from every_run import slow

LINES = [
    "Ein BRANDX rennt.",
    "Ein  BRANDX  rennt",
    "aBRANDXb",
    "BRANDX BRANDX",
    "BRANDXBRANDX",
    "(BRANDX)",
    "a_BRANDX",
    "der BRANDX-2 BRANDX",
]
FLAGS = ["lstrip", "rstrip", "single_word"]
FAST = {"marian", "m2m100", "t5"}
FROM_PIECES = {"spiece.model", "sentencepiece.bpe.model", "source.spm"}


def with_added(layout: Published, *tokens: tokenizers.AddedToken) -> Any:
    """Add tokens to a directory, and return its tokenizer, which is read from a sentencepiece model if there is one."""
    directory, tokenizer = layout.directory, read_tokenizer(layout.directory)
    has_pieces = {path.name for path in directory.iterdir()} & FROM_PIECES
    tokenizer.add_tokens([*tokens])
    decoder = {number: token for number, token in tokenizer.added_tokens_decoder.items() if token in tokens}
    tokenizer.save_pretrained(directory)
    if has_pieces and (directory / "tokenizer.json").exists() and layout.source_lang != "eng_Latn":
        (directory / "tokenizer.json").unlink()
        change_settings(directory, decoder)
    grow(directory, max(decoder) + 1)
    theirs = read_tokenizer(directory)
    if layout.source_lang is not None:
        theirs.src_lang = layout.source_lang
    return theirs


def change_settings(directory: Path, decoder: dict[int, tokenizers.AddedToken]) -> None:
    from published import write_json

    from clearhead.errors import ModelError
    from clearhead.files import read_json

    values = read_json(directory / "tokenizer_config.json", ModelError)
    names = ("content", "lstrip", "rstrip", "single_word", "normalized", "special")
    there = {str(number): {name: getattr(token, name) for name in names} for number, token in decoder.items()}
    write_json(directory / "tokenizer_config.json", {**values, "added_tokens_decoder": there})


@pytest.mark.parametrize(
    ("layout", "flag"),
    [case if case[0] in FAST else slow(*case) for case in itertools.product([*PUBLISHED, *FORMS], FLAGS)],
    indirect=["layout"],
)
def test_flags_of_added_tokens_count_as_in_transformers(layout, flag):
    theirs = with_added(layout, tokenizers.AddedToken("BRANDX", **{flag: True}), tokenizers.AddedToken("BRANDX-2"))
    target = layout.target_langs[0]
    found = import_path(layout.directory, source_lang=layout.source_lang, target_lang=target)
    begin = f"{layout.token.format(target)} " if layout.heads_source else ""
    for line in LINES:
        expected = theirs(begin + line)["input_ids"]
        assert found.bundle.tokenizer.encode_sources([line], target, layout.source_lang) == [expected], line


@pytest.mark.parametrize(
    "layout", ["marian", "m2m100", "t5", *map(slow, ["pegasus", "mbart-50", "bert-generation"])], indirect=True
)
@pytest.mark.parametrize("to", ["hf", "ctranslate2", "onnx"])
def test_exports_read_and_write_added_tokens_as_here(layout, to, tmp_path):
    tokens = [
        tokenizers.AddedToken("BRANDX", lstrip=True),
        tokenizers.AddedToken("BRANDY", rstrip=True),
        tokenizers.AddedToken("BRANDZ", single_word=True),
    ]
    with_added(layout, *tokens)
    target = layout.target_langs[0]
    bundle = import_path(layout.directory, source_lang=layout.source_lang, target_lang=target).bundle
    _, _, notes = export_directory(bundle, tmp_path / "out", to, ["a dog"])
    back = import_path(tmp_path / "out").bundle.tokenizer
    assert back.sha256 == bundle.tokenizer.sha256
    theirs = read_tokenizer(tmp_path / "out")
    if layout.source_lang is not None:
        theirs.src_lang = layout.source_lang
    begin = f"{layout.token.format(target)} " if layout.heads_source else ""
    for line in [name.join(line.split("BRANDX")) for line in LINES for name in ("BRANDX", "BRANDY", "BRANDZ")]:
        [ids] = bundle.tokenizer.encode_sources([line], target, layout.source_lang)
        assert theirs(begin + line)["input_ids"] == ids, line
    if to == "ctranslate2":
        assert [note for note in notes if "BRANDX, BRANDY, BRANDZ" in note and "AutoTokenizer" in note]


@pytest.mark.parametrize("layout", ["marian"], indirect=True)
@pytest.mark.parametrize("to", ["hf", "ctranslate2", "onnx"])
def test_added_tokens_that_no_other_library_reads_are_not_exported(layout, to, tmp_path, monkeypatch):
    with_added(layout, tokenizers.AddedToken("BRANDX"))
    bundle = import_path(layout.directory).bundle
    file = bundle.tokenizer.file
    small = file.model_copy(update={"source": file.source.model_copy(update={"lowercase": True})})
    bundle.tokenizer = as_vocabulary(small, tmp_path)
    with pytest.raises(ConfigError, match=r"no other library reads its added tokens \(BRANDX\) as here") as raised:
        export_directory(bundle, tmp_path / "out", to, ["a dog"])
    assert "--to" not in str(raised.value)
    if to != "onnx":  # nor where the settings are refused
        monkeypatch.setattr("clearhead.interop.huggingface.writer.exportable_as", lambda config: [])
        monkeypatch.setattr("clearhead.interop.ctranslate2.writer.unknown_settings", lambda *_: ["model.norm = 'no'"])
        with pytest.raises(ConfigError) as raised:
            export_directory(bundle, tmp_path / "out", to, ["a dog"])
        assert "--to" not in str(raised.value)
