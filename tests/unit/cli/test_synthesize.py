from __future__ import annotations

import pytest

from clearhead.cli.synthesize import backtranslate, distill
from clearhead.errors import ConfigError, DataError
from clearhead.formats import read_pairs
from clearhead.translation.translator import Translator


@pytest.fixture
def model(make_model_dir):
    return make_model_dir(seed=6, printable=True, decode={"beam_size": 2, "extra_length": 60})


def test_a_model_writes_one_side_of_the_pairs(run_command, model, write_lines, sentences, tmp_path):
    text = [write_lines("a.txt", *sentences[:3]), write_lines("b.txt", *sentences[3:])]
    done = run_command(backtranslate, model, *text, "-o", tmp_path / "back.tsv")
    run_command(distill, model, *text, "-o", tmp_path / "distilled.tsv.gz")
    assert f"{len(sentences)} lines read" in done.stderr
    back = [(pair.source, pair.target) for pair in read_pairs([str(tmp_path / "back.tsv")])]
    taught = [(pair.source, pair.target) for pair in read_pairs([str(tmp_path / "distilled.tsv.gz")])]
    assert back == [(target, source) for source, target in taught]
    translations = {one.source: one for one in Translator.load(model).translate(list(sentences))}
    assert set(taught) <= {(line, one.text) for line, one in translations.items()}
    assert len(taught) == sum(bool(one.text.strip()) and not one.truncated for one in translations.values())


def test_samples_differ_by_seed(run_command, model, write_lines, sentences, tmp_path):
    text = write_lines("a.txt", *sentences)
    for seed in (1, 2):
        run_command(backtranslate, model, text, "-o", tmp_path / f"{seed}.tsv", "--sample", "--seed", seed)
    assert (tmp_path / "1.tsv").read_bytes() != (tmp_path / "2.tsv").read_bytes()


def test_split_source_lang_and_as_is_are_passed_to_translate(run_command, model, write_lines, tmp_path, monkeypatch):
    given, translate = [], Translator.translate
    monkeypatch.setattr(Translator, "translate", lambda *args, **how: given.append(how) or translate(*args, **how))
    text = write_lines("a.txt", "Ein kleiner Hund rennt.", "Zwei Männer sitzen auf einer Bank.")
    options = ["--split", "always", "--source-lang", "de", "--as-is"]
    for command in (backtranslate, distill):
        run_command(command, model, text, "-o", tmp_path / "pairs.tsv", *options)
        assert given.pop().items() >= {"split": "always", "source_lang": "de", "familiar": False}.items()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", 2], "--seed needs --sample"),
        (
            ["--sample", "--beam", 7, "--precision", "bf16"],
            "--beam, --precision cannot be used with --sample, which draws",
        ),
    ],
)
def test_idle_options_are_refused(run_command, model, write_lines, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        run_command(backtranslate, model, write_lines("a.txt", "Ein Hund."), "-o", tmp_path / "out.tsv", *options)


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        ("pairs.txt", ConfigError, "pairs are written as .tsv, .jsonl"),
        ("pairs.tsv.txt", ConfigError, "pairs are written as .tsv, .jsonl"),
        ("a.txt/pairs.tsv", DataError, "a.txt is not a directory that may be changed"),
    ],
)
def test_distill_rejects_unusable_files(run_command, model, write_lines, tmp_path, output, error, message):
    with pytest.raises(error, match=message):
        run_command(distill, model, write_lines("a.txt", "Ein Hund."), "-o", tmp_path / output)
    with pytest.raises(DataError, match="there is no such file"):
        run_command(distill, model, tmp_path / "none.txt", "-o", tmp_path / "out.tsv")
    with pytest.raises(DataError, match=r"no pair could be made; 2 lines read; 0 kept; 2 dropped: blank"):
        run_command(distill, model, write_lines("blank.txt", "", " "), "-o", tmp_path / "out.tsv")
    assert not (tmp_path / "out.tsv.parts").exists()
    with pytest.raises(DataError, match=r"page\.html is a document; give its text in a \.txt file"):
        run_command(distill, model, write_lines("page.html", "<p>Ein Hund.</p>"), "-o", tmp_path / "out.tsv")
    with pytest.raises(DataError, match=r"\.vue files are not read as documents"):
        run_command(backtranslate, model, write_lines("page.vue", "<p>Ein Hund.</p>"), "-o", tmp_path / "out.tsv")
    assert not (tmp_path / "out.tsv").exists()
