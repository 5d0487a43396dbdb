from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pytest

from clearhead.bundle import load_bundle, save_bundle
from clearhead.bundle.side_files import ALIGNMENT_FILE, SHORTLIST_FILE, add_side_files
from clearhead.cli.evaluate import evaluate
from clearhead.cli.optimize import SizeOptions, optimize
from clearhead.cli.translate import translate
from clearhead.cli.verify import verify
from clearhead.decoding import Sampling
from clearhead.decoding.shortlist_learning import COMMON, PER_TOKEN
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.translation.translator import Translator

TARGETS = (
    "A small dog runs.",
    "A dog.",
    "Two men sit.",
    "Two men.",
    "On May 3 it cost €12.",
    "It cost.",
    "Boat.",
    "犬",
)


@pytest.fixture
def text(write_lines, sentences):
    return ["--source", write_lines("text.de", *sentences), "--target", write_lines("text.en", *TARGETS)]


def report(result) -> dict[str, str]:
    return dict(re.split(r"  +", line, maxsplit=1) for line in result.stdout.splitlines())


def test_optimize_writes_a_shortlist_used_only_with_shortlist_option(
    run_command, make_model_dir, text, write_lines, sentences
):
    # A text that is broken off as a loop may be encoded in other pieces than it was found in.
    model, source = make_model_dir(decode={"end_loops": False}), text[1]
    full = run_command(translate, model, source).stdout
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    told = report(run_command(optimize, model, *text, "--per-token", 2, "--common", 5))
    after = {path.name: path.read_bytes() for path in model.iterdir()}
    assert after.pop(SHORTLIST_FILE)
    assert after.pop(ALIGNMENT_FILE)
    del before["config.json"], after["config.json"]  # lists them
    assert after == before
    assert told["learned from"] == "8 pairs; 0 too long, 0 with a blank side"
    assert told["always allowed"] == "5 tokens"
    assert told["written"].endswith(f"{SHORTLIST_FILE}, {ALIGNMENT_FILE}")

    assert run_command(translate, model, source).stdout == full
    short = run_command(translate, model, source, "--shortlist", "--format", "jsonl").stdout
    translations = [json.loads(line) for line in short.splitlines()]
    assert [t["text"] for t in translations] != full.splitlines()
    translator = Translator.load(model)
    found = translator.translate(sentences, shortlist=True)
    assert [t.text for t in found] == [t["text"] for t in translations]
    assert translator.shortlist is not None
    tokenizer = translator.bundle.tokenizer
    for ids, translation in zip(tokenizer.encode_sources(sentences), found, strict=True):
        allowed = {*translator.shortlist.common.tolist(), *translator.shortlist.own_tokens(ids).tolist()}
        assert {*translation.tokens} <= {*tokenizer.pieces(sorted(allowed))}
    reference = write_lines("reference", *(t.text for t in found))
    judged = run_command(evaluate, model, "--source", source, "--reference", reference, "--shortlist", "--json")
    assert json.loads(judged.stdout)["exact_match"] == 100.0
    assert run_command(verify, model).exit_code == 0


def test_a_shortlist_of_everything_translates_as_the_model_does(run_command, make_model_dir, text):
    model, source = make_model_dir(), text[1]
    run_command(optimize, model, *text, "--per-token", 300, "--common", 300)
    translator = Translator.load(model)
    shortlist = Translator.load(model)._learned_shortlist()
    rest = set(range(2, translator.bundle.tokenizer.vocab_size)) - set(shortlist.common.tolist())
    shortlist.rows = np.array([sorted(rest)] * len(shortlist.rows), dtype=np.int32)
    add_side_files(model, {SHORTLIST_FILE: shortlist.save}, translator.bundle.identity())
    full = run_command(translate, model, source).stdout
    assert run_command(translate, model, source, "--shortlist").stdout == full


def test_the_report_counts_what_is_passed_over_and_what_is_covered(run_command, make_model_dir, write_lines):
    model = make_model_dir(decode={"max_input_tokens": 11})
    source = write_lines("a", "ab", "", "x", "ab " * 9, "ab")
    target = write_lines("b", "ba", "y", " ", "ba", "ba " * 9)
    told = report(run_command(optimize, model, "--source", source, "--target", target, "--common", 300))
    assert told["learned from"] == "1 pairs; 2 too long, 2 with a blank side"
    assert told["coverage"] == "100.00% of the target tokens in this text"


def test_fewer_allowed_tokens_cover_less(run_command, make_model_dir, text):
    model = make_model_dir()
    reports = [report(run_command(optimize, model, *text, "--per-token", n, "--common", 3)) for n in (1, 2, 9)]
    covered = [float(told["coverage"].split("%")[0]) for told in reports]
    assert covered == sorted(set(covered))
    sizes = [float(told["in a sentence"].split()[0]) for told in reports]
    assert sizes == sorted(set(sizes))


def test_equal_text_gives_equal_bytes_whatever_the_compression(run_command, make_model_dir, text, tmp_path):
    model = make_model_dir()
    run_command(optimize, model, *text)
    first = (model / SHORTLIST_FILE).read_bytes()
    for path in (text[1], text[3]):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    packed = ["--source", tmp_path / "text.de.gz", "--target", tmp_path / "text.en.gz"]
    run_command(optimize, model.parent, *packed, "--per-token", 20, "--common", 1_000)  # the run directory
    assert (model / SHORTLIST_FILE).read_bytes() == first


@pytest.mark.parametrize(("option", "default"), [("per_token", PER_TOKEN), ("common", COMMON)])
def test_the_help_names_the_defaults(option, default):
    assert getattr(SizeOptions, option).show_default == str(default)


def test_a_model_without_a_shortlist_says_how_to_get_one(run_command, make_model_dir, make_bundle, text):
    model = make_model_dir()
    with pytest.raises(ModelError, match=r"the model has no shortlist.*clearhead optimize MODEL --source FILE"):
        run_command(translate, model, text[1], "--shortlist")
    with pytest.raises(ModelError, match="the model has no shortlist"):
        run_command(evaluate, model, "--source", text[1], "--reference", text[3], "--shortlist")
    with pytest.raises(ModelError, match="this model has no shortlist; learn one with"):
        Translator(make_bundle()).translate(["x"], shortlist=True)


def test_foreign_or_damaged_shortlist_is_an_error_only_with_shortlist_option(run_command, make_model_dir, text):
    model, other = make_model_dir(), make_model_dir("other", seed=8)
    identity = load_bundle(model).identity()
    full = run_command(translate, model, text[1]).stdout
    run_command(optimize, other, *text)
    foreign = (other / SHORTLIST_FILE).read_bytes()
    add_side_files(model, {SHORTLIST_FILE: lambda path, _: path.write_bytes(foreign)}, identity)
    with pytest.raises(ModelError, match="was learned with another model; learn one with `clearhead optimize"):
        run_command(translate, model, text[1], "--shortlist")
    add_side_files(model, {SHORTLIST_FILE: lambda path, _: path.write_bytes(b"no tensors")}, identity)
    with pytest.raises(ModelError, match="is damaged; learn one with `clearhead optimize"):
        run_command(translate, model, text[1], "--shortlist")
    assert run_command(translate, model, text[1]).stdout == full
    run_command(optimize, model, *text)
    run_command(translate, model, text[1], "--shortlist")


def test_save_bundle_removes_the_shortlist_of_the_replaced_model(run_command, make_model_dir, text):
    model = make_model_dir()
    run_command(optimize, model, *text)
    save_bundle(model, load_bundle(model))
    assert not (model / SHORTLIST_FILE).exists()


def test_samples_are_drawn_without_a_shortlist(run_command, make_model_dir, text):
    model = make_model_dir()
    run_command(optimize, model, *text)
    with pytest.raises(ConfigError, match="--shortlist cannot be used with --sample"):
        run_command(translate, model, text[1], "--sample", "--shortlist")
    with pytest.raises(ConfigError, match="a shortlist has no meaning for samples"):
        Translator.load(model).translate(["x"], shortlist=True, sampling=Sampling())


def test_optimize_with_language_tags_needs_target_lang(run_command, make_model_dir, text):
    model = make_model_dir(language_tags=("de", "fr"))
    with pytest.raises(ConfigError, match=r"line 1: into which language\?"):
        run_command(optimize, model, *text)
    run_command(optimize, model, *text, "--target-lang", "fr")
    run_command(translate, model, text[1], "--shortlist", "--target-lang", "de")


def test_optimize_rejects_missing_unequal_and_blank_text(run_command, make_model_dir, write_lines, text, tmp_path):
    model = make_model_dir()
    with pytest.raises(DataError, match="nowhere: there is no such file"):
        run_command(optimize, model, "--source", tmp_path / "nowhere", "--target", text[3])
    with pytest.raises(DataError, match=r"has 1 lines but .* has 8"):
        run_command(optimize, model, "--source", write_lines("one", "x"), "--target", text[3])
    empty = write_lines("empty"), write_lines("blank", "", "x"), write_lines("blanks", "y", " ")
    with pytest.raises(DataError, match="hold no pair to learn from: of 0, 0 have a blank side and 0 are too long"):
        run_command(optimize, model, "--source", empty[0], "--target", empty[0])
    with pytest.raises(DataError, match="hold no pair to learn from: of 2, 2 have a blank side"):
        run_command(optimize, model, "--source", empty[1], "--target", empty[2])
    with pytest.raises(ModelError, match="no model at"):
        run_command(optimize, tmp_path / "absent", *text)
    assert run_command(optimize, model, *text, "--per-token", 0).exit_code == 2
    assert not (model / SHORTLIST_FILE).exists()
