from __future__ import annotations

import json
import os
import sys
from importlib import metadata

import pytest
import torch

from clearhead.bundle import load_bundle, save_bundle
from clearhead.bundle.model_directory import FORMAT_VERSION
from clearhead.cli.info import info
from clearhead.config import Config
from clearhead.decoding import make_engine
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.pytorch.engine import PyTorchEngine
from clearhead.errors import ConfigError, ModelError
from clearhead.kernels.library import describe, library
from clearhead.runtime.version import full_version
from clearhead.training.checkpoints import Checkpoints, TrainingState

MADE = {
    "preset": "tiny",
    "data": {
        "files": [
            {"path": "train.de", "lines": 29_000, "sha256": "ab12"},
            {"path": "train.en", "lines": 29_000, "sha256": "cd34"},
        ],
        "train": {"read": 29_000, "kept": 28_751, "dropped": {"duplicate": 249}},
        "exclude": [],
    },
    "training": {"steps": 4_000, "minutes": 12.5, "settings": {"adam_betas": [0.9, 0.98], "adam_eps": 1e-9}},
    "metrics": {"valid_bleu": 31.52, "bleu_signature": "nrefs:1|case:mixed", "compiled": False, "note": None},
}


@pytest.fixture
def run_dir(tmp_path):
    """Return a run with two checkpoints, a log whose last line is cut off, and no model."""
    run = tmp_path / "run"
    run.mkdir()
    config = Config.from_dict({"preset": "tiny", "train": {"max_steps": 300}})
    (run / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    checkpoints = Checkpoints(run / "checkpoints", print)
    for step in (100, 200):
        checkpoints.save(TrainingState(step=step), {"w": torch.randn(3)}, {"m": torch.randn(3)})
    records = [{"split": "train", "step": step, "loss": 9.0 - step / 100} for step in (50, 100, 150, 200)]
    log = "".join(json.dumps(record) + "\n" for record in records)
    (run / "metrics.jsonl").write_text(log + '{"split": "tra', encoding="utf-8")
    return run


def test_json_says_what_a_model_is_and_how_it_was_made(run_command, make_model_dir, make_bundle):
    settings = {"info": MADE, "language_tags": ("de", "fr"), "decode": {"beam_size": 3}}
    bundle = make_bundle(**settings)
    found = json.loads(run_command(info, make_model_dir(**settings), "--json").stdout)
    assert list(found) == ["model", "tokenizer", "languages", "decode", "translated_by", "made"]
    assert found["made"] == MADE
    assert found["model"]["parameters"] == bundle.model.num_parameters()
    assert found["model"]["clearhead_version"] == full_version()
    assert found["model"]["format_version"] == FORMAT_VERSION
    assert (found["model"]["d_model"], found["model"]["num_heads"], found["model"]["norm"]) == (22, 11, "pre")
    assert found["tokenizer"] == {
        "kind": "bpe",
        "vocab_size": bundle.tokenizer.vocab_size,
        "language_tags": ["de", "fr"],
        "sha256": bundle.tokenizer.sha256,
    }
    assert found["decode"]["beam_size"] == 3


def test_info_without_a_model_shows_the_installation(run_command):
    found = json.loads(run_command(info, "--json").stdout)["installation"]
    assert found.pop("clearhead_version") == full_version()
    assert found.pop("python") == ".".join(map(str, sys.version_info[:3]))
    assert found.pop("torch") == metadata.version("torch")
    assert found.pop("device") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert 1 <= found.pop("threads") <= os.cpu_count()
    core = found.pop("compiled_core")
    assert core.startswith("clearhead's compiled core is ")
    assert ("not in use" in core) == (library() is None)
    assert found == {}
    assert f"\ncompiled_core: {core}\n" in run_command(info).stdout


def test_info_shows_a_missing_compiled_core_with_and_without_a_model(run_command, make_model_dir, monkeypatch):
    monkeypatch.setattr("clearhead.kernels.library._load", lambda: (None, None))
    monkeypatch.setattr("clearhead.decoding.native.engine.library", lambda: None)
    installation = json.loads(run_command(info, "--json").stdout)["installation"]
    assert "compiled core is not in use" in installation["compiled_core"]
    found = json.loads(run_command(info, make_model_dir(), "--json").stdout)["translated_by"]
    assert found == {"engine": "PyTorch", "device": "cpu", "because": installation["compiled_core"]}


def test_info_shows_that_neither_compiled_core_nor_pytorch_is_installed(run_command, make_model_dir, monkeypatch):
    model = make_model_dir()
    monkeypatch.setattr("clearhead.decoding.native.engine.library", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    said = run_command(info, model).stdout.splitlines()
    assert said[-1] == "translates: by PyTorch, which is not installed, on cpu, beam 4"


@pytest.mark.skipif(library() is None, reason="the compiled core is not in use here")
def test_info_shows_the_engine_of_a_model_with_its_reason(run_command, make_model_dir):
    odd, wide = make_model_dir("odd"), make_model_dir("wide", d_model=64, num_heads=2, d_ff=32)
    found = [json.loads(run_command(info, model, "--json").stdout)["translated_by"] for model in (odd, wide)]
    assert [facts["engine"] for facts in found] == ["PyTorch", "compiled core"]
    assert "d_model, d_ff and num_heads * d_v in multiples of 32" in found[0]["because"]
    assert found[1]["because"] == describe()
    engines = [type(make_engine(load_bundle(model).model)) for model in (odd, wide)]
    assert engines == [PyTorchEngine, NativeEngine]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_info_shows_the_kind_of_tokenizer(run_command, make_model_dir, kind):
    found = json.loads(run_command(info, make_model_dir(kind=kind), "--json").stdout)
    assert found["tokenizer"]["kind"] == kind


def test_info_with_all_prints_nested_facts_indented(run_command, make_model_dir):
    lines = run_command(info, make_model_dir(info=MADE), "--all").stdout.splitlines()
    made = lines[lines.index("made:") :]
    assert made == [
        "made:",
        "  preset: tiny",
        "  data:",
        "    files:",
        "      1: path train.de, lines 29,000, sha256 ab12",
        "      2: path train.en, lines 29,000, sha256 cd34",
        "    train:",
        "      read: 29,000",
        "      kept: 28,751",
        "      dropped:",
        "        duplicate: 249",
        "    exclude: none",
        "  training:",
        "    steps: 4,000",
        "    minutes: 12.5",
        "    settings:",
        "      adam_betas: 0.9, 0.98",
        "      adam_eps: 1e-09",
        "  metrics:",
        "    valid_bleu: 31.52",
        "    bleu_signature: nrefs:1|case:mixed",
        "    compiled: no",
        "    note: -",
    ]


def test_info_of_a_run_prints_eight_lines(run_command, run_dir, make_model_dir, make_bundle):
    made = {
        **MADE,
        "weights": "step 4000",
        "data": {
            **MADE["data"],
            "roles": {"source": ["train.de"], "target": ["train.en"], "pairs": []},
            "languages": ["de", "fr"],
        },
        "training": {"steps": 4_000, "minutes": 12.5, "date": "2017-06-12", "device": "cpu"},
    }
    directory = make_model_dir("run/model", info=made, language_tags=("de", "fr"), decode={"target_lang": "de"})
    model = load_bundle(directory)
    size = model.model.num_parameters()
    assert run_command(info, run_dir).stdout.splitlines() == [
        f"model: {directory}, {size:,} parameters, 2+1 layers, d_model 22, 11 heads, preset tiny, weights in float32",
        f"vocabulary: {model.tokenizer.vocab_size} pieces, bpe",
        "languages: from de, into de, fr",
        "data: 28,751 training pairs, source train.de, target train.en",
        "quality: validation BLEU 31.52",
        f"made: 2017-06-12, step 4000, 4,000 steps, 12.5 minutes, on cpu, clearhead {full_version()}",
        "translates: by PyTorch, on cpu, beam 4, into de unless told otherwise",
        f"run: {run_dir}, unfinished: clearhead train {run_dir} goes on, newest checkpoint step-00000200",
    ]


def test_info_names_the_first_12_languages(run_command, make_model_dir):
    languages = [f"{first}{second}" for first in "abcd" for second in "efghi"]
    directory = make_model_dir(language_tags=languages)
    [line] = [line for line in run_command(info, directory).stdout.splitlines() if line.startswith("languages: ")]
    assert line.endswith(f", into {', '.join(languages[:12])} and 8 more")
    assert languages[-1] in run_command(info, directory, "--all").stdout


@pytest.mark.parametrize(
    "odd",
    [
        {"data": [], "training": 3, "metrics": {"valid_bleu": {}}, "weights": ["a"], "preset": None},
        {"a": [{"b": [1, {"c": 2}]}, 3, [4, [5]]], "": {"": {}}},
        {"[bold]": "[/red] [link=x]", "lines": "one\ntwo", "deep": {"x": [[], {}]}},
        {"big": 10**30, "huge": 1e300, "tiny": -1e-300, "long": 1234567.25},
    ],
)
def test_info_shows_arbitrary_json_in_the_model_record(run_command, make_model_dir, odd):
    model = make_model_dir(info=odd)
    assert json.loads(run_command(info, model, "--json").stdout)["made"] == odd
    assert "model: " in run_command(info, model).stdout
    text = run_command(info, model, "--all").stdout
    assert "lines" not in odd or "  lines: one two\n" in text
    assert all(line.strip() for line in text.splitlines())


def test_a_terminal_gets_a_table_with_the_same_words(make_model_dir, monkeypatch, capsys):
    model = make_model_dir(info={"[bold]": "[/red]", **MADE})
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    info(model, everything=True, as_json=False)
    shown = capsys.readouterr().out
    for words in ("parameters", "[bold]", "[/red]", "valid_bleu", "31.52", "28,751", "train.de"):
        assert words in shown
    assert "made:" not in shown


def test_info_on_a_terminal_leaves_out_model_settings(make_model_dir, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    info(make_model_dir(info=MADE), everything=False, as_json=False)
    shown = capsys.readouterr().out
    assert "BLEU 31.52" in shown
    assert "d_ff" not in shown


def test_a_run_without_a_model_says_how_far_it_is(run_command, run_dir):
    found = json.loads(run_command(info, run_dir, "--json").stdout)
    assert list(found) == ["run"]
    run = found["run"]
    assert run["state"] == f"unfinished: clearhead train {run_dir} goes on"
    assert run["preset"] == "tiny"
    assert run["newest_checkpoint"] == "step-00000200"
    assert run["checkpoints"] == ["step-00000100", "step-00000200"]
    assert run["training_state"]["step"] == 200
    assert [record["step"] for record in run["last_records"]] == [100, 150, 200]
    assert run["config"]["train"]["max_steps"] == 300
    origins = {"train.max_steps": "saved", "model.d_ff": "saved", "data.swap": "default", "model.vocab_size": "fixed"}
    assert origins.items() <= run["config_from"].items()
    text = run_command(info, run_dir, "--all").stdout
    assert "  newest_checkpoint: step-00000200\n" in text
    assert "      max_steps: 300  (saved)\n" in text
    assert "    preset: tiny  (preset tiny)\n" in text
    assert "config_from" not in text
    assert "    3: split train, step 200, loss 7\n" in text


def test_a_finished_run_shows_its_model_too(run_command, run_dir, make_model_dir):
    make_model_dir("run/model", info=MADE)
    assert json.loads(run_command(info, run_dir, "--json").stdout)["run"]["state"] != "finished"
    (run_dir / "report.html").write_text("")  # written last
    found = json.loads(run_command(info, run_dir, "--json").stdout)
    assert list(found) == ["model", "tokenizer", "languages", "decode", "translated_by", "made", "run"]
    assert found["run"]["state"] == "finished"
    assert found["model"]["directory"] == str(run_dir / "model")


def test_info_of_a_new_run_has_no_checkpoints_or_records(run_command, run_dir):
    (run_dir / "metrics.jsonl").unlink()
    for path in sorted((run_dir / "checkpoints").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    run = json.loads(run_command(info, run_dir, "--json").stdout)["run"]
    assert (run["newest_checkpoint"], run["checkpoints"], run["last_records"]) == (None, [], [])


def test_info_reports_damaged_checkpoints(run_command, run_dir):
    def damage(step):
        (run_dir / "checkpoints" / f"step-{step:08d}" / "state.json").write_text("{}", encoding="utf-8")

    damage(200)
    result = run_command(info, run_dir, "--json")
    assert json.loads(result.stdout)["run"]["newest_checkpoint"] == "step-00000100"
    assert "step-00000200 is damaged" in result.stderr
    damage(100)
    result = run_command(info, run_dir, "--json")
    assert json.loads(result.stdout)["run"]["newest_checkpoint"] is None
    assert "all 2 checkpoints" in result.stderr


def test_info_rejects_missing_and_damaged_models_and_runs(run_command, tmp_path, make_model_dir, run_dir):
    with pytest.raises(ModelError, match="there is no such directory"):
        run_command(info, tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        run_command(info, tmp_path)
    (make_model_dir() / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match=r"tokenizer\.json is damaged"):
        run_command(info, tmp_path / "model")
    (run_dir / "config.toml").write_text("preset = ", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        run_command(info, run_dir)


def test_a_model_that_a_writer_put_aside_is_shown(run_command, run_dir, make_bundle):
    save_bundle(run_dir / "model", make_bundle())
    (run_dir / "report.html").write_text("")
    (run_dir / "model").rename(run_dir / ".model.0123456789abcdef.old")
    found = json.loads(run_command(info, run_dir, "--json").stdout)
    assert found["run"]["state"] == "finished"
    assert found["model"]["d_model"] == 22
