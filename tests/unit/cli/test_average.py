"""`clearhead average`: a model from the last checkpoints of a run."""

from __future__ import annotations

import re

import pytest

from clearhead.bundle import load_bundle
from commands import clearhead


def test_the_last_checkpoints_become_a_model(finished_run, tmp_path, capsys):
    output = tmp_path / "a model"
    assert clearhead("average", finished_run, "--last", 2, "-o", output) == 0
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith(f"clearhead: {output}: average of step-00000030, step-00000040, validation")
    assert re.match(rf"clearhead: (better than|worse than|as good as) {finished_run / 'model'}: ", lines[1])
    scores = [re.search(r"validation BLEU \d+\.\d\d, chrF (\S+), perplexity (\d+\.\d\d)$", line) for line in lines[:2]]
    (chrf, perplexity), (best_chrf, best_perplexity) = ([float(score) for score in found.groups()] for found in scores)
    is_better = (chrf, -perplexity) > (best_chrf, -best_perplexity)
    assert lines[1].startswith("clearhead: better than") == is_better
    assert lines[2:] == [f"clearhead: averaged step-00000030, step-00000040 into {output}"]
    assert load_bundle(output).info["weights"] == "average of step-00000030, step-00000040"
    assert "clearhead translate 'a model' < input.txt" in (output / "README.md").read_text(encoding="utf-8")
    assert clearhead("verify", output) == 0


def test_average_without_last_averages_as_many_checkpoints_as_the_run(finished_run, tmp_path, capsys):
    assert clearhead("average", finished_run, "-o", tmp_path / "model") == 0
    assert "averaged step-00000020, step-00000030, step-00000040" in capsys.readouterr().err


def test_a_model_is_replaced_only_if_that_is_asked_for(finished_run, tmp_path, capsys):
    output = tmp_path / "model"
    average = ["average", finished_run, "-o", output, "--device", "cpu"]
    assert clearhead(*average, "--last", 2) == 0
    capsys.readouterr()
    assert clearhead(*average, "--last", 3) == 1
    err = capsys.readouterr().err
    assert err.startswith(
        f"clearhead: there is a model at {output} (average of step-00000030, step-00000040, validation"
    )
    assert err.endswith("--force to put the average there\n")
    assert load_bundle(output).info["weights"].count("step-") == 2

    assert clearhead(*average, "--last", 3, "--force") == 0
    err = capsys.readouterr().err
    assert re.search(r"clearhead: \w+ than what stood there: average of step-00000030, step-00000040, validation", err)
    assert load_bundle(output).info["weights"].count("step-") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_best_model_of_a_run_is_not_replaced_by_an_average_without_a_word(finished_run, capsys):
    before = load_bundle(finished_run).model_sha256
    assert clearhead("average", finished_run, "-o", finished_run / "model") == 1
    assert "--force" in capsys.readouterr().err
    assert load_bundle(finished_run).model_sha256 == before


def test_a_damaged_model_can_be_replaced(finished_run, tmp_path, capsys):
    assert clearhead("average", finished_run, "-o", tmp_path / "model") == 0
    (tmp_path / "model" / "model.safetensors").write_bytes(b"damaged")
    assert clearhead("average", finished_run, "-o", tmp_path / "model", "--force") == 0
    assert "it cannot be read" in capsys.readouterr().err
    assert clearhead("verify", tmp_path / "model") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "--last", "97"], "has 3 good checkpoints, fewer than --last 97"),
        (["RUN/model"], "RUN/model is not a run directory: it holds no config.toml"),
        (["RUN/none"], "RUN/none is not a run directory: it holds no config.toml"),
        (["RUN", "--device", "gpu"], "unknown device 'gpu'"),
    ],
)
def test_average_errors_are_one_line_and_write_no_model(finished_run, tmp_path, capsys, arguments, message):
    output = tmp_path / "model"
    arguments = [argument.replace("RUN", str(finished_run)) for argument in arguments]
    assert clearhead("average", *arguments, "-o", output) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("clearhead: ")
    assert message.replace("RUN", str(finished_run)) in err
    assert err.count("\n") == 1
    assert not output.exists()


def test_average_replaces_only_model_directories(finished_run, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("precious")
    assert clearhead("average", finished_run, "-o", tmp_path) == 1
    assert "is not a model directory" in capsys.readouterr().err
    assert clearhead("average", finished_run, "-o", tmp_path / "thesis.txt") == 1
    assert (tmp_path / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("arguments", [["--last", "0"], ["--last", "two"], []])
def test_wrong_usage_has_a_status_of_its_own(finished_run, tmp_path, arguments):
    output = ["-o", tmp_path / "model"] if arguments else []  # the output must be named
    assert clearhead("average", finished_run, *arguments, *output) == 2
