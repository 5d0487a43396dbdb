"""The Python of docs/from-transformers.md runs, and its commands are understood."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.bundle import Bundle, save_bundle
from clearhead.cli.main import run
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.model import Transformer
from clearhead.pipelines import PipelineArguments
from clearhead.tokenizers import Tokenizer
from clearhead.translation.translator import Translator

PAGE = (Path(__file__).parents[2] / "docs" / "from-transformers.md").read_text(encoding="utf-8")
HERE, NAMES, THERE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TEXTS = ["Ein Hund rennt.", "Zwei Hunde."]


@pytest.fixture
def translator(tmp_path, monkeypatch):
    """Make the model that the command of the page exports, and go where it is."""
    monkeypatch.chdir(tmp_path)
    tokenizer = Tokenizer.train([*TEXTS, "A dog runs.", "Two dogs."] * 3, vocab_size=290)
    shape = {"d_model": 8, "d_ff": 11, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    torch.manual_seed(3)
    model = Transformer(ModelConfig(**{**tokenizer.model_settings, **shape, "max_positions": 64})).eval()
    decode = DecodeConfig(beam_size=4, length_penalty=1.0, length_penalty_form="power", extra_length=9)
    save_bundle(tmp_path / "runs" / "de-en", Bundle(model, tokenizer, decode), card="# Small\n")
    return Translator.load("runs/de-en", device="cpu")


def exec_(code: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    exec(code, values)
    return values


@pytest.mark.filterwarnings("ignore::UserWarning")  # what transformers does otherwise
def test_the_python_runs_on_a_directory_of_transformers(translator, monkeypatch):
    command = re.search(r"^clearhead (export .*)", PAGE, re.MULTILINE)
    with pytest.raises(SystemExit) as ended:
        run(command[1].replace("de-en-hf", "opus-mt-de-en").split())
    assert not ended.value.code
    translate = exec_(HERE)["translate"]
    how = {"beam_size": 4, "split": "never", "familiar": False}
    found = translator.translate(TEXTS, num_best=2, **how)
    assert translate(TEXTS) == [{"translation_text": one.text} for one in found]
    Path("opus-mt-de-en").rename("de-en-hf")
    assert len(exec_(THERE)["texts"]) == len(TEXTS)


@pytest.mark.usefixtures("translator")
def test_the_names_of_the_translator_are_right():
    found = exec_(NAMES)["found"]
    assert found.alternatives[0].text == found.text
    assert 0.0 <= found.quality <= 1.0
    named = re.findall(r"`sampling=(clearhead\.\w+\(.*?\))`", PAGE)
    drawn, cut = (eval(sampling, {"clearhead": clearhead}) for sampling in named)
    assert (drawn.top_k, cut.epsilon) == (50, 0.02)
    assert "batch_tokens" in DecodeConfig.model_fields


def test_every_argument_is_on_the_page():
    told = set(re.findall(r"`(\w+)(?:=.*?)?`", PAGE))
    assert set(PipelineArguments.model_fields) <= told
