"""`export --to web` refuses what a browser cannot run, before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearhead.browser import writer
from clearhead.browser.writer import write_web
from clearhead.decoding import SearchOptions, decode, make_engine
from clearhead.errors import ClearheadError
from clearhead.translation.golden import vocabulary_sources
from clearhead.translation.translator import Translator

SIZES = {"d_model": 64, "num_heads": 2, "d_ff": 128, "num_encoder_layers": 1, "num_decoder_layers": 1}


def refused(bundle: Any, path: Any, says: str, precision: Any = "int8") -> None:
    with pytest.raises(ClearheadError, match=says):
        write_web(bundle, path / "page", "page", precision, single_file=False)
    assert list(path.iterdir()) == []


def test_write_web_rejects_models_that_the_page_cannot_compute(make_bundle, tmp_path):
    refused(make_bundle(), tmp_path, "for int8 the compiled core takes d_model, d_ff and num_heads")
    refused(
        make_bundle(positions="relative", **SIZES), tmp_path, "the page does not compute model.positions = 'relative'"
    )


def test_a_vocabulary_of_another_library_is_refused(make_bundle, tmp_path):
    class Foreign:
        kind = "sentencepiece"

    bundle = replace(make_bundle(**SIZES), tokenizer=Foreign())
    refused(bundle, tmp_path, "this one is sentencepiece, imported from another library")


def test_a_model_that_is_too_large_is_refused(make_bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MOST_BYTES", 1_000)
    refused(make_bundle(**SIZES), tmp_path, "and a page holds at most 0 MB; choose --precision int8")


def test_an_installation_without_the_core_says_what_would_help(make_bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "FORMS", ("none",))
    refused(make_bundle(**SIZES), tmp_path, "this installation has no core for browsers")


def test_a_page_without_sentences_to_check_is_refused(make_bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "make_golden", lambda translator: [])
    refused(replace(make_bundle(**SIZES), golden=[]), tmp_path, "the page would have nothing to check")


def test_golden_sentences_of_a_page_are_those_of_the_translator(make_bundle):
    bundle = make_bundle(**SIZES)
    translator = Translator(bundle)
    sources = vocabulary_sources(bundle.tokenizer, 20, is_tagged=False)
    cut = decode(make_engine(bundle.weights), bundle.tokenizer.encode_sources(sources), SearchOptions(bundle.decode))
    assert any("\N{REPLACEMENT CHARACTER}" in bundle.tokenizer.decode(best.tokens) for best, *_ in cut)
    for source in sources:
        [golden] = writer._golden(replace(bundle, golden=[{"source": source, "text": ""}]))
        assert golden["text"] == translator.translate([source], raw=True)[0].text


def test_an_existing_path_is_refused(make_bundle, tmp_path):
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "file").touch()
    with pytest.raises(ClearheadError, match="is there already"):
        write_web(make_bundle(**SIZES), tmp_path / "page", "page", "int8", single_file=False)


@pytest.mark.parametrize("single_file", [False, True])
def test_an_interrupted_export_leaves_nothing(make_bundle, tmp_path, monkeypatch, single_file):
    def interrupt(path: Path, content: bytes) -> int:
        path.write_text("a beginning")
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_web(make_bundle(**SIZES), tmp_path / "page.html", "page", "int8", single_file=single_file)
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_alone_is_refused(make_bundle, tmp_path):
    bundle = make_bundle(**{**SIZES, "num_decoder_layers": 0})
    refused(bundle, tmp_path, "a model without encoder or decoder does not translate")
