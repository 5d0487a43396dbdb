"""A run from its first command to its report, on a small corpus."""

from __future__ import annotations

import html
import itertools
import json
import math
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from well_formed import Page

import clearhead as ch
from clearhead.bundle import load_bundle, read_golden
from clearhead.config import Config
from clearhead.config.nested import merge
from clearhead.data.prepare import open_prepared, prepare
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import CheckpointError, ClearheadError, ConfigError, TrainingError
from clearhead.files import file_sha256
from clearhead.files.tensors import model_tensors
from clearhead.inspection.tokens import visible
from clearhead.runtime.device import device_name
from clearhead.training.attention_log import AttentionLog
from clearhead.training.checkpoints import Checkpoints
from clearhead.training.log import read_metrics
from clearhead.training.run import train_from_values
from clearhead.training.schedule import learning_rate
from clearhead.training.step import Stepper
from clearhead.training.steps import PaddedBatches
from clearhead.training.validation import Validation, measure
from clearhead.translation.translator import Translator
from small_runs import QUICK, assert_same_weights, numbers, tiny_settings, weights, write_sides, write_tsv

LEFT_OPEN = {"train": {**QUICK, "learning_rate": None}, "tokenizer": {"vocab_size": None}}


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def damage_all_weights(run: Path, pattern: str) -> None:
    for path in (run / "checkpoints").glob(pattern):
        data = bytearray((path / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (path / "model.safetensors").write_bytes(data)


@pytest.fixture
def measured(monkeypatch):
    """Return a function that lets the validations of a run find chrF and negative log-likelihood as given."""

    def let(*found):
        left = iter(found)

        def measure(*_):
            chrf, nll = next(left)
            return Validation(nll, 0.0, "", float(chrf), "")

        monkeypatch.setattr("clearhead.training.loop.measure", measure)

    return let


def test_a_run_directory_holds_what_is_promised(finished_run):
    names = {path.name for path in finished_run.iterdir()}
    assert names == {
        ".lock",
        "attention.jsonl",
        "checkpoints",
        "config.toml",
        "data",
        "metrics.jsonl",
        "model",
        "report.html",
        "tensorboard",
        "tokenizer.json",
        "verdict.txt",
    }
    assert sorted(os.listdir(finished_run / "checkpoints")) == ["step-00000020", "step-00000030", "step-00000040"]
    assert list((finished_run / "tensorboard").glob("events.out.tfevents.*"))
    assert (finished_run / "tokenizer.json").read_bytes() == (finished_run / "model/tokenizer.json").read_bytes()


def test_every_record_has_its_numbers(finished_run):
    records = read_metrics(finished_run / "metrics.jsonl")
    train = [record for record in records if record["split"] == "train"]
    valid = [record for record in records if record["split"] == "valid"]
    assert [record["step"] for record in train] == [25]
    assert [record["step"] for record in valid] == [14, 28, 40]
    names = {"split", "step", "loss", "nll", "ppl", "lr", "grad_norm", "tokens_per_second", "elapsed"}
    assert all(set(record) == names for record in train)
    names = {"split", "step", "measured_on", "nll", "ppl", "bleu", "chrf", "elapsed"}
    assert all(set(record) == names for record in valid)
    assert all(record["ppl"] == pytest.approx(math.exp(record["nll"]), rel=1e-3) for record in valid)
    assert train[0]["lr"] == pytest.approx(3e-3 * (1 - 24 / 40))


def test_weights_that_could_not_be_read_again_are_refused_before_training(settings, monkeypatch):
    class Scaled(torch.nn.LayerNorm):
        def __init__(self, config) -> None:
            super().__init__(config.d_model)
            self.alpha = torch.nn.Parameter(torch.ones(1))

    monkeypatch.setattr("clearhead.model.sublayers.make_norm", Scaled)
    values = settings()
    with pytest.raises(
        ConfigError, match=r"norm\.alpha: the model has \(1,\), and model/weight_shapes.py lists no such"
    ):
        train_from_values(values)
    assert not (Path(values["out"]) / "model").exists()


def test_saved_config_toml_round_trips_and_matches_the_model(finished_run):
    text = (finished_run / "config.toml").read_text(encoding="utf-8")
    config = Config.load(finished_run / "config.toml")
    assert config.to_toml() == text
    assert config.model == load_bundle(finished_run).model.config
    assert config.decode == load_bundle(finished_run).decode
    assert config.model.vocab_size == 300


def test_the_report_is_whole_and_loads_nothing(finished_run):
    page = Page((finished_run / "report.html").read_text(encoding="utf-8"))
    assert page.links == []
    assert (
        page.elements.count("svg") == 9 + 3 * 3
    )  # curves, lengths, attention; that of three pairs at three validations
    valid = open_prepared(finished_run / "data").valid
    assert {valid.source(row) for row in range(5)} <= set(page.texts)  # train.validate_sentences
    train = open_prepared(finished_run / "data").train
    direction = f"numbers.tsv; the first pair: {train.source(0)!r} -> {train.target(0)!r}"
    signature = load_bundle(finished_run).info["metrics"]["bleu_signature"]
    assert "Latin script → Latin script " in page.texts  # and how it was guessed
    assert direction in page.texts
    assert any(text.startswith(f"BLEU {signature}; chrF nrefs:1|") for text in page.texts)
    assert any(f" on cpu ({device_name(torch.device('cpu'))}, threads: 1), " in text for text in page.texts)


def test_the_report_draws_the_attention_of_the_head_that_was_chosen(settings, monkeypatch):
    head = AlignmentHead(0, 1, is_reading=True)
    monkeypatch.setattr("clearhead.training.finish.choose_alignment_head", lambda *_: (head, 0.5))
    run = train_from_values(settings(train=QUICK, data={"hold_out": "line"})).run
    report = (run / "report.html").read_text(encoding="utf-8")
    went, became = report.split("Where attention went")[1].split("How attention became")
    texts, translator = Page(report).texts, Translator.load(run)
    figures = went.split("<figcaption>")[1:]
    assert figures
    for figure in figures:
        translation = html.unescape(figure[: figure.index("</")])
        found = ch.explain(translator, texts[texts.index(translation) - 1], translation, search=False)
        weights = head.of(found.cross)
        drawn = [float(number) for number in re.findall(r'opacity="([\d.]+)"', figure)]
        np.testing.assert_allclose(drawn, weights[weights >= 0.005], atol=0.0051)
    data, tokenizer = open_prepared(run / "data"), translator.bundle.tokenizer
    row = AttentionLog(run, data.valid, translator.bundle.model.config).rows[0]
    source = tokenizer.source_pieces(data.valid.source_ids(row).tolist())
    target = tokenizer.pieces(data.valid.target_ids(row).tolist())
    labels = [html.unescape(label) for label in re.findall(r"<text[^>]*>([^<]*)</text>", became)]
    assert labels[: len(source) + len(target)] == [visible(piece) for piece in (*source, *target)]


def test_a_model_that_reads_next_to_nothing_at_once_has_a_report_too(settings):
    run = train_from_values(settings(decode={"max_input_tokens": 2}, train={"max_steps": 2})).run
    assert (run / "report.html").exists()


def test_text_of_the_corpus_cannot_run_in_the_report(settings, tmp_path):
    values = settings(train=QUICK, data={"valid_pairs": [str(tmp_path / "valid.tsv")]})
    (tmp_path / "valid.tsv").write_text("<script>a()</script>\t<img src='http://x'>\n")
    page = Page((train_from_values(values).run / "report.html").read_text(encoding="utf-8"))
    assert not {"script", "img"} & set(page.elements)
    assert {"<script>a()</script>", "<img src='http://x'>"} <= set(page.texts)


@pytest.mark.parametrize(
    ("chrf", "chosen", "averaged"),
    [
        (101.0, "average of step-00000002, step-00000003, step-00000004", [2, 3, 4]),
        (-1.0, "step 4", [4]),
    ],
)
def test_the_average_is_published_if_validation_prefers_it(settings, measured, monkeypatch, chrf, chosen, averaged):
    measured((20, 3.0), (30, 2.0))  # so the last is the best
    of_average = Validation(0.5, 0.0, "signature", chrf, "signature")
    monkeypatch.setattr("clearhead.training.loop.validate_weights", lambda *_: of_average)
    train = {"max_steps": 4, "validate_every": 2, "checkpoint_every": 1, "learning_rate": 0.01}
    run = train_from_values(settings(train=train)).run
    parts = [weights(run / "checkpoints" / f"step-{step:08d}") for step in averaged]
    expected = {name: torch.stack([p[name].double() for p in parts]).mean(0).float() for name in parts[0]}
    bundle = load_bundle(run)
    assert bundle.info["weights"] == chosen
    torch.testing.assert_close(model_tensors(bundle.model), expected, rtol=0, atol=1e-7)
    assert (bundle.info["metrics"]["bleu_signature"] == "signature") == (len(averaged) > 1)


def test_a_model_records_the_steps_and_the_time_of_its_weights(settings, measured, capsys):
    measured((30, 2.0), (20, 3.0), (20, 3.0))  # so the first is the best
    train = {"max_steps": 6, "validate_every": 2, "checkpoint_every": 6, "average_last": 1}
    run = train_from_values(settings(train=train)).run
    info = load_bundle(run).info
    state = Checkpoints(run / "checkpoints", pytest.fail).state(run / "checkpoints" / "step-00000002")
    assert info["weights"] == "step 2"
    assert {name: info["training"][name] for name in ("steps", "target_tokens")} == {
        "steps": 2,
        "target_tokens": state.target_tokens,
    }
    assert info["training"]["minutes"] == round(state.elapsed / 60, 2)


def test_copies_of_a_pair_in_a_step_are_numbered(settings, monkeypatch):
    steps, usual = [], PaddedBatches.of_step

    def of_step(batches, step):
        parts, tokens = usual(batches, step)
        steps.append([pair for part in parts for pair in zip(part.rows, part.copies, strict=True)])
        return parts, tokens

    monkeypatch.setattr(PaddedBatches, "of_step", of_step)
    train_from_values(settings(train=QUICK, data={"weights": [5]}))
    assert all(len(set(pairs)) == len(pairs) for pairs in steps)
    assert sum(copy > 0 for pairs in steps for _, copy in pairs) > 4


def test_pairs_are_held_out_with_a_message_when_no_validation_set_is_given(settings, capsys):
    run = train_from_values(settings(train=QUICK)).run
    err = capsys.readouterr().err
    assert "no validation set was given: 11 pairs are held out of the training text" in err
    data = open_prepared(run / "data")
    assert (len(data.train), len(data.valid)) == (189, 11)
    assert "200 pairs read" in err


def test_a_finished_run_says_so_and_changes_nothing(finished_run, tmp_path, capsys):
    run = Path(shutil.copytree(finished_run.parent, tmp_path / "copy") / "run")
    values = {"out": str(run)}
    before = contents(run)
    before.pop("config.toml")
    result = train_from_values(values)
    assert (result.was_finished, result.step, result.ended_by, result.run) == (True, 40, "max_steps", run)
    assert f"this run is finished (max_steps); its model is {run / 'model'}" in capsys.readouterr().err
    after = contents(run)
    after.pop("config.toml")  # it names the directory, which is another one here
    assert after == before
    written = (run / "config.toml").stat()
    assert train_from_values(values).was_finished
    assert (run / "config.toml").stat() == written


def test_larger_max_steps_resumes_a_finished_run(quick, capsys):
    values = quick
    longer = train_from_values(merge(values, {"train": {"max_steps": 7}}))
    assert (longer.step, longer.was_finished) == (7, False)
    err = capsys.readouterr().err
    assert "changed since the run was started: train.max_steps: 4 -> 7" in err
    assert "resuming after step 4" in err
    assert [r["step"] for r in read_metrics(longer.run / "metrics.jsonl")] == [4, 7]


@pytest.mark.parametrize("changed", [{"train": {"validate_sentences": 11}}, {"decode": {"extra_length": 4}}])
def test_the_best_is_measured_again_where_scores_are_measured_otherwise(settings, monkeypatch, changed, capsys):
    """As of a user who validated on one easy sentence, and then on more: 60.0 for all, then 5.29 and 19.30."""
    values = settings(train={**QUICK, "validate_sentences": 1, "average_last": 1, "keep_checkpoints": 9})
    run, usual = Path(values["out"]), measure

    def of_step(model: torch.nn.Module, data: Any, config: Config, workers: Any = None) -> Validation:
        is_first = config.train.validate_sentences == 1 and config.decode.extra_length == 3
        early = weights(run / "checkpoints" / "step-00000004") if not is_first else {}
        is_early = all(torch.equal(tensor, early.get(name, tensor)) for name, tensor in model_tensors(model).items())
        chrf = 60.0 if is_first else 5.29 if is_early else 19.30
        return replace(usual(model, data, config, workers), chrf=chrf)

    monkeypatch.setattr("clearhead.training.loop.measure", of_step)
    monkeypatch.setattr("clearhead.training.validation.measure", of_step)
    train_from_values(values)
    assert load_bundle(run).info["metrics"]["valid_chrf"] == 60.0
    train_from_values(merge(values, {"train": {"max_steps": 8}}, changed))
    info = load_bundle(run).info
    assert (info["weights"], info["metrics"]["valid_chrf"]) == ("step 8", 19.30)
    found = [(one["step"], one["chrf"]) for one in read_metrics(run / "metrics.jsonl")]
    assert found == [(4, 60.0), (4, 5.29), (8, 19.30)]
    assert "the best so far, of step 4, is validated again" in capsys.readouterr().err
    assert "worse" not in (run / "verdict.txt").read_text()


@pytest.fixture(scope="module")
def left_open(tmp_path_factory) -> dict[str, Any]:
    """Return the settings of a finished run whose rate and vocabulary were chosen by the plan."""
    directory = tmp_path_factory.mktemp("open")
    write_tsv(directory / "numbers.tsv", numbers())
    values = tiny_settings(directory, LEFT_OPEN)
    train_from_values(values)
    return values


def test_chosen_settings_are_saved_in_config_toml_and_the_model(left_open):
    run = Path(left_open["out"])
    saved, model = Config.load(run / "config.toml"), load_bundle(run)
    assert saved.tokenizer.vocab_size == model.tokenizer.vocab_size
    assert saved.train.learning_rate == pytest.approx((16 * 5) ** -0.5)
    assert saved.train.precision == "auto"  # the run may go on where products are computed otherwise
    assert model.info["training"]["device"] == "cpu"
    assert model.info["training"]["precision"] in ("fp32", "bf16")


def test_run_with_settings_left_open_resumes_by_the_same_values(left_open, capsys):
    path = Path(left_open["out"]) / "config.toml"
    text = path.read_text(encoding="utf-8")
    assert train_from_values(left_open).was_finished
    assert "changed" not in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == text


def test_resuming_in_another_precision_prints_a_message(settings, monkeypatch, capsys):
    fast = {True: "bf16", False: "fp32"}
    for is_fast, steps in ((False, 4), (True, 6)):
        monkeypatch.setattr("clearhead.training.step.has_fast_bf16", lambda device, is_fast=is_fast: is_fast)
        run = train_from_values(settings(train={**QUICK, "max_steps": steps})).run
        assert load_bundle(run).info["training"]["precision"] == fast[is_fast]
    assert "products were in fp32 and now are in bf16: it continues, but not bit for bit" in capsys.readouterr().err


def test_run_resumes_by_its_out_directory_alone(quick):
    values, run = quick, Path(quick["out"])
    shutil.rmtree(run / "checkpoints" / "step-00000004")
    before = Config.load(run / "config.toml")
    result = train_from_values({"out": str(run)})
    assert (result.step, result.was_finished) == (4, False)
    assert Config.load(run / "config.toml") == before
    assert before.train.planned
    assert train_from_values({"out": str(run), "train": {"max_steps": 6}}).step == 6
    assert Config.load(run / "config.toml").train.batch_tokens == values["train"]["batch_tokens"]


def test_a_resumed_run_needs_its_text_no_more(quick, tmp_path, capsys):
    values, run = quick, Path(quick["out"])
    shutil.rmtree(run / "checkpoints" / "step-00000004")
    (tmp_path / "numbers.tsv").unlink()
    assert train_from_values(values).step == 4
    assert "going on with the prepared data; its files are no longer there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"train": {"batch_tokens": 64}}, "train.batch_tokens: 128 -> 64"),
        ({"tokenizer": {"vocab_size": 299}}, "tokenizer.vocab_size: 300 -> 299"),
        ({"model": {"d_ff": 29}}, "model.d_ff: 23 -> 29"),
        ({"data": {"max_length": 77}}, "data.max_length: 256 -> 77"),
    ],
)
def test_a_change_that_makes_it_another_run_is_refused(finished_run, change, difference):
    before = contents(finished_run)
    with pytest.raises(CheckpointError, match=difference):
        train_from_values(tiny_settings(finished_run.parent, change))
    assert contents(finished_run) == before


def test_changed_text_is_refused(quick, tmp_path):
    values = quick
    path = tmp_path / "numbers.tsv"
    path.write_text(path.read_text() + "eins\tone\n")
    with pytest.raises(CheckpointError, match=r"the data changed .*\n.*numbers.tsv has \d+ bytes, .*\n.*--fresh"):
        train_from_values(values)


def test_text_that_only_moved_is_the_same_text(quick, tmp_path):
    values, run = quick, Path(quick["out"])
    shutil.rmtree(run / "checkpoints" / "step-00000004")
    (tmp_path / "numbers.tsv").rename(tmp_path / "moved.tsv")
    moved = {"data": {"pairs": [str(tmp_path / "moved.tsv")]}}
    assert train_from_values(merge(values, moved)).step == 4
    (tmp_path / "moved.tsv").write_text((tmp_path / "moved.tsv").read_text().replace("eins", "zwei"))
    with pytest.raises(CheckpointError, match="the data changed since this run was started"):
        train_from_values(merge(values, moved))


def test_sides_that_changed_places_are_refused(settings, settle, tmp_path):
    german, english = map(str, write_sides(tmp_path / "numbers", numbers()))
    values = settings(data={"source": [german], "target": [english]})
    del values["data"]["pairs"]
    run = settle(values)
    before = (run / "config.toml").read_bytes()
    refusal = r"data.source was .*numbers.de and now is .*numbers.en, which has other content"
    with pytest.raises(CheckpointError, match=refusal):
        train_from_values(merge(values, {"data": {"source": [english], "target": [german]}}))
    assert (run / "config.toml").read_bytes() == before
    settle(values)


def test_finished_run_is_published_again_with_changed_decode_settings(quick):
    values, run = quick, Path(quick["out"])
    assert load_bundle(run).decode.beam_size == 2
    again = train_from_values(merge(values, {"decode": {"beam_size": 3}}))
    assert (again.step, again.was_finished) == (4, False)
    assert load_bundle(run).decode.beam_size == Config.load(run / "config.toml").decode.beam_size == 3
    assert [r["step"] for r in read_metrics(run / "metrics.jsonl")] == [4]


def test_bf16_with_compile_on_a_cpu_is_rejected_before_the_run_directory_exists(settings):
    values = settings(train={**QUICK, "precision": "bf16", "compile": True}) | {"device": "cpu"}
    with pytest.raises(ConfigError, match="do not go together on a CPU"):
        train_from_values(values)
    assert not Path(values["out"]).exists()


def test_a_finished_run_stays_finished_where_it_could_not_be_trained(quick, monkeypatch):
    values = quick

    def refuse(config, device):
        raise ConfigError("not here")

    monkeypatch.setattr("clearhead.training.run.uses_bf16", refuse)
    assert train_from_values(values).was_finished
    with pytest.raises(ConfigError, match="not here"):
        train_from_values(values, fresh=True)
    assert train_from_values(values).was_finished


def test_a_presets_model_can_be_trained_from_python(settings):
    values = settings(train={**QUICK, "max_steps": 2, "validate_every": 2})
    model = ch.presets.tiny().model_copy(update={"d_model": 16, "num_heads": 2})
    run = ch.train(Config.from_dict(values).model_copy(update={"model": model})).run
    assert Config.load(run / "config.toml").model.vocab_size == 300


def test_fresh_moves_the_earlier_run_aside(quick, capsys):
    values, run = quick, Path(quick["out"])
    first = contents(run)
    assert train_from_values(merge(values, {"train": {"seed": 7}}), fresh=True).step == 4
    assert train_from_values({"out": str(run)}, fresh=True).step == 4
    asides = [run.with_name(f"{run.name}.old-{number}") for number in (1, 2)]
    assert contents(asides[0]) == first
    assert f"moved the earlier run to {asides[1]}" in capsys.readouterr().err
    assert Config.load(run / "config.toml").train.seed == Config.load(asides[1] / "config.toml").train.seed == 7


def test_starting_over_copies_input_files_within_the_run(quick, tmp_path, capsys):
    """The demo's corpus, a golden file and the model to start from lie within the run that is started over."""
    values, run = quick, Path(quick["out"])
    (run / "corpus").mkdir()
    shutil.copy(tmp_path / "numbers.tsv", run / "corpus" / "numbers.tsv")
    (run / "golden.txt").write_text("two five\n", encoding="utf-8")
    before = contents(run)
    within = {"golden": str(run / "golden.txt"), "data": {"pairs": [str(run / "corpus" / "numbers.tsv")]}}
    asked = merge({name: values[name] for name in ("out", "device", "train", "data")}, within, {"from_model": str(run)})
    assert train_from_values(asked, fresh=True).step == 4
    assert contents(run.with_name("run.old-1")) == before
    assert (run / "corpus" / "numbers.tsv").read_bytes() == before["corpus/numbers.tsv"]
    assert [one["source"] for one in read_golden(run / "model")] == ["two five"]
    assert Config.load(run / "config.toml").from_sha256 == file_sha256(run / "model-before" / "model.safetensors")
    assert train_from_values(asked).was_finished  # the same command without --fresh
    assert train_from_values(merge(asked, {"train": {"max_steps": 6}})).step == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"pairs": ["{run}/corpus/none.tsv"]}}, "there is no such file"),
        ({"data": {"pairs": ["{run}/few.tsv"]}}, "the corpus has 1 usable pairs, and 10 are needed"),
        ({"tokenizer": {"vocab_size": 100_000}}, "more than the .* pieces this corpus yields"),
        ({"golden": "{run}/golden.txt", "tokenizer": {"language_tags": ["de"]}}, "line 1: into which language"),
        ({"from_model": "{run}/none"}, "no model at"),
        ({"train": {"optimiser": "adam"}}, "unknown setting"),
    ],
)
def test_a_run_that_cannot_be_started_over_stays_where_it_is(quick, tmp_path, changes, message):
    run = Path(quick["out"])
    (run / "few.tsv").write_text("eins\tone\n" * 3)
    (run / "golden.txt").write_text("eins\n")
    before, beside = contents(run), sorted(path.name for path in tmp_path.iterdir())
    named = json.loads(json.dumps(changes).replace("{run}", str(run)))
    with pytest.raises(ClearheadError, match=message):
        train_from_values(merge(quick, named), fresh=True)
    assert contents(run) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == beside


def test_files_of_a_killed_start_over_are_removed_by_the_next(quick, tmp_path):
    run = Path(quick["out"])
    left = tmp_path / ".run.0123456789abcdef.partial"
    shutil.copytree(run, left)
    assert train_from_values(quick, fresh=True).step == 4
    assert not left.exists()


@pytest.mark.parametrize(("given", "afterwards"), [(None, (32 * 5) ** -0.5), (0.01, 0.01)])
def test_fresh_chooses_the_peak_rate_again_unless_it_was_given(settings, settle, given, afterwards):
    run = settle(settings(train={**QUICK, "learning_rate": given}))
    assert Config.load(run / "config.toml").train.learning_rate == (given or pytest.approx((16 * 5) ** -0.5))
    settle({"out": str(run), "model": {"d_model": 32}}, fresh=True)
    assert Config.load(run / "config.toml").train.learning_rate == pytest.approx(afterwards)


def test_fresh_without_files_takes_no_other_preset(quick):
    run = Path(quick["out"])
    before = contents(run)
    with pytest.raises(ConfigError, match=r"--preset small would change nothing.* of preset tiny .*name the input"):
        train_from_values({"out": str(run), "preset": "small"}, fresh=True)
    assert contents(run) == before


def test_fresh_with_impossible_settings_leaves_the_earlier_run_where_it_is(quick):
    values, run = quick, Path(quick["out"])
    with pytest.raises(ConfigError, match=r"multiple of model.num_heads"):
        train_from_values(merge(values, {"model": {"num_heads": 3}}), fresh=True)
    assert (run / "model" / "model.safetensors").exists()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_directory_of_something_else_is_refused(settings, tmp_path, fresh):
    values = settings()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("precious")
    with pytest.raises(CheckpointError, match=r"is not empty and is not a run \(it holds thesis.txt\)"):
        train_from_values(values, fresh=fresh)
    assert contents(tmp_path / "run") == {"thesis.txt": b"precious"}


@pytest.mark.parametrize("fresh", [False, True])
def test_run_directory_that_is_a_file_is_rejected_and_kept(settings, tmp_path, fresh):
    values = settings()
    (tmp_path / "run").write_text("precious")
    with pytest.raises(CheckpointError, match="is a file; name a directory for the run"):
        train_from_values(values, fresh=fresh)
    assert (tmp_path / "run").read_text() == "precious"


def test_a_directory_that_cannot_be_made_is_refused(settings, tmp_path):
    values = settings(out=str(tmp_path / "numbers.tsv" / "run"))
    with pytest.raises(CheckpointError, match=r"cannot (create|write) the run directory .*numbers.tsv/run"):
        train_from_values(values)


def test_train_from_values_without_out_is_rejected(settings):
    with pytest.raises(ConfigError, match="name the run directory: --out RUN"):
        train_from_values(settings(out=None))


@pytest.mark.parametrize(
    ("found", "end", "best"),
    [
        # chrF and negative log-likelihood of each validation
        ([(30, 3.0), (20, 2.9), (20, 2.8), (20, 2.7), (20, 2.7), (20, 2.7), (20, 2.6)], 6, 1),
        ([(10, 3.0), (10, 3.1), (20, 3.2), (20, 3.2), (30, 3.2), (20, 3.0), (20, 3.0)], 7, 5),
    ],
)
def test_patience_ends_when_neither_chrf_nor_likelihood_gets_better(settings, measured, found, end, best):
    measured(*found)
    values = settings(train={"validate_every": 1, "patience": 2, "max_steps": 99, "average_last": 1})
    result = train_from_values(values)
    assert (result.ended_by, result.step) == ("patience", end)
    assert (result.run / "checkpoints" / f"step-{best:08d}").is_dir()  # though no regular one was due
    assert load_bundle(result.run).info["weights"] == f"step {best}"
    assert train_from_values(values).was_finished


def test_a_run_of_minutes_ends_with_a_model(settings, monkeypatch, capsys):
    monkeypatch.setattr("clearhead.training.loop._TIMED_AGAIN", 4.0)
    clock = itertools.count(start=100.0, step=0.125)  # every look at it takes an eighth of a second
    monkeypatch.setattr("time.monotonic", lambda: next(clock))

    def slowly(*arguments, **named):  # the preparation takes longer than `_TIMED_AGAIN`, and is no step
        assert [*itertools.islice(clock, 44)]
        return prepare(*arguments, **named)

    monkeypatch.setattr("clearhead.training.preparation.prepare", slowly)
    values = settings(train={"max_minutes": 0.5, "schedule": "linear"})
    del values["train"]["max_steps"]
    result = train_from_values(values)
    assert result.ended_by == "max_minutes"
    assert result.step > 1
    (said,) = re.findall(
        r"^timed again: about (\d+) steps in all, done by about \d\d:\d\d$", capsys.readouterr().err, re.M
    )
    assert abs(int(said) - result.step) < 0.25 * result.step
    last = read_metrics(result.run / "metrics.jsonl")[-1]
    assert last["step"] == result.step
    assert 30.0 <= last["elapsed"] < 32.0  # a step looks at the clock a few times
    assert Translator.load(result.run).translate(["eins zwei"])[0].tokens
    assert train_from_values(values).was_finished


def test_learning_rate_falls_until_the_earlier_of_two_limits(settings, monkeypatch):
    clock = itertools.count(start=100.0, step=0.125)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    rates = []

    def noted(step, train, *, d_model, progress):
        rates.append(learning_rate(step, train, d_model=d_model, progress=progress))
        return rates[-1]

    monkeypatch.setattr("clearhead.training.loop.learning_rate", noted)
    limits = {"max_minutes": 0.25, "max_steps": 1_000_000}
    result = train_from_values(settings(train={**limits, "schedule": "linear", "warmup_steps": 1}))
    assert result.ended_by == "max_minutes"
    assert rates[-1] < 0.1 * max(rates)


def test_checkpoints_that_a_killed_run_had_yet_to_remove_are_removed_at_its_end(settings, monkeypatch):
    values = settings(train={**QUICK, "keep_checkpoints": 1, "average_last": 1})
    prune = Checkpoints.prune

    def end_before_the_last(checkpoints, *arguments, **options):
        if checkpoints.path(4).exists():
            raise KeyboardInterrupt
        prune(checkpoints, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "prune", end_before_the_last)
        with pytest.raises(KeyboardInterrupt):
            train_from_values(values)
    checkpoints = Path(values["out"]) / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00000002", "step-00000004"]
    train_from_values(values)
    assert [path.name for path in checkpoints.iterdir()] == ["step-00000004"]


def test_a_damaged_newest_checkpoint_is_passed_over(quick, capsys):
    values, run = quick, Path(quick["out"])
    expected = Path(shutil.copytree(run / "model", run.parent / "expected"))
    damage_all_weights(run, "step-00000004")
    result = train_from_values(values)
    assert (result.step, result.was_finished) == (4, False)
    err = capsys.readouterr().err
    assert "checkpoint step-00000004 is damaged (model.safetensors is not what its checksum says)" in err
    assert "resuming after step 2" in err
    assert_same_weights(run / "model", expected)


def test_a_run_with_damaged_checkpoints_only_says_what_to_do(quick):
    values, run = quick, Path(quick["out"])
    damage_all_weights(run, "step-*")
    with pytest.raises(CheckpointError, match=r"all 2 checkpoints in .* are damaged; .*--fresh"):
        train_from_values(values)


def test_a_damaged_best_checkpoint_is_not_published(settings, measured, capsys):
    measured((30, 3.0), (20, 3.1), (20, 3.1))
    values = settings(train={"validate_every": 1, "patience": 2, "average_last": 1})
    run = train_from_values(values).run
    state = json.loads((max((run / "checkpoints").iterdir()) / "state.json").read_text())
    assert (state["best"]["step"], state["step"]) == (1, 3)
    damage_all_weights(run, "step-00000001")
    (run / "report.html").unlink()  # as if it had been killed before it published
    train_from_values(values)
    assert "the best checkpoint, of step 1, is damaged" in capsys.readouterr().err
    assert load_bundle(run).info["weights"] == "step 3"


def test_training_at_a_rate_that_is_too_high_ends_with_what_to_change(settings):
    values = settings(
        train={"learning_rate": 1e6, "warmup_steps": 1, "clip_norm": 0.0, "checkpoint_every": 1, "schedule": "constant"}
    )
    with pytest.raises(TrainingError) as caught:
        train_from_values(values)
    assert re.fullmatch(
        r"training stopped at step 4: the loss is [\d.e+]+ and the gradient's norm (nan|inf); "
        r"no checkpoint is 25 steps older than step 2, where it began; start over \(--fresh\) with a lower "
        r"train\.learning_rate \(its peak is 1e\+06 now\), .*model\.norm = 'pre'",
        str(caught.value),
    )


class SmallStepper(Stepper):
    """A stepper on a device with memory for so many target tokens."""

    memory = 0

    def step(self, parts, **options):
        if max(batch.target_out.numel() for batch in parts) > self.memory:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().step(parts, **options)


def test_out_of_memory_halves_what_is_computed_at_once(settings, monkeypatch, capsys):
    values = settings(train={**QUICK, "batch_tokens": 60}, model={"dropout": 0.0})
    del values["train"]["micro_batch_tokens"]
    expected = weights(train_from_values({**values, "out": f"{values['out']}-whole"}).run / "model")
    monkeypatch.setattr("clearhead.training.steps.Stepper", SmallStepper)
    monkeypatch.setattr(SmallStepper, "memory", 30)
    found = weights(train_from_values({**values, "out": f"{values['out']}-halved"}).run / "model")
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    notice = "the device ran out of memory at step 1; from here on at most 30 target tokens are computed at once"
    assert capsys.readouterr().err.count(notice) == 1
    monkeypatch.setattr(SmallStepper, "memory", 0)
    with pytest.raises(TrainingError, match="out of memory at step 1; one pair at a time is too much: take a smaller"):
        train_from_values({**values, "out": f"{values['out']}-never"})


def test_a_resumed_run_keeps_the_parts_that_it_cut_when_memory_ran_out(settings, monkeypatch, capsys):
    short, long = ({"max_steps": steps, "validate_every": 2, "checkpoint_every": 2} for steps in (2, 6))
    values = settings(train={**long, "batch_tokens": 60, "micro_batch_tokens": 57, "schedule": "constant"})
    monkeypatch.setattr("clearhead.training.steps.Stepper", SmallStepper)
    monkeypatch.setattr(SmallStepper, "memory", 20)
    expected = train_from_values({**values, "out": f"{values['out']}-whole"}).run
    said = capsys.readouterr().err
    assert ["at most 28 target" in said, "at most 14 target" in said, "at most 7 target" in said] == [True, True, False]
    run = train_from_values(merge(values, {"train": short})).run
    state = json.loads((run / "checkpoints" / "step-00000002" / "state.json").read_text())
    assert state["micro_batch_tokens"] == 14
    monkeypatch.setattr(SmallStepper, "memory", 60)  # were it cut otherwise, the last bits would differ
    capsys.readouterr()
    train_from_values(values)
    assert "ran out of memory" not in capsys.readouterr().err
    assert_same_weights(run / "checkpoints" / "step-00000006", expected / "checkpoints" / "step-00000006")


@pytest.mark.parametrize("is_recorded", [False, True])
def test_out_of_memory_in_the_optimizer_does_not_move_momenta_twice(settings, monkeypatch, capsys, is_recorded):
    def move(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("clearhead.training.optimizer.Muon._move_others", move)
    if is_recorded:  # as a CUDA graph, which moves nothing
        monkeypatch.setattr("clearhead.training.steps.GraphRecorder", SimpleNamespace(record=move))
    values = settings(train={**QUICK, "optimizer": "muon"})
    del values["train"]["micro_batch_tokens"]
    advice = "one pair at a time is too much" if is_recorded else "lower train.micro_batch_tokens"
    with pytest.raises(TrainingError, match=f"out of memory at step 1; {advice}"):
        train_from_values(values)
    assert ("from here on" in capsys.readouterr().err) == is_recorded


def test_a_corpus_with_language_tags_trains_into_every_language(settings, tmp_path):
    tagged = [(f"<2en> {de}", en) for de, en in numbers()[:150]] + [(f"<2up> {de}", de.upper()) for de, _ in numbers()]
    write_tsv(tmp_path / "tagged.tsv", tagged)
    values = settings(
        data={"pairs": [str(tmp_path / "tagged.tsv")]},
        tokenizer={"language_tags": ["en", "up"], "vocab_size": 307},
        decode={"target_lang": "up"},
        train=QUICK,
    )
    translator = Translator.load(train_from_values(values).run)
    assert list(translator.bundle.tokenizer.language_tags) == ["en", "up"]
    assert translator.bundle.decode.target_lang == "up"
    scores = [t.score for t in translator.translate(["<2en> eins zwei", "<2up> eins zwei", "eins zwei"])]
    assert scores[1] == pytest.approx(scores[2])
    assert scores[0] != scores[1]
    again = train_from_values({"out": values["out"], "decode": {"target_lang": "en"}})  # a tag that the run knows
    assert load_bundle(again.run).decode.target_lang == "en"


def test_the_python_interface_trains_as_the_command_does(settings, quick_run, capsys):
    config = Config.from_dict(settings(train=QUICK))
    told = []
    result = ch.train(config, on_progress=told.append)
    assert (result.step, result.ended_by, result.was_finished) == (4, "max_steps", False)
    assert list(dict.fromkeys((one.step, one.share) for one in told)) == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    valid = [record for record in result.metrics if record["split"] == "valid"]
    seen = dict.fromkeys(one.validation.bleu for one in told if one.validation is not None)
    assert list(seen) == list(dict.fromkeys(record["bleu"] for record in valid))
    assert all(one.loss > 0 for one in told)
    assert result.report.name == "report.html"
    assert result.report.exists()
    assert any("are usable as they are" in sentence for sentence in result.verdict)
    assert capsys.readouterr().err.splitlines()[-len(result.verdict) :] == result.verdict
    assert result.model is result.model
    assert result.model.translate(["eins"])[0].source == "eins"
    again = ch.train(config, on_progress=lambda _: pytest.fail("nothing was left to do"))
    assert (again.was_finished, again.verdict, again.metrics) == (True, result.verdict, result.metrics)
    assert_same_weights(result.run / "model", quick_run / "model")
