"""`clearhead demo`: the whole job, on a corpus and with a model made smaller than the real ones."""

from __future__ import annotations

import importlib
import itertools
import re

import pytest

from clearhead.config.nested import merge
from clearhead.formats import read_pairs
from clearhead.training import run as training
from clearhead.training.run import train_from_values
from clearhead.translation.translator import Translator
from commands import clearhead


@pytest.fixture
def smaller(monkeypatch) -> None:
    module = importlib.import_module("clearhead.cli.demo")
    for name, count in {"_PAIRS": 1_500, "_VALID": 3, "_TEST": 7, "_SHOWN": 5, "_STEPS": 4}.items():
        monkeypatch.setattr(module, name, count)
    shape = {"d_model": 16, "d_ff": 23, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
    smaller = {"model": shape, "tokenizer": {"vocab_size": 600}}

    def train_smaller(values, *given, **more):
        return train_from_values(merge(values, smaller), *given, **more)

    monkeypatch.setattr(training, "train_from_values", train_smaller)


@pytest.mark.usefixtures("smaller")
def test_demo_trains_translates_and_prints_the_next_commands(tmp_path, capsys, monkeypatch):
    clock = itertools.count(step=0.2)  # every look at it takes a fifth of a second
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    run = tmp_path / "a demo"
    assert clearhead("demo", "--out", run, "--minutes", "0.1") == 0
    out, err = capsys.readouterr()
    assert re.search(r"^Exact match on 7 held-out sentences: \d+\.\d %$", out, re.MULTILINE)
    assert f"clearhead translate '{run}'" in out
    assert f"model {run / 'model'}, report {run / 'report.html'}" in err
    assert out.endswith(
        f"what every head and every step did with '<2fr> Thursday, May 3, 2018': open {run / 'explain.html'}\n"
    )
    assert "Thursday, May 3, 2018" in (run / "explain.html").read_text(encoding="utf-8")
    assert "finished by max_minutes" in err
    held_out = {pair.source: pair.target for pair in read_pairs([str(run / "corpus" / "test.tsv")])}
    assert len(held_out) == 7
    shown = [line[2:] for line in out.splitlines() if re.match(r"  <2\w+> ", line)]
    assert len(shown) == 5
    assert set(shown) <= set(held_out)
    assert all(held_out[source] in out for source in shown)
    trained_on = {pair.source for pair in read_pairs([str(run / "corpus" / "train.tsv")])}
    assert trained_on.isdisjoint(held_out)
    assert (run / "report.html").exists()
    assert Translator.load(run, device="cpu").bundle.decode.target_lang == "de"

    assert clearhead("demo", "--out", run, "--minutes", "0.1") == 0
    again = capsys.readouterr()
    assert "this run is finished (max_minutes)" in again.err
    assert again.out == out


@pytest.mark.usefixtures("smaller")
def test_demo_makes_the_same_number_of_steps_on_every_machine(tmp_path, capsys):
    assert clearhead("demo", "--out", tmp_path / "demo") == 0
    assert "finished by max_steps after 4 steps" in capsys.readouterr().err


@pytest.mark.usefixtures("smaller")
def test_demo_rejects_and_keeps_a_directory_that_is_not_a_run(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("precious")
    assert clearhead("demo", "--out", tmp_path) == 1
    assert "is not empty and is not a run (it holds thesis.txt)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.usefixtures("smaller")
def test_a_corpus_of_somebody_else_is_not_overwritten(tmp_path, capsys):
    path = tmp_path / "corpus" / "train.tsv"
    path.parent.mkdir()
    path.write_text("ein Satz\ta sentence\n")
    assert clearhead("demo", "--out", tmp_path) == 1
    assert f"{path} is there and is not this demo's corpus" in capsys.readouterr().err
    assert path.read_text() == "ein Satz\ta sentence\n"


def test_demo_rejects_zero_minutes(tmp_path, capsys):
    assert clearhead("demo", "--out", tmp_path / "demo", "--minutes", "0") == 2
    assert "--minutes" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
