"""`clearhead explain`: every format, and one clear line for whatever cannot be explained."""

from __future__ import annotations

import errno
import json
import os
import shutil

import pytest

from clearhead.bundle import save_bundle
from clearhead.cli import explain as command
from clearhead.cli.explain import explain
from clearhead.errors import ClearheadError, ConfigError, DataError, ModelError
from clearhead.translation.translator import Translator
from commands import clearhead
from every_run import slow

TEXT = "Ein kleiner Hund rennt."


@pytest.fixture(scope="module")
def model(make_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "small"
    sizes = {"num_heads": 2, "num_encoder_layers": 1, "decode": {"beam_size": 2, "extra_length": 2}}
    save_bundle(path, make_bundle(seed=5, **sizes), card="# A small model\n")
    return path


def test_without_a_file_it_is_a_summary(run_command, model):
    translation = Translator.load(model).translate([TEXT])[0].text
    out = run_command(explain, model, TEXT).stdout
    assert out.startswith(f"source       {TEXT}\ntranslation  {translation}\n")
    assert "beam search of 2" in out
    assert "cross 1." in out


def test_explain_json_holds_the_attribution_of_each_word(run_command, model):
    values = json.loads(run_command(explain, model, TEXT, "--format", "json", "--target", "A dog.").stdout)
    assert values["translation"] == "A dog."
    assert values["is_given"]
    assert len(values["attribution"]["occlusion"][0]) == len(values["source_words"]) == 5
    assert values["model"]["name"] == "small"


@pytest.mark.parametrize(
    ("name", "beginning"), [("p.html", b"<!doctype html>"), ("p.json", b"{"), ("P.SVG", b"<?xml"), ("p.txt", b"source")]
)
def test_explain_chooses_the_format_by_the_extension(run_command, model, tmp_path, name, beginning):
    if name == "P.SVG":
        pytest.importorskip("matplotlib")
    (tmp_path / name).write_text("older", encoding="utf-8")
    result = run_command(explain, model, TEXT, "-o", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(beginning)
    assert result.stdout == ""
    assert f"wrote {tmp_path / name}" in result.stderr


def test_explain_writes_a_png_to_standard_output(run_command, model):
    pytest.importorskip("matplotlib")
    result = run_command(explain, model, TEXT, "--format", "png", "--picture", "cross.1.2")
    assert result.stdout_bytes.startswith(b"\x89PNG")


def test_ablation_ranks_every_head_also_on_a_test_set(run_command, model, write_lines):
    files = ["--source", write_lines("a", "Ein Hund.", "Hunde."), "--reference", write_lines("b", "A dog.", "Dogs.")]
    values = json.loads(run_command(explain, model, TEXT, "--ablate", *files, "--format", "json").stdout)["ablation"]
    assert len(values["heads"]) == 3 * 2
    assert values["num_sentences"] == 2
    assert "without each head" in run_command(explain, model, TEXT, "--ablate").stdout


def test_a_walk_prints_what_each_line_computed(run_command, model, tmp_path):
    printed = run_command(explain, model, TEXT, "--walk").stdout
    assert "encoder, layer 1 of 1\n" in printed
    assert "    weights: softmax of the scores (equation 1)\n" in printed
    run_command(explain, model, TEXT, "--walk", "-o", tmp_path / "walk.txt")
    assert (tmp_path / "walk.txt").read_text(encoding="utf-8") == printed
    values = json.loads(run_command(explain, model, TEXT, "--walk", "--format", "json").stdout)
    assert [stage["name"] for stage in values["stages"]][:2] == ["the source", "encoder, layer 1 of 1"]
    run_command(explain, model, TEXT, "--walk", "-o", tmp_path / "walk.html")
    assert "encoder, layer 1 of 1: self-attention" in (tmp_path / "walk.html").read_text(encoding="utf-8")


def test_two_sentences_and_two_models_are_compared(run_command, model, make_model_dir):
    other = make_model_dir("other", num_heads=2, num_encoder_layers=1, seed=8)
    out = run_command(explain, model, TEXT, "--compare", other).stdout
    assert "first (small)" in out
    assert "second (other)" in out
    values = json.loads(
        run_command(explain, model, TEXT, "--compare-text", "Ein Hund.", "--format", "json", "--target", "A").stdout
    )
    assert values["second"]["source"] == "Ein Hund."
    assert not values["is_same_source"]
    page = run_command(explain, model, TEXT, "--compare", other, "--format", "html").stdout
    assert page.startswith("<!doctype html>")
    assert '"clearhead_comparison":1' in page
    assert '"vectors":null' in page


@pytest.mark.parametrize(
    "text",
    [
        *("<script>alert(1)</script> & <b>%s</b>", "a\nb\tc"),
        *(slow("👩‍👩‍👧 犬が走る שלום \u0301"), slow("\U000f0000 </s> <pad>")),
    ],
)
def test_explain_escapes_markup_in_the_text(run_command, model, tmp_path, text):
    values = json.loads(run_command(explain, model, text, "--format", "json").stdout)
    assert values["source"] == text
    run_command(explain, model, text, "-o", tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page


def test_long_sentences_have_numbers_and_a_line_about_what_is_left_out(run_command, model, monkeypatch):
    monkeypatch.setattr(command, "MOST_PRODUCTS", 1e3)
    result = run_command(explain, model, TEXT, "--format", "json")
    assert json.loads(result.stdout)["attribution"] is None
    assert "what each word did is left out" in result.stderr
    result = run_command(explain, model, TEXT, "--format", "json", "--attribution")
    assert json.loads(result.stdout)["attribution"] is not None
    assert result.stderr == ""
    monkeypatch.setattr("clearhead.inspection.explanation.MAX_PAGE_WEIGHTS", 1_000)
    with pytest.raises(DataError, match="a page holds at most 1,000 attention weights"):
        run_command(explain, model, TEXT, "--format", "html")


INVALID = {
    DataError: [
        ([" "], "the text is empty"),
        (["a", "-o", "/dev/null/p.html"], "/dev/null is not a directory that may be changed"),
        (["a", "-o", "{}", "--format", "html"], "it is a directory"),
        (["a", "--ablate", "--source", "{}/x", "--reference", "{}/y"], "x"),
        (["a " * 1100], "the text has .* tokens; at most"),
    ],
    ConfigError: [
        (["a", "-o", "p.docx"], r"what shall p.docx be\? Name it .html, .json"),
        (["a", "--attribution"], "--attribution needs --format html or --format json"),
        (["a", "--picture", "heads"], "--picture needs --format png or --format svg, whose content it selects"),
        (["a", "--picture", "ablation", "--format", "svg"], "--picture ablation needs --ablate"),
        (["a", "--source", "x", "--reference", "y"], "--source, --reference need --ablate, whose test set they are"),
        (["a", "--ablate", "--source", "x"], "--source needs --reference FILE"),
        (["a", "--ablate", "--compare-text", "b"], "--ablate cannot be used with --compare-text"),
        (
            ["a", "--compare-text", "b", "--format", "html", "--attribution"],
            "--attribution cannot be used with a comparison as html, only as json",
        ),
        (["a", "--walk", "-o", "{}/walk.svg"], "--walk needs --format text or --format html or --format json"),
        (["a", "--walk", "--ablate"], "--walk cannot be used with --ablate"),
        (["a", "--target-lang", "fr"], "unknown target language 'fr'"),
        (["a", "--source-lang", "fr"], "--source-lang has no meaning here"),
        (["a", "--source-lang", "fr", "--compare-text", "b"], "--source-lang has no meaning here"),
        (["a", "--beam", "0"], "beam_size"),
    ],
    ModelError: [
        (["a", "--compare", "{}/none"], "no model at .*/none"),
    ],
}


@pytest.mark.parametrize(
    ("error", "arguments", "message"), [(error, *case) for error, cases in INVALID.items() for case in cases]
)
def test_explain_rejects_invalid_arguments(run_command, model, tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        run_command(explain, model, *(argument.format(tmp_path) for argument in arguments))


def test_no_part_of_a_model_is_overwritten(run_command, model, make_model_dir):
    other = make_model_dir("other", num_heads=2, num_encoder_layers=1, seed=8)
    for config, *arguments in [(model / "config.json",), (other / "config.json", "--compare", other)]:
        before = config.read_bytes()
        with pytest.raises(DataError, match="is an input as well"):
            run_command(explain, model, TEXT, "-o", config, *arguments)
        assert config.read_bytes() == before


def test_the_model_of_a_run_has_the_name_of_the_run(run_command, model, tmp_path):
    shutil.copytree(model, tmp_path / "en-de" / "model")
    out = run_command(explain, tmp_path / "en-de" / "model", TEXT, "--compare", model).stdout
    assert "first (en-de/model)" in out
    assert "second (small)" in out


def test_compared_models_with_equal_directory_names_show_their_parents(run_command, model, tmp_path):
    for parent in ("a", "b"):
        shutil.copytree(model, tmp_path / parent / "best")
    out = run_command(explain, tmp_path / "a" / "best", TEXT, "--compare", tmp_path / "b" / "best").stdout
    assert "first (a/best)" in out
    assert "second (b/best)" in out


def test_unknown_picture_is_rejected_with_the_existing_heads(run_command, model):
    pytest.importorskip("matplotlib")
    with pytest.raises(DataError, match=r"no head cross.7.1; encoder has 1 layers of 2"):
        run_command(explain, model, TEXT, "--format", "svg", "--picture", "cross.7.1")


def test_a_place_that_may_not_be_written_to_is_named(run_command, model, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "replace", refuse)  # modes do not hold for root
    with pytest.raises(ClearheadError, match=r"cannot write .*Permission denied"):
        run_command(explain, model, TEXT, "-o", tmp_path / "p.json")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_model_is_one_line(capsys, tmp_path):
    assert clearhead("explain", tmp_path / "none", TEXT) == 1
    assert capsys.readouterr().err.count("\n") == 1
