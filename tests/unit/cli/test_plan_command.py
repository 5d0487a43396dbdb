"""`clearhead plan`: text, JSON and page; and what it refuses."""

from __future__ import annotations

import json
import re

import pytest

from clearhead.cli import plan as module
from clearhead.paper.counts import forward_flops, parameter_count
from clearhead.training import memory
from commands import clearhead
from small_runs import QUICK_FLAGS, write_numbers

SMALL = """preset = "tiny"
[model]
d_model = 12
d_ff = 29
num_heads = 3
num_encoder_layers = 2
num_decoder_layers = 1
[tokenizer]
vocab_size = 370
[train]
max_steps = 40
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    machine = "flops = 1e12\nmemory = 8e7\nbandwidth = 1e11\nprice = 2\n"
    (tmp_path / "machine.toml").write_text(machine, encoding="utf-8")
    return tmp_path


def test_json_has_the_counts_of_the_paper_and_the_page_shows_them(files, capsys):
    assert clearhead("plan", "small.toml", "--machine", "machine.toml", "--gpus", "3", "--json", "-o", "p.html") == 0
    found = json.loads(capsys.readouterr().out)
    model = module._layers("small.toml", []).with_("fixed", {"model.vocab_size": 370}).config.model
    assert found["parameters"] == parameter_count(model)
    forward = forward_flops(model, 25, 25) / 25
    assert found["flops_per_token"] == {"forward": pytest.approx(forward), "backward": pytest.approx(2 * forward)}
    assert found["memory"]["peak"] == sum(found["memory"]["at_peak"].values())
    assert (found["steps"], found["batch_tokens"], found["gpus"]) == (40, 25_000, 3)
    assert [len(scales) for scales in found["curve"].values()] == [12, 12]
    assert found["curve"]["DDP"][0]["price"] > 0
    page = (files / "p.html").read_text(encoding="utf-8")
    assert f"{found['parameters']:,} parameters" in page
    assert page.count("<svg") == 2
    found_places = re.findall(r'cx="([\d.]+)"[^>]*><title>DDP, GPUs ([\d,]+): ', page)
    places = {int(gpus.replace(",", "")): float(across) for across, gpus in found_places}
    steps = [places[2 * gpus] - places[gpus] for gpus in (1, 2, 4, 32, 512)]
    assert min(steps) == pytest.approx(max(steps), abs=0.2)
    assert min(steps) > 30
    assert all(text in page for text in found["assumptions"])


def test_the_table_names_the_parts_and_both_ways_to_share_a_step(files, capsys):
    assert clearhead("plan", "small.toml", "--machine", "machine.toml", "--gpus", "2", "--set", "train.shard=true") == 0
    said = capsys.readouterr().out
    for text in (
        "  activations  ",
        "2 GPUs, DDP",
        "2 GPUs, FSDP",
        "largest part",
        "price ",
        "\n1,024  ",
        "\nassuming\n",
    ):
        assert text in said


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["tinny"], 1, "'tinny' is neither a preset nor a TOML file; did you mean 'tiny'?"),
        (["no.toml"], 1, "cannot read the configuration no.toml: No such file or directory"),
        (["tiny", "--machine", "no.toml"], 1, "cannot read the configuration no.toml: No such file or directory"),
        (["tiny", "--set", "train.batch_tokens=0"], 1, "train.batch_tokens = 0: Input should be greater than 0"),
        (["tiny", "--gpus", "0"], 2, "Invalid value for '--gpus'"),
        (["tiny", "--num-pairs", "-1"], 2, "Invalid value for '--num-pairs'"),
        (["tiny", "-o", "plan.svg"], 1, "--output plan.svg: the page is a file whose name ends in .html"),
        (["tiny", "-o", "-"], 1, "--output -: the page is a file whose name ends in .html"),
        (["tiny", "-o", "small.toml/plan.html"], 1, "cannot write small.toml/plan.html"),
        (["tiny", "--length", "nan"], 2, "Invalid value for '--length'"),
    ],
)
def test_wrong_input_is_refused_with_one_line(files, capsys, arguments, status, problem):
    assert clearhead("plan", *arguments) == status
    assert problem in " ".join(capsys.readouterr().err.split())


def test_a_page_overwrites_no_settings(files, capsys):
    (files / "small.html").write_text(SMALL, encoding="utf-8")
    assert clearhead("plan", "small.html", "--machine", "machine.toml", "-o", "./small.html") == 1
    assert "./small.html is an input as well, and would be overwritten" in capsys.readouterr().err
    assert (files / "small.html").read_text(encoding="utf-8") == SMALL


def test_train_refuses_what_does_not_fit_before_it_starts(files, monkeypatch, capsys):
    monkeypatch.setattr(memory, "device_memory", lambda _: 1_000)
    pairs = write_numbers(files / "numbers.tsv")
    assert clearhead("train", "--pairs", str(pairs), "-o", "run", *QUICK_FLAGS) == 1
    assert "a step needs about" in capsys.readouterr().err
    assert not (files / "run" / "checkpoints" / "step-00000002").exists()
