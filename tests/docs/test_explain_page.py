"""The commands and Python of docs/explain.md and docs/explanation-json.md run; the latter documents every key."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.bundle import Bundle, save_bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.inspection.beam_tree import FATES
from clearhead.inspection.head_statistics import STATISTICS
from clearhead.model import Transformer
from clearhead.tokenizers import Tokenizer
from commands import clearhead
from every_run import one_in

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "explain.md").read_text(encoding="utf-8")
SCHEMA = (DOCS / "explanation-json.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^clearhead explain .*", PAGE, re.MULTILINE)
GERMAN, ENGLISH = "Ein Hund rennt durch den Schnee.", "A dog runs through the snow."


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Make the models and files that the commands name, and go where they are."""
    monkeypatch.chdir(tmp_path)
    tokenizer = Tokenizer.train([GERMAN, ENGLISH] * 3, vocab_size=290)
    shape = {"d_model": 8, "d_ff": 11, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    for name in ("de-en", "other"):
        torch.manual_seed(len(name))
        model = Transformer(ModelConfig(**{**tokenizer.model_settings, **shape})).eval()
        decode = DecodeConfig(beam_size=2, extra_length=2)
        save_bundle(tmp_path / "runs" / name, Bundle(model, tokenizer, decode), card="# Small\n")
    (tmp_path / "val.de").write_text(f"{GERMAN}\n", encoding="utf-8")
    (tmp_path / "val.en").write_text(f"{ENGLISH}\n", encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("fonts", "models")
@pytest.mark.parametrize("command", one_in(2, COMMANDS))
def test_the_commands_run(command, tmp_path, capsys):
    words = shlex.split(command)[1:]
    if words[-1].endswith((".svg", ".png")) and importlib.util.find_spec("matplotlib") is None:
        pytest.skip("pictures need matplotlib")
    assert clearhead(*words) == 0
    if "-o" in words:
        assert (tmp_path / words[words.index("-o") + 1]).stat().st_size > 1_000
    else:
        assert GERMAN in capsys.readouterr().out


def test_the_walk_is_what_the_command_prints(capsys):
    example = PAGE.partition("## Every line of code")[2].split("```")[1].strip().splitlines()
    model = DOCS.parent / "tests" / "compat" / "0.1.0" / "run"
    clearhead("explain", model, example[0].removeprefix("source").strip(), "--walk")
    printed = capsys.readouterr().out.splitlines()
    assert len(example) > 10
    assert [line for line in example if line not in [*printed, "..."]] == []


def test_the_summary_is_what_the_command_prints_within_two_percent(capsys):
    [shown] = re.findall(r"^```text\n(source .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    model = DOCS.parent / "tests" / "compat" / "0.1.0" / "run"
    clearhead("explain", model, "null drei")
    number = re.compile(r"-?\d+(?:\.\d+)?")
    texts = [re.sub(r"\s+", " ", text.strip()) for text in (shown, capsys.readouterr().out)]
    assert number.sub("#", texts[0]) == number.sub("#", texts[1])
    expected, printed = ([float(found) for found in number.findall(text)] for text in texts)
    assert printed == pytest.approx(expected, rel=0.02, abs=0.2)


@pytest.mark.usefixtures("models")
def test_the_python_runs():
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    values: dict[str, Any] = {}
    exec(code, values)  # what the page says
    assert values["explanation"].source == GERMAN


@pytest.mark.usefixtures("models")
def test_every_key_of_the_json_is_documented(capsys):
    for words in (["--ablate", "--source", "val.de", "--reference", "val.en"], ["--compare", "runs/other"]):
        clearhead("explain", "runs/de-en", GERMAN, "--format", "json", *words)
        for key in keys(json.loads(capsys.readouterr().out)):
            assert f"`{key}`" in SCHEMA, key
    for described in (STATISTICS, FATES):
        for name, meaning in described.items():
            assert "| `{}` | {} |".format(name, meaning.replace("|", r"\|")) in SCHEMA


def test_the_python_for_the_json_prints_what_the_page_says(tmp_path, monkeypatch, capsys):
    model = Path(__file__).parents[1] / "compat" / "0.1.0" / "run"
    monkeypatch.chdir(tmp_path)
    clearhead("explain", model, "null drei", "-o", "explanation.json")
    capsys.readouterr()
    (code, printed), *_ = re.findall(r"^```python\n(.*?)^```.*?^```text\n(.*?)^```", SCHEMA, re.MULTILINE | re.DOTALL)
    exec(code, {})
    tokens = [line.split("' ")[0] for line in printed.splitlines()]  # the last digits depend on the machine
    assert [line.split("' ")[0] for line in capsys.readouterr().out.splitlines()][1:] == tokens[1:]


def keys(value: Any) -> set[str]:
    """Return all keys of objects in a JSON value."""
    if isinstance(value, list):
        return {key for one in value[:1] for key in keys(one)}
    return {*value, *(key for one in value.values() for key in keys(one))} if isinstance(value, dict) else set()
