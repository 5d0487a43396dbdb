"""What a run that starts from a model must not unlearn: general text that is watched and mixed in, parts that stay."""

from __future__ import annotations

import re
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch

from clearhead.bundle import load_bundle
from clearhead.config import TrainConfig
from clearhead.data.prepare import open_prepared
from clearhead.errors import ConfigError, DataError
from clearhead.files import file_sha256
from clearhead.training.log import read_metrics
from clearhead.training.run import train_from_values
from every_run import slow
from small_runs import assert_same_weights, settings_from, weights, write_numbers


def fine_tuning(directory, finished_run, start=lambda values: train_from_values(values).run):
    """Return a function from changes to the directory of a run from the finished one, with its text as the general."""
    write_numbers(directory / "general.tsv")
    lines = [f"new {number} word\tneu {number} Wort" for number in range(40)]
    (directory / "new.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(**changes):
        files = {"pairs": [str(directory / "new.tsv")], "general_pairs": [str(directory / "general.tsv")]}
        data = {**files, "valid_size": 4, "augment": False}
        train = {"validate_every": 2, "seed": 3}
        return start(settings_from(finished_run, directory, {"data": data, "train": train}, changes))

    return run


@pytest.fixture
def fine_tuned(tmp_path, finished_run):
    """Return a function as of `fine_tuning`, in the directory of the test."""
    return fine_tuning(tmp_path, finished_run)


@pytest.fixture
def settled(tmp_path, finished_run, settle):
    """Return a function as `fine_tuned`, to a run before its first step."""
    return fine_tuning(tmp_path, finished_run, settle)


@pytest.fixture(scope="module")
def usual(finished_run, tmp_path_factory):
    """Return the directory of a run without changes, for reading, and what it printed."""
    with redirect_stderr(StringIO()) as said:
        run = fine_tuning(tmp_path_factory.mktemp("usual"), finished_run)()
    return run, said.getvalue()


def test_general_text_is_held_out_and_mixed_in(usual):
    data = open_prepared(usual[0] / "data")
    report = data.report["general"]
    assert data.general is not None
    assert len(data.general) == report["held_out"] == 4
    new = sum(data.train.source(row).startswith("new ") for row in range(len(data.train)))
    epochs = 196 // new  # that the general text is enough for
    assert data.report["rounds"] == {"epochs": epochs, "num_new": new}
    assert len(data.train) - new == report["kept"] == epochs * new
    assert report["read"] == sum(report[where] for where in ("kept", "held_out", "not_needed"))
    assert not any(report["dropped"].values())
    watched = {data.general.source(row) for row in range(4)}
    assert watched.isdisjoint(data.train.source(row) for row in range(len(data.train)))


@pytest.mark.parametrize(("share", "an_epoch", "epochs"), [(0.0, 0, 1), (0.2, 9, 21), (0.8, 144, 1), (0.95, 196, 1)])
def test_general_share_is_the_share_of_general_pairs_in_an_epoch(settled, share, an_epoch, epochs):
    data = open_prepared(settled(data={"general_share": share}) / "data")
    new = sum(data.train.source(row).startswith("new ") for row in range(len(data.train)))
    assert (new, len(data.train) - new) == (36, an_epoch * epochs)
    assert data.report["rounds"]["epochs"] == epochs
    rows = [data.order(TrainConfig(batch_tokens=100)).rows(step) for step in range(400)]
    seen = np.concatenate(rows)
    assert (seen >= new).mean() == pytest.approx(an_epoch / (36 + an_epoch), abs=0.05)


def test_pairs_that_cannot_be_mixed_in_are_counted_and_others_take_their_place(settled, tmp_path):
    """Half of what is learned from stays general, though some pairs are in the new text or in what is watched."""
    lines = (tmp_path / "general.tsv").read_text(encoding="utf-8").splitlines()
    both = lines[:36]  # of the new text as well
    like_another = [f"{line.upper()}!" for line in lines[50:]]
    (tmp_path / "general.tsv").write_text("\n".join([*lines, *like_another]) + "\n", encoding="utf-8")
    with (tmp_path / "new.tsv").open("a", encoding="utf-8") as file:
        file.write("\n".join(both) + "\n")
    data = open_prepared(settled() / "data")
    report = data.report["general"]
    assert report["dropped"]["duplicate"] > 0
    assert report["dropped"]["leakage"] > 0
    new, epochs = data.report["rounds"]["num_new"], data.report["rounds"]["epochs"]
    assert new == data.report["train"]["kept"]
    assert (report["kept"], len(data.train)) == (epochs * new, (epochs + 1) * new)
    sources = [data.train.source(row) for row in range(len(data.train))]
    assert len(set(sources)) == len(sources)


def test_both_texts_are_validated_and_the_older_model_is_kept(usual, finished_run):
    run, said = usual
    records = [record for record in read_metrics(run / "metrics.jsonl") if record["split"] == "valid"]
    assert [record["step"] for record in records] == [0, 2, 4]
    assert all({"general_nll", "general_bleu", "general_chrf"} <= record.keys() for record in records)
    assert len(re.findall(r"; general text BLEU \d+\.\d\d, chrF", said)) == 3
    older, before = (path / "model.safetensors" for path in (run / "model-before", finished_run / "model"))
    assert file_sha256(older) == file_sha256(before)
    assert len(load_bundle(run / "model-before").golden) == len(load_bundle(finished_run).golden)
    assert "general_chrf" in load_bundle(run).info["metrics"]
    assert "general text, mixed in" in said
    assert "prepared 36 training and 4 validation pairs, 180 general pairs to mix in and 4 to watch, in " in said
    assert "36 of those kept come in each of 5 epochs" in said
    assert "4 held out for watching" in said
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert "| training pairs | 36 and 180 of general text |" in card
    assert "| general text (greedy) | BLEU " in card
    assert "general text (greedy)" in (run / "report.html").read_text(encoding="utf-8")


def test_the_older_model_keeps_its_card(usual, finished_run):
    card = (finished_run / "model" / "README.md").read_bytes()
    assert (usual[0] / "model-before" / "README.md").read_bytes() == card


def test_a_run_without_general_text_watches_none(fine_tuned):
    run = fine_tuned(data={"general_pairs": []})
    assert open_prepared(run / "data").general is None
    assert "general_chrf" not in load_bundle(run).info["metrics"]


def assert_resumes_exactly(fine_tuned, directory: Path, **train: object) -> Path:
    """Require that a run in two parts ends with the weights of a whole one; return its last checkpoint."""
    train["schedule"] = "constant"  # other schedules know the last step
    whole = fine_tuned(out=str(directory / "whole"), train=train)
    fine_tuned(out=str(directory / "parts"), train={**train, "max_steps": 2})
    parts = fine_tuned(out=str(directory / "parts"), train=train)
    last, expected = (run / "checkpoints" / "step-00000004" for run in (parts, whole))
    assert_same_weights(last, expected)
    return last


def test_run_with_general_text_resumes_exactly(fine_tuned, tmp_path):
    assert_resumes_exactly(fine_tuned, tmp_path)


def test_damaged_general_text_is_found(usual, tmp_path):
    run = Path(copytree(usual[0], tmp_path / "run"))
    path = run / "data" / "general.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"general\.arrow is damaged"):
        open_prepared(run / "data")


@pytest.mark.parametrize(
    ("parts", "still"),
    [
        (["encoder", "embeddings"], ["source_embedding.", "encoder."]),
        slow(["decoder.layers.0"], ["decoder.layers.0."]),
    ],
)
def test_frozen_parts_stay_bit_for_bit_and_the_rest_moves(fine_tuned, finished_run, parts, still):
    run = fine_tuned(train={"freeze": parts, "learning_rate": 0.01, "patience": 50})
    [path] = (run / "checkpoints").glob("*4")
    before, after = weights(finished_run / "model"), weights(path)
    moved = {name for name, weight in before.items() if not torch.equal(weight, after[name])}
    frozen = {name for name in before if name.startswith(tuple(still))}
    assert frozen
    assert not moved & frozen
    assert moved == before.keys() - frozen


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"freeze": ["enc"]}}, "train.freeze: the model has no part 'enc'; parts are embeddings, encoder"),
        ({"train": {"freeze": ["embeddings", "encoder", "decoder"]}}, "leaves nothing to train"),
        ({"train": {"lora_rank": 500}}, r"train\.lora_rank \(500\) must be at most 16"),
        ({"train": {"lora_rank": 2, "optimizer": "muon"}}, "adapters moved by Adam"),
        (
            {"from_model": None, "data": {"general_pairs": []}, "train": {"lora_rank": 2}},
            "train.lora_rank keeps weights",
        ),
        ({"train": {"freeze": ["output_proj"]}}, "the model has no part 'output_proj'"),
        ({"train": {"freeze": ["decoder.layers.7"]}}, "the model has no part 'decoder.layers.7'"),
        (
            {"from_model": None, "data": {"general_pairs": []}, "train": {"freeze": ["encoder"]}},
            "train.freeze keeps weights",
        ),
        ({"from_model": None}, "general text .* is what a model must not unlearn, so from_model must"),
        ({"data": {"general_share": 1.0}}, "data.general_share"),
    ],
)
def test_invalid_freeze_lora_and_general_text_settings_are_rejected_before_writing(
    fine_tuned, changes, message, tmp_path
):
    with pytest.raises(ConfigError, match=message):
        fine_tuned(**changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("rank", "freeze"), [slow(0, ["encoder"]), (2, ["encoder"])])
def test_run_with_freeze_or_lora_resumes_exactly(fine_tuned, finished_run, tmp_path, rank, freeze):
    moved = {"lora_rank": rank, "freeze": freeze, "learning_rate": 0.05 if rank else 0.01}
    found = weights(assert_resumes_exactly(fine_tuned, tmp_path, **moved))
    before = weights(finished_run / "model")
    for name, weight in found.items() if rank else ():
        moves = ".layers." in name and weight.dim() == 2 and not name.startswith(tuple(freeze))
        assert weight.equal(before[name]) != moves
        assert not moves or torch.linalg.matrix_rank(weight - before[name], rtol=1e-4) == rank


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"empty corpus: there is no line in .*some\.tsv"),
        ("eins\tone\nzwei\ttwo\n", r"the general text has 2 usable pairs, and 10 are needed .*; give more of it$"),
    ],
)
def test_empty_or_too_short_general_text_is_rejected(fine_tuned, tmp_path, text, message):
    (tmp_path / "some.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        fine_tuned(data={"general_pairs": [str(tmp_path / "some.tsv")]})
