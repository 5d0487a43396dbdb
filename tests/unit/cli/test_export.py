"""`clearhead export`: what is written, and when nothing is; tests/reference compares with their library."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from clearhead.bundle import load_bundle
from clearhead.cli.export import export
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.interop import export_model as exports
from clearhead.interop import imported
from clearhead.interop.ctranslate2.model_bin import read_model_bin
from clearhead.interop.ctranslate2.writer import write_ctranslate2
from clearhead.interop.onnx import graph as onnx_graph
from clearhead.interop.onnx import writer as onnx_directory
from clearhead.runtime.installation import pip_install


@pytest.fixture
def uncompared(monkeypatch):
    monkeypatch.setattr(imported, "can_prove", lambda: False)


@pytest.mark.usefixtures("without_their_library")
def test_export_to_hf_writes_a_pegasus_model_and_names_the_differences(make_model_dir, tmp_path, run_command):
    model = make_model_dir(language_tags=("de", "fr"), decode={"beam_size": 3, "length_penalty": 0.4})
    output = tmp_path / "theirs"
    said = run_command(export, model, "-o", output, "--to", "hf")
    assert f"written  {output}, a pegasus model" in said.stdout
    assert f"not compared with transformers: {pip_install('interop')}" in said.stdout
    assert "divides scores by length ** 0.4, not by ((5 + length) / 6) ** 0.4" in said.stderr
    assert "does not end repetition loops" in said.stderr
    assert "positions for 1,024 tokens" in said.stderr
    assert "begin each text with the tag of its target language, such as '<2de> '\n" in said.stderr
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in output.iterdir()} == names
    generation = json.loads((output / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["length_penalty"]) == (3, 0.4)
    assert generation["early_stopping"] == "never"
    asked = json.loads((output / "tokenizer_config.json").read_text())
    assert asked["additional_special_tokens"] == ["<2de>", "<2fr>"]
    assert load_file(output / "model.safetensors")["model.encoder.embed_positions.weight"].shape == (1_024, 22)


@pytest.mark.parametrize(("beam_size", "early_stopping"), [(1, False), (2, "never")])
def test_export_sets_early_stopping_for_beams_only(make_bundle, tmp_path, monkeypatch, beam_size, early_stopping):
    monkeypatch.setattr(imported, "can_prove", lambda: False)
    exports.export_directory(make_bundle(decode={"beam_size": beam_size}), tmp_path / "theirs", "hf", [])
    generation = json.loads((tmp_path / "theirs" / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["early_stopping"]) == (beam_size, early_stopping)


@pytest.mark.parametrize("positions", ["sinusoidal_halves", "learned", "rotary", "relative"])
def test_ctranslate2_has_vectors_of_positions_where_the_model_adds_them(make_bundle, tmp_path, positions):
    bundle = make_bundle(positions=positions, d_k=2, d_v=2, max_positions=53)
    write_ctranslate2(bundle, tmp_path, "float32")
    tensors = read_model_bin(tmp_path / "model.bin").tensors
    for side, embedding in (("encoder", bundle.model.source_embedding), ("decoder", bundle.model.target_embedding)):
        name = f"{side}/position_encodings/encodings"
        assert (name in tensors) == (positions in ("sinusoidal_halves", "learned"))
        if positions == "sinusoidal_halves":
            angle = np.arange(53)[:, None] / 10_000 ** (np.arange(11) / 11)
            expected = np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)
            np.testing.assert_allclose(tensors[name].numpy(), expected, rtol=0, atol=1e-6)
        elif positions == "learned":
            assert tensors[name].equal(embedding.positions.weight)


@pytest.mark.parametrize("to", ["hf", "ctranslate2", "onnx"])
def test_a_language_that_is_written_by_default_must_be_asked_for_elsewhere(make_bundle, tmp_path, monkeypatch, to):
    monkeypatch.setattr(imported, "can_prove", lambda: False)
    bundle = make_bundle(language_tags=("de", "fr"), decode={"target_lang": "fr"})
    notes = exports.export_directory(bundle, tmp_path / "theirs", to, ["Ein kleiner Hund"])[2]
    assert any("such as '<2fr> '; without one, only clearhead translates into fr" in note for note in notes)
    assert any("positions for 1,024 tokens" in note for note in notes) is (to != "onnx")


def test_a_page_is_one_file_or_a_folder(make_model_dir, tmp_path, run_command):
    model = make_model_dir("de-en", d_model=64, num_heads=2, d_ff=64)
    page = tmp_path / "page.html"
    printed = run_command(export, model, "-o", page, "--to", "web", "--precision", "int8", "--single-file").output
    assert f"open     {page}, by double click" in printed
    assert "<title>de-en: translate</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    run_command(export, model, "-o", tmp_path / "one", "--to", "web", "--single-file")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["index.html"]
    printed = run_command(export, model, "-o", tmp_path / "folder", "--to", "web").output
    assert "python -m http.server -d" in printed
    assert {"index.html", "model.safetensors", "tokenizer.json", "service-worker.js"} <= {
        path.name for path in (tmp_path / "folder").iterdir()
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--to", "onnx", "--single-file"], "--single-file needs --to web"),
        (["--to", "hf", "--module"], "--module needs --to web"),
        (["--to", "web", "--module", "--single-file"], "--module cannot be used with --single-file"),
        (
            ["--to", "web", "--precision", "bf16"],
            "--precision bf16 is not written with --to web; choose float32",
        ),
    ],
)
def test_options_of_a_page_are_checked(make_model_dir, tmp_path, run_command, options, says):
    with pytest.raises(ConfigError, match=says):
        run_command(export, make_model_dir(), "-o", tmp_path / "page", *options)


@pytest.mark.usefixtures("without_their_library")
def test_export_does_not_replace_an_existing_directory(make_model_dir, tmp_path, run_command):
    (tmp_path / "mine").mkdir()
    with pytest.raises(ModelError, match="mine is there already; choose another name, or --force to replace it"):
        run_command(export, make_model_dir(), "-o", tmp_path / "mine", "--to", "hf")
    assert not list((tmp_path / "mine").iterdir())


EXPORTS = {
    "hf": ["--to", "hf"],
    "ctranslate2": ["--to", "ctranslate2"],
    "onnx": ["--to", "onnx"],
    "small": ["--to", "clearhead", "--precision", "bf16"],
    "folder": ["--to", "web"],
    "page in a folder": ["--to", "web", "--single-file"],
    "page": ["--to", "web", "--single-file"],
    "module": ["--to", "web", "--module"],
}


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in ([path] if path.is_file() else path.iterdir())}


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("kind", EXPORTS)
def test_an_export_is_replaced_with_force_only_and_other_files_are_kept(make_model_dir, tmp_path, run_command, kind):
    first, second = (make_model_dir(name, d_model=64, num_heads=2, d_ff=64, num_decoder_layers=n) for name, n in MODELS)
    output = tmp_path / ("page.html" if kind == "page" else "out")
    run_command(export, first, "-o", output, *EXPORTS[kind])
    before = contents(output)
    with pytest.raises(ModelError, match="is there already; choose another name, or --force to replace it"):
        run_command(export, second, "-o", output, *EXPORTS[kind])
    assert contents(output) == before
    if kind != "page":
        (output / "notes.txt").write_text("mine")
    run_command(export, second, "-o", output, *EXPORTS[kind], "--force")
    after = contents(output)
    assert kind == "page" or after.pop("notes.txt") == b"mine"
    assert after.keys() == before.keys()
    assert after != before
    (tmp_path / "other").mkdir()
    run_command(export, second, "-o", tmp_path / "other" / output.name, *EXPORTS[kind])
    there = contents(tmp_path / "other" / output.name)
    assert {name for name in after if after[name] != there[name]} <= {"README.md", "config.json"}  # their names


MODELS = (("first", 1), ("second", 2))


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("kind", EXPORTS)
@pytest.mark.parametrize("there", ["file", "files", "model", "config", "html", "other export"])
def test_force_replaces_only_exports_of_the_same_kind(make_model_dir, tmp_path, run_command, kind, there):
    model = make_model_dir(d_model=64, num_heads=2, d_ff=64)
    output = tmp_path / ("page.html" if kind == "page" else "out")
    match there:
        case "file":
            output.write_text("mine")
        case "files":
            output.mkdir()
            (output / "notes.txt").write_text("mine")
        case "model":
            output = model
        case "config":  # such as a model that transformers has published
            output.mkdir()
            (output / "config.json").write_text('{"model_type": "marian", "clearhead": {"format_version": 1}}')
        case "html":
            output.mkdir()
            (output / "index.html").write_text("<!doctype html><title>mine</title>")
            (output / "index.js").write_text("export const mine = 1;")
        case "other export":
            run_command(export, model, "-o", output, *EXPORTS["hf" if "web" in EXPORTS[kind] else "page"])
    before = contents(output)
    with pytest.raises(ModelError, match="is there already; choose another name, or remove it first"):
        run_command(export, model, "-o", output, *EXPORTS[kind], "--force")
    assert contents(output) == before


@pytest.mark.usefixtures("uncompared")
def test_an_export_in_another_library_leaves_no_file_of_the_first(make_model_dir, tmp_path, run_command):
    model = make_model_dir()
    for number, to in enumerate(("hf", "ctranslate2", "onnx", "hf")):
        run_command(export, model, "-o", tmp_path / "out", "--to", to, *["--force"] * (number > 0))
        run_command(export, model, "-o", tmp_path / f"alone-{number}", "--to", to)
        assert contents(tmp_path / "out") == contents(tmp_path / f"alone-{number}")


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("kind", ["hf", "folder", "page"])
def test_an_export_that_fails_leaves_the_earlier_one(make_model_dir, tmp_path, run_command, monkeypatch, kind):
    model = make_model_dir(d_model=64, num_heads=2, d_ff=64)
    output = tmp_path / ("page.html" if kind == "page" else "out")
    run_command(export, model, "-o", output, *EXPORTS[kind])
    before, names = contents(output), sorted(tmp_path.iterdir())

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ModelError, match="No space left on device"):
        run_command(export, model, "-o", output, *EXPORTS[kind], "--force")
    assert contents(output) == before
    assert sorted(tmp_path.iterdir()) == names


@pytest.mark.usefixtures("uncompared")
@pytest.mark.parametrize("kind", ["hf", "folder", "page"])
def test_a_path_created_during_an_export_is_not_replaced(make_model_dir, tmp_path, run_command, monkeypatch, kind):
    model, write = make_model_dir(d_model=64, num_heads=2, d_ff=64), Path.write_bytes
    output = tmp_path / ("page.html" if kind == "page" else "out")
    mine = output if kind == "page" else output / "notes.txt"

    def write_beside(path, data):
        if not mine.exists():
            mine.parent.mkdir(exist_ok=True)
            write(mine, b"mine")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_beside)
    with pytest.raises(ModelError, match="is there already; choose another name, or remove it first"):
        run_command(export, model, "-o", output, *EXPORTS[kind])
    assert contents(output) == {mine.name: b"mine"}


@pytest.mark.parametrize("to", ["hf", "ctranslate2", "onnx"])
def test_export_directory_says_so_if_there_are_no_sentences_to_compare(make_bundle, tmp_path, monkeypatch, to):
    monkeypatch.setattr(imported, "can_prove", lambda: True)
    _, compared, _ = exports.export_directory(make_bundle(), tmp_path / "theirs", to, [])
    assert compared == "not compared: the vocabulary has no words to make sentences of"


def test_export_writes_nothing_when_the_comparison_fails(make_model_dir, tmp_path, run_command, monkeypatch):
    model = make_model_dir()
    monkeypatch.setattr(imported, "can_prove", lambda: True)

    def differs(directory, kind, bundle, sources):
        assert (directory / "model.safetensors").exists()
        assert len(sources) == 8
        raise ModelError("another text")

    monkeypatch.setattr(exports, "prove_huggingface", differs)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ModelError, match="another text"):
        run_command(export, model, "-o", tmp_path / "theirs", "--to", "hf")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.usefixtures("without_their_library")
def test_a_killed_export_leaves_all_or_nothing_and_can_be_run_again(
    make_model_dir, tmp_path, run_command, killed_at_flushes
):
    model, output = make_model_dir(), tmp_path / "theirs"
    run_command(export, model, "-o", tmp_path / "whole", "--to", "hf")
    files = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    ended = []
    for status in killed_at_flushes(lambda: run_command(export, model, "-o", output, "--to", "hf"), every=3):
        ended.append(status)
        if output.exists():
            assert {path.name: path.read_bytes() for path in output.iterdir()} == files
            break  # killed after the rename: the new file stays
    assert len(ended) > 3
    assert output.exists()


@pytest.mark.parametrize("to", ["hf", "ctranslate2", "onnx"])
def test_an_interrupted_export_leaves_nothing(make_model_dir, tmp_path, run_command, monkeypatch, to):
    model = make_model_dir()
    before = sorted(tmp_path.iterdir())

    def interrupt(directory, *_):
        assert (directory / "config.json").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(imported, "can_prove", lambda: True)
    for name in ("prove_huggingface", "prove_ctranslate2", "prove_onnx"):
        monkeypatch.setattr(exports, name, interrupt)
    assert run_command(export, model, "-o", tmp_path / "theirs", "--to", to).exit_code == 130
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("without_their_library")
def test_export_rejects_models_and_precisions_the_target_format_lacks(make_model_dir, tmp_path, run_command):
    with pytest.raises(
        ConfigError,
        match=r"no kind of model in Hugging Face transformers can hold this one; of the nearest, m2m_100, differs: "
        r"model\.positions is 'rotary' \('sinusoidal_t2t' there\); --to onnx writes it$",
    ):
        run_command(export, make_model_dir(positions="rotary"), "-o", tmp_path / "theirs", "--to", "hf")
    none = make_model_dir(positions="none", output_transform=True)
    refused = r"CTranslate2 cannot hold this model: model\.output_transform = True; .*model\.positions = 'none'"
    with pytest.raises(ConfigError, match=refused):
        run_command(export, none, "-o", tmp_path / "theirs", "--to", "ctranslate2")
    theirs = make_model_dir(positions="relative", d_k=3, d_v=4, final_norm=False, num_target_segments=2)
    refused = r"d_v is 4 \(CTranslate2 has 3\).*final_norm is False .*num_target_segments = 2;"
    with pytest.raises(ConfigError, match=refused):
        run_command(export, theirs, "-o", tmp_path / "theirs", "--to", "ctranslate2")
    buckets = {"relative_attention_num_buckets": 14, "relative_attention_max_distance": 441}
    theirs = make_model_dir(positions="relative", **buckets)
    with pytest.raises(ConfigError, match=r"max_distance is 441 \(of 14 rows distance 244 has another there\)"):
        run_command(export, theirs, "-o", tmp_path / "theirs", "--to", "ctranslate2")
    with pytest.raises(ConfigError, match="--precision int8 is not written with --to hf; choose float32"):
        run_command(export, make_model_dir(), "-o", tmp_path / "theirs", "--to", "hf", "--precision", "int8")
    with pytest.raises(ConfigError, match="--precision float16 is not written with --to onnx; choose float32 or int8"):
        run_command(export, make_model_dir(), "-o", tmp_path / "theirs", "--to", "onnx", "--precision", "float16")
    assert not (tmp_path / "theirs").exists()
    with pytest.raises(ModelError, match="no model at"):
        run_command(export, tmp_path / "nowhere", "-o", tmp_path / "theirs", "--to", "hf")


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_onnx_files_are_written_and_compared(make_model_dir, tmp_path, run_command, precision):
    output = tmp_path / "theirs"
    said = run_command(export, make_model_dir(), "-o", output, "--to", "onnx", "--precision", precision)
    assert f"written  {output}, a model in {precision}" in said.stdout
    assert "proof    8 sentences: with the cache and without, scores differ by" in said.stdout
    names = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    files = {"encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"}
    assert {path.name for path in output.iterdir()} == names | files
    config = json.loads((output / "config.json").read_text())
    assert (config["model_type"], config["decoder_start_token_id"]) == ("pegasus", 1)
    assert "calls it marian" not in said.stderr
    assert "use_io_binding" not in said.stderr


def test_onnx_export_of_a_model_unknown_to_transformers_prints_a_note(make_model_dir, tmp_path, run_command):
    said = run_command(export, make_model_dir(positions="rotary", d_k=4), "-o", tmp_path / "theirs", "--to", "onnx")
    assert "transformers has no such model: config.json calls it marian" in said.stderr
    assert "give Optimum use_io_binding=False" in said.stderr
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["model_type"] == "marian"


def test_onnx_export_with_wrong_scores_is_not_written(make_model_dir, tmp_path, run_command, monkeypatch):
    model, norm = make_model_dir(), onnx_graph.Graph.norm
    monkeypatch.setattr(
        onnx_graph.Graph, "norm", lambda graph, x, ours: graph.op("Mul", norm(graph, x, ours), np.float32(1.1))
    )
    before = sorted(tmp_path.iterdir())
    with pytest.raises(
        ModelError, match=r"a translation has another score in onnxruntime, by \d.* a token; nothing was wr"
    ):
        run_command(export, model, "-o", tmp_path / "theirs", "--to", "onnx")
    assert sorted(tmp_path.iterdir()) == before


def test_ctranslate2_export_without_it_names_it_and_makes_no_module(make_model_dir, tmp_path, monkeypatch):
    bundle = load_bundle(make_model_dir())
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(ModelError, match=re.escape(f"CTranslate2 is not installed: {pip_install('interop')}")):
        write_ctranslate2(bundle, tmp_path, "float32")
    assert "own_module" not in vars(bundle.weights)


def test_onnx_export_names_missing_packages(make_model_dir, tmp_path, run_command, monkeypatch):
    model = make_model_dir()
    monkeypatch.setattr(
        onnx_directory.importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else name
    )
    with pytest.raises(ModelError, match=re.escape(f"not installed: onnxruntime; {pip_install('interop')}")):
        run_command(export, model, "-o", tmp_path / "theirs", "--to", "onnx")
    monkeypatch.setattr(onnx_directory.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="not installed: onnx, onnxruntime; pip install"):
        run_command(export, model, "-o", tmp_path / "theirs", "--to", "onnx")
    assert not (tmp_path / "theirs").exists()


def test_onnx_export_on_a_full_disk_or_above_most_bytes_leaves_nothing(
    make_model_dir, tmp_path, run_command, monkeypatch
):
    model = make_model_dir()
    before = sorted(tmp_path.iterdir())

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(ModelError, match=r"cannot write .*theirs: No space left on device"):
            run_command(export, model, "-o", tmp_path / "theirs", "--to", "onnx")
    monkeypatch.setattr(onnx_graph, "MOST_BYTES", 30_000)
    with pytest.raises(
        ConfigError, match=r"encoder_model\.onnx would hold 0\.0 GiB of weights, and an ONNX file ends at 2"
    ):
        run_command(export, model, "-o", tmp_path / "theirs", "--to", "onnx")
    assert sorted(tmp_path.iterdir()) == before


def test_half_a_model_is_not_written_as_onnx(make_bundle, tmp_path):
    bundle = make_bundle(num_decoder_layers=0)
    with pytest.raises(ConfigError, match="this model has an encoder or a decoder alone"):
        exports.export_directory(bundle, tmp_path / "theirs", "onnx", [])


@pytest.mark.parametrize("to", ["hf", "ctranslate2", "onnx"])
def test_a_model_that_translates_in_int8_is_compared_in_float32_as_the_other_library_computes(
    make_bundle, tmp_path, sentences, to
):
    bundle = make_bundle(d_model=64, num_heads=2, d_ff=64, decode={"precision": "int8"})
    exports.export_directory(bundle, tmp_path / "theirs", to, sentences[:4])
    assert (tmp_path / "theirs").is_dir()


def test_a_small_model_is_not_compared_on_no_lines(make_model_dir, tmp_path, run_command, write_lines):
    small = [export, make_model_dir(), "-o", tmp_path / "small", "--to", "clearhead", "--precision", "bf16"]
    empty = write_lines("empty")
    for lines in (["--source", empty], ["--source", empty, "--target", empty]):
        with pytest.raises(DataError, match=rf"^{re.escape(str(empty))} has no lines to compare the models on$"):
            run_command(*small, *lines)
    assert not (tmp_path / "small").exists()


def test_a_place_that_cannot_be_written_is_refused_before_the_work(make_model_dir, tmp_path, run_command, monkeypatch):
    monkeypatch.setattr("clearhead.translation.small_model.Translator", None)
    monkeypatch.setattr("clearhead.interop.export_model.write_huggingface", None)
    model, file = make_model_dir(), tmp_path / "file"
    file.touch()
    for to in (["hf"], ["clearhead", "--precision", "int8"]):
        with pytest.raises(ModelError, match=rf"cannot write to {file / 'a' / 'b'}: {file} is not a directory"):
            run_command(export, model, "-o", file / "a" / "b", "--to", *to)


def test_a_small_model_is_compared_on_given_lines(make_model_dir, tmp_path, run_command, write_lines, sentences):
    model = make_model_dir(d_model=64, num_heads=2, d_ff=64)
    source, target = write_lines("source", *sentences), write_lines("target", *sentences)
    small = [export, model, "-o", tmp_path / "small", "--to", "clearhead", "--precision", "int8"]
    said = run_command(*small, "--source", source, "--target", target).stdout.splitlines()
    assert said[0] == f"read     {model}"
    assert said[1].startswith(f"written  {tmp_path / 'small'}, a model in int8, ")
    assert said[2].startswith("compared ")
    assert said[2].endswith(f" of {len(sentences)} lines are translated alike")
    assert [line.split()[1] for line in said[3:]] == ["BLEU", "chrF2"]
    assert run_command(export, model, "-o", tmp_path / "other", *small[4:], "--source", source).stdout.count("\n") == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "clearhead"], "--precision float32 is not written with --to clearhead; choose int8 or bf16"),
        (["--to", "clearhead", "--precision", "int16"], "--precision int16 is not written with --to clearhead"),
        (
            ["--to", "hf", "--precision", "bf16"],
            "--precision bf16 is not written with --to hf; choose float32",
        ),
        (["--to", "hf", "--source", "FILE"], "--source needs --to clearhead, whose translations are compared on it"),
        (["--to", "clearhead", "--precision", "int8", "--target", "FILE"], "--target needs --source FILE"),
    ],
)
def test_precisions_and_options_that_do_not_go_together_are_named(
    make_model_dir, tmp_path, run_command, write_lines, options, said
):
    if "FILE" in options:
        options = [*options[:-1], write_lines("lines", "a")]
    with pytest.raises(ConfigError, match=said):
        run_command(export, make_model_dir(), "-o", tmp_path / "other", *options)
    assert not (tmp_path / "other").exists()
