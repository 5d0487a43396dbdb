"""Arguments that every command understands alike, and mistakes in them that are named before any work."""

from __future__ import annotations

import shutil

import pytest
import typer
from typer.testing import CliRunner

from clearhead.bundle import bundle as bundles
from clearhead.bundle import save_bundle
from clearhead.cli.average import average
from clearhead.cli.demo import demo
from clearhead.cli.evaluate import evaluate
from clearhead.cli.explain import explain
from clearhead.cli.export import export
from clearhead.cli.import_model import import_model
from clearhead.cli.main import app
from clearhead.cli.optimize import optimize
from clearhead.cli.options import OUTPUT
from clearhead.cli.score import score
from clearhead.cli.serve import api_key
from clearhead.cli.synthesize import distill
from clearhead.cli.translate import translate
from clearhead.data import demo_corpus
from clearhead.errors import ClearheadError


def commands(group=None):
    for command in (group or typer.main.get_command(app)).commands.values():
        yield from commands(command) if isinstance(command, typer.core.TyperGroup) else [command]


def test_every_command_that_writes_names_its_output_option_alike():
    outputs = [
        (one.name, parameter.opts) for one in commands() for parameter in one.params if {*parameter.opts} & {*OUTPUT}
    ]
    assert all(flags == [*OUTPUT] for _, flags in outputs)
    writing = {"train", "translate", "export", "import", "average", "backtranslate", "distill", "explain", "paper"}
    assert writing | {"demo", "evaluate", "check", "convert"} <= {name for name, _ in outputs}


NO_INPUT = "(it is no input, for it does not exist)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("import theirs ours", "argument ours: name the output with -o ours"),
        ("average runs/a models/b", "argument models/b: name the output with -o models/b"),
        ("export model out", "argument out: name the output with -o out"),
        ("train c.toml run", "argument run: name the output with -o run"),
        ("train a.de a.en", "argument a.en: name files with --source, --target or --pairs"),
        ("translate model a.de out.txt", f"argument out.txt: name the output with -o out.txt {NO_INPUT}"),
        ("backtranslate model a.de out.tsv", f"argument out.tsv: name the output with -o out.tsv {NO_INPUT}"),
        ("explain model text p.html", "argument p.html: name the output with -o p.html"),
        ("explain model Ein Hund rennt.", "arguments Hund rennt.: put the text in quotation marks"),
        ("score model a.de a.en", "arguments a.de a.en: name files with --source, --target or --pairs"),
        ("verify model two", "argument two: this command takes MODEL and options alone"),
    ],
)
def test_an_unexpected_argument_is_one_line_that_names_its_option(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    for name in ("a.de", "a.en"):
        (tmp_path / name).touch()
    result = CliRunner().invoke(app, arguments.split())
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"clearhead: unexpected {said}\n")
    assert CliRunner().invoke(app, [*arguments.split(), "--help"]).exit_code == 0


def test_unknown_option_names_the_nearest_alone():
    result = CliRunner().invoke(app, ["translate", "model", "--traget-lang", "de"])
    assert result.exit_code == 2
    assert "--target-lang" in result.stderr
    assert "--source-lang" not in result.stderr


@pytest.mark.parametrize(
    "arguments", ["corpus check a.de none.tsv", "corpus convert a.de none.tsv", "translate model a.de -"]
)
def test_files_that_may_not_be_the_output_are_left_to_the_command(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.de").touch()
    result = CliRunner().invoke(app, arguments.split())
    assert result.exit_code == 1
    assert "unexpected" not in result.stderr


@pytest.fixture
def model(make_bundle, tmp_path):
    save_bundle(tmp_path / "model", make_bundle(), golden=[], card="# A small model\n")
    return tmp_path / "model"


UNEQUAL = "long has 2 lines but file has 1"
NO_DIRECTORY = "file is not a directory that may be changed"


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        (export, "model -o file/out --to transformers", NO_DIRECTORY),
        (export, "model -o model --to huggingface", "model is there already"),
        (export, "model -o out --to hf --precision int8", "int8 is not written with --to hf; choose float32"),
        (
            export,
            "model -o out --to clearhead --precision int8 --source long --target file",
            "long has 2 lines but file has 1",
        ),
        (import_model, "model --output file/out", NO_DIRECTORY),
        (average, "run --out file/out", NO_DIRECTORY),
        (explain, "model text -o file/p.html", NO_DIRECTORY),
        (explain, "model text -o p.png --picture cats", "there is no picture 'cats'"),
        (explain, "model text --ablate --source long --reference file", UNEQUAL),
        (optimize, "model --source long --target file", UNEQUAL),
        (optimize, "locked --source file --target file", "shortlist.safetensors: it is a directory"),
        (score, "model --source long --target file", UNEQUAL),
        (score, "model --source file --target file --alignments file/a", NO_DIRECTORY),
        (score, "model --source file --target file --ensemble nowhere", "no model at nowhere"),
        (translate, "model file -o file/a", NO_DIRECTORY),
        (evaluate, "model --source file --reference nowhere", "nowhere: there is no such file"),
        (evaluate, "model --source file --reference file -o file/a", NO_DIRECTORY),
        (evaluate, "model --source file --reference file --compare nowhere", "no model at nowhere"),
        (translate, "model file --beam 0", "decode.beam_size = 0"),
        (translate, "model file --length-penalty -1", "decode.length_penalty = -1"),
        (translate, "model file --sample --top-p 2", "top_p = 2"),
        (evaluate, "model --source file --reference file --batch-tokens 0", "decode.batch_tokens = 0"),
        (distill, "model file -o out.tsv --beam 0", "decode.beam_size = 0"),
        (score, "model --source file --target file --batch-tokens 0", "decode.batch_tokens = 0"),
        (optimize, "model --source file --target file --batch-tokens 0", "decode.batch_tokens = 0"),
        (explain, "model text --beam 0", "decode.beam_size = 0"),
        (average, "run --out out --device tpu", "unknown device 'tpu'"),
        (demo, "-o file", "file is a file; name a directory for the run"),
    ],
)
def test_mistakes_are_named_before_a_model_is_loaded(
    model, tmp_path, monkeypatch, run_command, command, arguments, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("Ein Hund.\n")
    (tmp_path / "long").write_text("Ein Hund.\nZwei.\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    shutil.copytree(model, tmp_path / "locked")
    (tmp_path / "locked" / "shortlist.safetensors").mkdir()
    for module, name in ((bundles, "_load"), (demo_corpus, "generate")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("work began"))
    with pytest.raises(ClearheadError, match=said):
        run_command(command, *arguments.split())


def test_directories_of_outputs_are_made(model, tmp_path, monkeypatch, run_command):
    monkeypatch.chdir(tmp_path)
    for name in ("a.srt", "b.srt"):
        (tmp_path / name).write_text("1\n00:00:00,000 --> 00:00:01,000\nEin Hund.\n")
    run_command(translate, model, "a.srt", "--out", "c/d/a.en.srt")
    run_command(translate, model, "a.srt", "b.srt", "--output", "c/e")
    run_command(translate, model, "a.srt", "b.srt", "-o", "f/")
    run_command(api_key, "anna", "--keys", "g/keys.jsonl")
    assert (tmp_path / "g" / "keys.jsonl").exists()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("[cf]/**/*.srt")) == [
        *("c/d/a.en.srt", "c/e/a.srt", "c/e/b.srt", "f/a.srt", "f/b.srt")
    ]
