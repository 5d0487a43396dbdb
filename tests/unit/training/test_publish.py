"""The model directory of a run, and the average of its last checkpoints."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from clearhead.bundle import load_bundle, read_golden
from clearhead.bundle.side_files import ALIGNMENT_FILE
from clearhead.config import Config
from clearhead.config.nested import merge
from clearhead.data.prepare import open_prepared
from clearhead.data.store import PairStore
from clearhead.errors import CheckpointError, DataError, ModelError
from clearhead.evaluation.metrics import sentence_chrf
from clearhead.tokenizers import Tokenizer
from clearhead.training.publish import average_run, golden_sources, translatable
from clearhead.training.run import train_from_values
from clearhead.translation.alignment import alignment_head
from clearhead.translation.golden import check_golden
from clearhead.translation.quality import Calibration, QualityEstimator, calibration_of
from clearhead.translation.translator import Translator
from small_runs import weights


def checkpoints_of(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("step-*"))


@pytest.fixture
def copied_run(finished_run, tmp_path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "copy"))


def test_the_model_of_a_run_gives_its_golden_translations(finished_run):
    golden = read_golden(finished_run / "model")
    assert golden
    assert check_golden(Translator.load(finished_run), golden) == []


def test_the_model_says_how_it_was_made(finished_run):
    info = load_bundle(finished_run).info
    report = json.loads((finished_run / "data" / "report.json").read_text(encoding="utf-8"))
    directory = f"{finished_run.parent}/"
    assert dict(info["data"]) == json.loads(json.dumps(report).replace(directory, ""))
    assert info["preset"] == "tiny"
    assert info["training"]["steps"] == 40
    settings = json.dumps(Config.load(finished_run / "config.toml").model_dump(mode="json"))
    assert info["settings"] == json.loads(settings.replace(directory, ""))
    assert set(info["metrics"]) == {
        "valid_bleu",
        "bleu_signature",
        "valid_chrf",
        "chrf_signature",
        "valid_nll",
        "valid_ppl",
    }
    assert info["metrics"]["bleu_signature"].startswith("nrefs:1|")
    card = (finished_run / "model" / "README.md").read_text(encoding="utf-8")
    assert report["files"][0]["sha256"] in card
    for name in ("bleu_signature", "chrf_signature"):
        assert info["metrics"][name].replace("|", r"\|") in card  # which stays in its cell
    assert "| golden sentences | words of its vocabulary |" in card
    longest = max(open_prepared(finished_run / "data").train.source_lengths[:])  # of 189 lines
    assert f"| training lines | 99.9 % of at most {longest} tokens, 0.0 % of several sentences |" in card


def test_the_head_that_aligns_words_is_chosen_with_the_model(finished_run):
    bundle = load_bundle(finished_run)
    head = alignment_head(bundle)  # which is that model's, or an error
    kept = json.loads((finished_run / "model" / ALIGNMENT_FILE).read_text(encoding="utf-8"))
    assert (kept["layer"], kept["head"], kept["is_reading"]) == head
    assert 0 <= kept["agreement"] <= 1


def test_the_quality_of_the_model_is_calibrated_on_its_validation_text(finished_run):
    bundle, data = load_bundle(finished_run), open_prepared(finished_run / "data")
    translator = Translator(bundle)
    rows = range(bundle.info["settings"]["train"]["validate_sentences"])
    sources, targets = ([side(row) for row in rows] for side in (data.valid.source, data.valid.target))
    found = translator.translate(sources, raw=True)
    estimator = QualityEstimator(Calibration(), bundle.line_statistics)
    sure = [estimator.sureness(one.source, one.text, one.score) for one in found]
    expected = Calibration.fitted(sure, sentence_chrf([one.text for one in found], targets))
    assert list(calibration_of(bundle)) == pytest.approx(list(expected), abs=1e-3)


def test_a_model_holds_no_path_and_no_sentence_of_its_user(finished_run):
    data = open_prepared(finished_run / "data")
    sentences = {
        text
        for store in (data.train, data.valid)
        for row in range(len(store))
        for text in (store.source(row), store.target(row))
    }
    for path in (finished_run / "model").iterdir():
        text = path.read_bytes().decode("utf-8", errors="replace")
        assert str(finished_run.parent) not in text, path
        assert not any(sentence in text for sentence in sentences), path


def test_golden_sentences_may_be_given_and_are_named_in_the_card(settings, tmp_path):
    (tmp_path / "my|golden.txt").write_text("two five\nnine\n", encoding="utf-8")
    asked = merge(settings(), {"golden": str(tmp_path / "my|golden.txt"), "train": {"max_steps": 2}})
    run = train_from_values(asked).run
    assert [one["source"] for one in read_golden(run / "model")] == ["two five", "nine"]
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert r"| golden sentences | sentences of my\|golden.txt |" in card  # which stays in its cell
    before = (run / "config.toml").read_bytes()
    with pytest.raises(DataError, match="there is no such file"):
        train_from_values(merge(asked, {"golden": str(tmp_path / "none.txt")}))
    assert (run / "report.html").exists()  # as finished as it was, with the settings that it had
    assert (run / "config.toml").read_bytes() == before
    with pytest.raises(DataError, match="there is no such file"):
        train_from_values(merge(asked, {"golden": str(tmp_path / "none.txt")}), fresh=True)
    assert (run / "config.toml").read_bytes() == before  # nor moved aside
    train_from_values(merge(asked, {"golden": "none", "train": {"max_steps": 3}}))
    assert read_golden(run / "model") == []
    assert "| golden sentences | none |" in (run / "model" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "golden.txt: there is no such file"),
        ("\n \n", "give a file of 1 to 100 sentences"),
        ("one\n" * 101, "give a file of 1 to 100 sentences"),
        ("<2de> one\ntwo\n", "golden.txt, line 2: into which language"),
        ("<2fr> one\n", "golden.txt, line 1: unknown language tag <2fr>"),
    ],
)
def test_golden_sentences_that_cannot_be_used_are_refused(sentences, tmp_path, text, message):
    path = tmp_path / "golden.txt"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        golden_sources(str(path), Tokenizer.train(sentences, vocab_size=300, language_tags=("de",)), None)


@pytest.mark.parametrize("number", [1, 100])
def test_1_to_100_golden_sentences_are_taken_from_a_file(sentences, tmp_path, number):
    path = tmp_path / "golden.txt"
    path.write_text("one\n" * number, encoding="utf-8")
    assert golden_sources(str(path), Tokenizer.train(sentences, vocab_size=300), None) == ["one"] * number


@pytest.mark.parametrize("last", [2, None])
def test_an_average_is_the_mean_of_the_last_checkpoints(finished_run, tmp_path, last):
    paths = average_run(finished_run, tmp_path / "average", last=last, device="cpu", force=False, notice=print)
    assert paths == checkpoints_of(finished_run)[-(last or 3) :]
    parts = [weights(path) for path in paths]
    for name, tensor in weights(tmp_path / "average").items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0).float()
        torch.testing.assert_close(tensor, mean, rtol=0, atol=1e-7)
    bundle = load_bundle(tmp_path / "average")
    assert bundle.info["weights"] == "average of " + ", ".join(path.name for path in paths)
    assert bundle.tokenizer.sha256 == load_bundle(finished_run).tokenizer.sha256


def test_a_damaged_checkpoint_is_left_out_of_the_average(copied_run, tmp_path):
    paths = checkpoints_of(copied_run)
    (paths[-2] / "model.safetensors").write_bytes(b"junk")
    told: list[str] = []
    found = average_run(copied_run, tmp_path / "average", last=2, device="cpu", force=False, notice=told.append)
    assert found == [paths[-3], paths[-1]]
    assert [text for text in told if f"{paths[-2].name} is damaged" in text and "left out of the average" in text]
    with pytest.raises(CheckpointError, match=rf"has {len(paths) - 1} good checkpoints, fewer than --last 97"):
        average_run(copied_run, tmp_path / "other", last=97, device="cpu", force=False, notice=print)
    assert not (tmp_path / "other").exists()


def test_only_a_run_with_checkpoints_can_be_averaged(copied_run, tmp_path):
    with pytest.raises(CheckpointError, match=r"is not a run directory: it holds no config.toml"):
        average_run(copied_run / "model", tmp_path / "average", last=None, device="cpu", force=False, notice=print)
    shutil.rmtree(copied_run / "checkpoints")
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        average_run(copied_run, tmp_path / "average", last=None, device="cpu", force=False, notice=print)


def test_an_average_replaces_no_directory_that_is_not_a_model(copied_run, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(ModelError, match="is not a model directory"):
        average_run(copied_run, tmp_path / "mine", last=2, device="cpu", force=False, notice=print)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_validation_lines_with_an_unknown_tag_do_not_stop_a_run(settings, monkeypatch):
    tagged = settings(tokenizer={"language_tags": ["en"]}, decode={"target_lang": "en"}, train={"max_steps": 2})
    del tagged["golden"]
    run = train_from_values(tagged).run
    source = PairStore.source

    def kept_by_an_older_version(store: PairStore, row: int) -> str:
        return ("<2xx> " if len(store) == 11 and row in (0, 3) else "") + source(store, row)

    monkeypatch.setattr(PairStore, "source", kept_by_an_older_version)
    more = merge(tagged, {"train": {"max_steps": 4}})
    assert train_from_values(more).step == 4
    assert read_golden(run / "model")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "2xx" not in page
    data = open_prepared(run / "data")
    assert source(data.valid, 1) in page
    assert [row for row, _ in translatable(data, "en", 3)] == [1, 2, 4]
    assert translatable(data, None, 3) == []  # no line says into which language


def test_an_average_does_not_replace_a_model_that_a_writer_put_aside(copied_run, tmp_path):
    aside = shutil.copytree(copied_run / "model", tmp_path / ".average.0123456789abcdef.old")
    with pytest.raises(ModelError, match=r"there is a model at .*average .*or --force to put the average there"):
        average_run(copied_run, tmp_path / "average", last=2, device="cpu", force=False, notice=print)
    assert aside.is_dir()
