"""Runs that start from a trained model: its weights, its shape, its vocabulary."""

from __future__ import annotations

import html
import json
import shutil
from contextlib import redirect_stderr
from dataclasses import astuple, replace
from io import StringIO
from pathlib import Path

import pytest

from clearhead.bundle import load_bundle, save_bundle
from clearhead.cli.summary import summary
from clearhead.config import Config, read_toml
from clearhead.config.nested import merge
from clearhead.data.inputs import source_language
from clearhead.data.prepare import open_prepared
from clearhead.errors import CheckpointError, ConfigError, ModelError
from clearhead.files import file_sha256
from clearhead.tokenizers import Tokenizer
from clearhead.training.layers import Layers
from clearhead.training.log import read_metrics
from clearhead.training.loop import Loop
from clearhead.training.resume import gather
from clearhead.training.run import train_from_values
from clearhead.training.validation import Validation
from clearhead.training.warm_start import model_name
from clearhead.translation.small_model import export_small
from small_runs import FINISHED_SEED, QUICK, assert_same_weights, numbers, settings_from, write_numbers, write_tsv

FROM_FINISHED = {"train": {"seed": FINISHED_SEED, "validate_every": 2}}


@pytest.fixture
def from_finished(tmp_path, finished_run):
    """Write the corpus and return a function from changes to settings of a run from the finished one."""
    write_numbers(tmp_path / "numbers.tsv")
    return lambda **changes: settings_from(finished_run, tmp_path, FROM_FINISHED, changes)


@pytest.fixture(scope="module")
def started(finished_run, tmp_path_factory):
    """Return a run from the finished one, for reading, and what it printed."""
    directory = tmp_path_factory.mktemp("started")
    write_numbers(directory / "numbers.tsv")
    with redirect_stderr(StringIO()) as said:
        run = train_from_values(settings_from(finished_run, directory, FROM_FINISHED)).run
    return run, said.getvalue()


def gathered(values) -> Layers:
    return gather(Layers().with_("file", values))[0]


def test_a_run_has_shape_and_vocabulary_of_the_model_it_starts_from(started, finished_run):
    run, said = started
    assert (run / "tokenizer.json").read_bytes() == (finished_run / "tokenizer.json").read_bytes()
    model, expected = (Config.load(path / "config.toml") for path in (run, finished_run))
    assert model.model.model_copy(update={"dropout": 0.1}) == expected.model
    assert (model.tokenizer, model.decode, model.preset) == (expected.tokenizer, expected.decode, "tiny")
    assert model.from_sha256 == file_sha256(finished_run / "model" / "model.safetensors")
    first = read_metrics(run / "metrics.jsonl")[0]
    assert (first["split"], first["step"]) == ("valid", 0)
    assert said.index("it is validated before the first step") < said.index("step 0 ") < said.index("step 2 ")


def test_the_same_text_is_validated_before_the_first_step_as_at_the_end_of_the_first_run(started, finished_run):
    run, _ = started  # the same text and seed, so the same pairs are held out
    first = read_metrics(run / "metrics.jsonl")[0]
    metrics = load_bundle(finished_run).info["metrics"]
    assert first["nll"] == pytest.approx(metrics["valid_nll"], abs=1e-4)
    assert first["chrf"] == pytest.approx(metrics["valid_chrf"], abs=0.01)


def test_a_fine_tuned_model_knows_the_languages_of_the_one_before(from_finished, make_model_dir):
    before = make_model_dir(info={"data": {"languages": ["de", "en"]}})
    values = from_finished(from_model=str(before), train={"max_steps": 1, "schedule": "constant"})
    run = train_from_values(values).run
    assert load_bundle(run).languages == (["de"], ["en"])
    named = train_from_values({**values, "out": f"{run}-named", "data": {**values["data"], "to_lang": "nl"}}).run
    assert load_bundle(named).languages == (["de"], ["nl"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"d_model": 32}}, "model.d_model = 32, and the model has 16"),
        ({"model": {"norm": "post", "num_heads": 4}}, "num_heads = 4, and .* 2\n .*norm = 'post', and .* 'pre'"),
        ({"model": {"vocab_size": 299}}, "model.vocab_size = 299, and the model has 300"),
        ({"tokenizer": {"vocab_size": 299}}, "tokenizer.vocab_size = 299, and the model has 300"),
        ({"tokenizer": {"kind": "unigram"}}, "tokenizer.kind = 'unigram', and the model has 'bpe'"),
        ({"tokenizer": {"split_digits": False}}, "tokenizer.split_digits = False, and the model has True"),
        ({"tokenizer": {"language_tags": ["de"]}}, r"tokenizer.language_tags = \['de'\], and the model has \(\)"),
        ({"preset": "small"}, "preset small has model.d_model = 256, and the model has 16"),
        ({"from_sha256": "0" * 64}, "from_sha256 = '0{64}' is not the model at .*SHA-256 of its weights is"),
    ],
)
def test_settings_contradicting_from_model_are_rejected_with_both_values(from_finished, changes, message):
    values = from_finished(**changes)
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        train_from_values(values)
    assert not Path(values["out"]).exists()


def test_dropout_and_decode_settings_may_differ_from_from_model(from_finished, settle):
    model = {"dropout": 0.25, "attention_dropout": 0.125, "d_model": 16}
    run = settle(from_finished(model=model, decode={"beam_size": 3}, tokenizer={"vocab_size": None}))
    config = Config.load(run / "config.toml")
    assert (config.model.dropout, config.model.attention_dropout) == (0.25, 0.125)
    assert (config.decode.beam_size, config.decode.extra_length) == (3, 3)
    assert config.tokenizer.vocab_size == 300


def test_a_model_that_is_not_bettered_is_published_as_it_was(from_finished, finished_run, monkeypatch, capsys):
    measured = iter([(30.0, 3.0), (20.0, 3.1), (29.0, 2.9)])  # chrF and loss, before the first step and after it

    def validate(*_):
        chrf, nll = next(measured)
        return Validation(nll, 9.0, "", chrf, "")

    monkeypatch.setattr("clearhead.training.loop.measure", validate)
    monkeypatch.setattr("clearhead.training.loop.FEWEST_DECIDING", 5)
    run, *_, outcome = astuple(train_from_values(from_finished(train={"average_last": 1})))
    bundle = load_bundle(run)
    assert bundle.info["weights"] == "the model it started from"
    assert_same_weights(run / "model", finished_run / "model")
    line = "no better than the model it started from, which is published as it was: chrF 30.0, and at most 29.0 after"
    assert outcome.startswith(line)
    assert line in (run / "report.html").read_text(encoding="utf-8")
    assert train_from_values({"out": str(run)}).was_finished


def test_few_validation_pairs_decide_nothing_alone(from_finished, finished_run, monkeypatch):
    """The new weights are published though the five pairs say that they are worse, and the older model is kept."""
    measured = iter([30.0, 20.0, 19.0])
    monkeypatch.setattr("clearhead.training.loop.measure", lambda *_: Validation(3.0, 9.0, "", next(measured), ""))
    run, *_, outcome = astuple(train_from_values(from_finished(train={"average_last": 1})))
    assert load_bundle(run).info["weights"] == "step 2"
    assert_same_weights(run / "model-before", finished_run / "model")
    assert outcome.startswith("undecided, for 5 pairs are too few: chrF ")
    assert f"the model before is kept in {run / 'model-before'}: try both" in outcome
    assert html.escape(outcome, quote=False) in (run / "report.html").read_text(encoding="utf-8")


def test_the_model_names_what_it_started_from_without_a_path(started, finished_run):
    run, _ = started
    sha256 = file_sha256(finished_run / "model" / "model.safetensors")
    info = json.loads((run / "model" / "config.json").read_text())["info"]
    assert info["started_from"] == {"name": "run", "sha256": sha256}
    assert f"started from | run, SHA-256 of its weights {sha256}" in (run / "model" / "README.md").read_text()
    assert all(str(finished_run.parent).encode() not in path.read_bytes() for path in (run / "model").iterdir())


@pytest.mark.parametrize(
    ("path", "name"),
    [("/home/me/runs/de-en", "de-en"), ("runs/de-en/model", "de-en"), ("runs/de-en/", "de-en"), ("a/../b", "b")],
)
def test_a_model_is_called_by_its_directory_or_its_run(path, name):
    assert model_name(path) == name


def test_run_resumes_without_its_from_model(from_finished, finished_run, tmp_path):
    source = shutil.copytree(finished_run, tmp_path / "source")
    values = from_finished(from_model=str(source), train={"schedule": "constant", "validate_every": 4})
    whole = train_from_values(values | {"out": str(tmp_path / "whole")}).run / "checkpoints/step-00000004"
    run = train_from_values(merge(values, {"train": {"max_steps": 2}})).run
    shutil.rmtree(source)
    assert train_from_values(values).step == 4
    assert_same_weights(run / "checkpoints" / "step-00000004", whole)


def test_imported_from_is_kept_by_fine_tuning(from_finished, make_model_dir):
    came = {"library": "Hugging Face transformers", "kind": "marian", "name": "opus-mt", "weights_sha256": {"a": "b"}}
    source = make_model_dir(info={"imported_from": came})
    values = from_finished(from_model=str(source), train={"schedule": "constant"})
    train_from_values(values)
    shutil.rmtree(source)
    run = train_from_values(merge(values, {"train": {"max_steps": 6}})).run  # resumes, and is published again
    info = load_bundle(run).info
    assert (info["settings"]["train"]["max_steps"], info["imported_from"]) == (6, came)
    assert dict(summary({"made": info}))["imported"] == "from opus-mt, a marian model, of Hugging Face transformers"
    row = "| imported from | opus-mt, of the kind marian, of Hugging Face transformers |"
    assert row in (run / "model" / "README.md").read_text()


@pytest.fixture
def killed_before_the_first_checkpoint(from_finished, finished_run, tmp_path, monkeypatch):
    """Return settings of a run that was killed while the model it starts from, `tmp_path/source`, was validated."""
    shutil.copytree(finished_run / "model", tmp_path / "source")
    values = from_finished(from_model=str(tmp_path / "source"))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_save", killed)
        with pytest.raises(KeyboardInterrupt):
            train_from_values(values)
    assert not list(Path(values["out"], "checkpoints").glob("step-*"))
    return values


def test_resuming_without_a_checkpoint_requires_the_same_from_model(
    killed_before_the_first_checkpoint, finished_run, tmp_path, make_model_dir
):
    values, source = killed_before_the_first_checkpoint, tmp_path / "source"
    sha256 = file_sha256(source / "model.safetensors")
    source.rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=rf"needs the model .* no model at {source}.*SHA-256 {sha256}"):
        train_from_values(values)
    make_model_dir("source")
    with pytest.raises(CheckpointError, match=f"another model is at {source}; put back .*{sha256}"):
        train_from_values(values)
    run = train_from_values(values | {"from_model": str(tmp_path / "moved")}).run
    records = [record for record in read_metrics(run / "metrics.jsonl") if record["split"] == "valid"]
    assert [record["step"] for record in records] == [0, 2, 4]  # what the killed one had written is not there twice
    again = train_from_values(values | {"out": str(tmp_path / "again"), "from_model": str(tmp_path / "moved")}).run
    assert_same_weights(*(path / "checkpoints" / "step-00000004" for path in (run, again)))


def test_resumed_run_rejects_another_from_model(from_finished, settle, tmp_path, make_model_dir, monkeypatch):
    values = from_finished()
    settle(values)
    other = make_model_dir("other")
    with pytest.raises(CheckpointError, match=f"started from another model than --from {other}: .*--fresh"):
        train_from_values(values | {"from_model": str(other)})
    with pytest.raises(CheckpointError, match=r"from_model: '.*' -> None"):
        train_from_values({name: value for name, value in values.items() if name != "from_model"})
    with pytest.raises(CheckpointError, match=r"from_sha256: '\w{64}' -> '0{64}'"):
        train_from_values(values | {"from_sha256": "0" * 64})
    loaded = []

    def load(path):
        loaded.append(Path(path).name)
        return Config.from_dict(read_toml(path))

    monkeypatch.setattr(Config, "load", load)
    for named in ({"data": values["data"], "from_model": values["from_model"]}, {}):
        gather(Layers().with_("option", {"out": values["out"], **named}))
    assert loaded == 2 * ["config.toml"]


def test_run_from_random_weights_rejects_from_model_when_resumed(settings, settle, finished_run):
    values = settings(train=QUICK)
    settle(values)
    with pytest.raises(CheckpointError, match=r"from_model: None -> '.*'"):
        train_from_values(values | {"from_model": str(finished_run)})


def test_from_model_must_be_a_model_directory(from_finished, tmp_path):
    with pytest.raises(ModelError, match=r"no model at .*nothing: there is no such directory"):
        train_from_values(from_finished(from_model=str(tmp_path / "nothing")))
    with pytest.raises(ConfigError, match="from_model = 3: must be text"):
        train_from_values(from_finished(from_model=3))
    with pytest.raises(ConfigError, match="from_model must be set as well"):
        train_from_values(from_finished(from_model=None, from_sha256="0"))


def test_another_model_on_the_command_line_is_not_held_against_the_files(finished_run):
    file = {"from_model": "runs/old", "from_sha256": "0" * 64}
    layers = Layers().with_("file", file)
    assert layers.with_("option", {"from_model": "runs/new"}).given == {"from_model": "runs/new"}
    assert layers.with_("option", {"out": "x"}).given == file | {"out": "x"}
    asked = layers.with_("--set", {"from_sha256": "1" * 64}).with_("option", {"from_model": "runs/new"})
    assert asked.given == {"from_model": "runs/new", "from_sha256": "1" * 64}


def test_fresh_run_starts_from_the_current_from_model(from_finished, settle, finished_run, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(finished_run, source)
    run = train_from_values(from_finished(from_model=str(source))).run
    train_from_values(from_finished(from_model=str(finished_run), out=str(source), train={"max_steps": 6}), fresh=True)
    assert train_from_values({"out": str(run)}).was_finished  # it does not matter which model is there now
    settle({"out": str(run)}, fresh=True)
    assert Config.load(run / "config.toml").from_sha256 == file_sha256(source / "model" / "model.safetensors")


def test_the_models_tags_are_the_runs(from_finished, settle, make_model_dir, tmp_path, capsys):
    source = make_model_dir(language_tags=["de", "fr"])
    tagged = [(f"<2{'xx' if n == 7 else 'fr'}> {german}", english) for n, (german, english) in enumerate(numbers())]
    pairs = [str(write_tsv(tmp_path / "tagged.tsv", tagged))]
    values = from_finished(from_model=str(source), decode={"target_lang": "fr"}, data={"pairs": pairs})
    for name, asked in (("run", {}), ("asked", {"tokenizer": {"language_tags": ["fr", "de"]}})):
        run = settle(merge(values, {"out": str(tmp_path / name), **asked}))
        data = open_prepared(run / "data")
        assert list(data.tokenizer.language_tags) == ["de", "fr"]
        assert data.report["train"]["dropped"]["unknown_tag"] == 1
    assert "none: what is learned" not in capsys.readouterr().err
    untagged = [str(tmp_path / "numbers.tsv")]
    settle(merge(values, {"out": str(tmp_path / "plain"), "data": {"pairs": untagged}}))
    assert "(<2de>, <2fr>) which language to write, and the first 189 source lines have none" in capsys.readouterr().err
    settle(merge(values, {"out": str(tmp_path / "both"), "data": {"general_pairs": untagged}}))
    said = capsys.readouterr().err
    assert "and the first 11 general source lines have none" in said
    assert said.count("none: what is learned") == 1


def test_language_tags_in_the_text_without_the_setting_are_reported(settings, settle, tmp_path, capsys):
    tagged = [(f"<2{('fr', 'de')[n % 2]}> {german}", english) for n, (german, english) in enumerate(numbers())]
    values = settings()
    write_tsv(tmp_path / "numbers.tsv", tagged)
    settle(values)
    said = capsys.readouterr().err
    assert "each of the first 189 source lines begins with a language tag, such as <2de>" in said
    assert """--fresh --set 'tokenizer.language_tags=["de", "fr"]'""" in said


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
@pytest.mark.parametrize(("split_digits", "placeholders"), [(True, False), (False, True)])
def test_a_tokenizer_tells_how_it_was_made(sentences, kind, split_digits, placeholders):
    asked = {"kind": kind, "vocab_size": 285 + 32 * placeholders, "split_digits": split_digits}
    asked |= {"language_tags": ("de", "fr"), "placeholders": placeholders}
    assert Tokenizer.train(sentences, **asked).settings == asked


def test_pairs_are_as_long_at_most_as_the_model_can_read(make_model_dir, tmp_path):
    values = {
        "from_model": str(make_model_dir(positions="learned", max_positions=50)),
        "out": str(tmp_path),
    }
    values["data"] = {"pairs": ["mine.tsv"]}
    assert gathered(values).config.data.max_length == 50
    values["data"]["max_length"] = 40
    assert gathered(values).config.data.max_length == 40


def test_decoding_settings_are_those_of_the_model_unless_set(make_model_dir, tmp_path):
    model = make_model_dir(decode={"length_penalty": 0.3, "beam_size": 7})
    values = {"from_model": str(model), "out": str(tmp_path), "data": {"pairs": ["mine.tsv"]}}
    layers = gathered({**values, "decode": {"beam_size": 3}})
    assert (layers.config.decode.length_penalty, layers.config.decode.beam_size) == (0.3, 3)
    assert layers.origin("decode.length_penalty") == "model"
    assert layers.above_plan["decode.length_penalty"] == 0.3


def test_run_from_a_model_of_few_positions_resumes_by_the_same_command(from_finished, settle, make_model_dir):
    values = from_finished(from_model=str(make_model_dir(positions="learned", max_positions=50)))
    assert Config.load(settle(values) / "config.toml").data.max_length == 50
    longer = merge(values, {"train": {"max_steps": 6}})
    assert train_from_values(longer).step == 6


def test_the_language_of_the_sources_is_the_new_texts_and_else_the_models(make_model_dir, tmp_path):
    values = {"from_model": str(make_model_dir(decode={"source_lang": "en"})), "out": str(tmp_path / "run")}
    for data, language in (
        ({"source": ["train.de.gz"], "target": ["train.en.gz"]}, "de"),
        ({"pairs": ["mine.tsv"]}, "en"),
    ):
        assert source_language(gathered({**values, "data": data}).config) == language
    chosen = {**values, "data": {"pairs": ["mine.tsv"]}, "decode": {"source_lang": "fr"}}
    assert source_language(gathered(chosen).config) == "fr"


def test_training_from_a_small_model_says_so_and_leaves_its_precision(finished_run, from_finished, tmp_path, capsys):
    export_small(load_bundle(finished_run), tmp_path / "small", "bf16")
    small = load_bundle(tmp_path / "small")
    save_bundle(tmp_path / "small", replace(small, decode=small.decode.with_changes({"precision": "bf16"})))
    run = train_from_values(from_finished(from_model=str(tmp_path / "small"))).run
    said = f"{tmp_path / 'small'} is stored in bf16: training starts from its rounded weights, in float32"
    assert said in capsys.readouterr().err
    assert load_bundle(run).precision is None
    assert Config.load(run / "config.toml").decode.precision == "fp32"
