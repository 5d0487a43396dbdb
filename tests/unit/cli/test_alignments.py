"""Links of words, as the commands write and judge them."""

from __future__ import annotations

import json

import pytest

from clearhead.cli.evaluate import evaluate
from clearhead.cli.score import score
from clearhead.cli.translate import translate
from clearhead.errors import ConfigError, DataError
from clearhead.text.word_links import pharaoh
from clearhead.translation.translator import Translator

LINES = ["Ein kleiner Hund rennt. Zwei Männer sitzen.", "", "犬が走る。"]


@pytest.fixture
def model(make_model_dir):
    return make_model_dir(num_decoder_layers=2)


@pytest.fixture
def source(write_lines):
    return write_lines("source.txt", *LINES)


def test_a_line_of_links_for_each_line_of_text(run_command, model, source, tmp_path):
    for extra in ([], ["--nbest", 2], ["--split", "always"], ["--align-by", "occlusion"]):
        links = tmp_path / "links.txt"
        run_command(translate, model, source, "--alignments", links, *extra)
        settings = {"split": "always"} if "--split" in extra else {}
        settings |= {"align_by": "occlusion"} if "--align-by" in extra else {}
        found = Translator.load(model).translate(LINES, alignments=True, one_line=True, **settings)
        assert links.read_text().splitlines() == [pharaoh(line.alignment) for line in found]


def test_objects_have_links_when_asked(run_command, model, source, tmp_path):
    def read(*options):
        printed = run_command(translate, model, source, "--format", "jsonl", *options).stdout
        return [json.loads(line) for line in printed.splitlines()]

    found = Translator.load(model).translate(LINES, alignments=True)
    for target in ("-", tmp_path / "links.txt"):
        objects = read("--alignments", target)
        assert [[tuple(link) for link in one["alignment"]] for one in objects] == [list(one.alignment) for one in found]
    assert (tmp_path / "links.txt").read_text().count("\n") == len(LINES)
    assert not any("alignment" in one for one in read())


def test_given_translations_are_aligned_and_judged(run_command, model, source, write_lines, tmp_path):
    targets = ["A small dog runs. Two men sit.", "", "A dog runs."]
    target, links = write_lines("target.txt", *targets), tmp_path / "links.txt"
    run_command(score, model, "--source", source, "--target", target, "--alignments", links)
    expected = Translator.load(model).align(LINES, targets)
    assert links.read_text().splitlines() == list(map(pharaoh, expected))

    gold = write_lines("gold.txt", pharaoh(expected[0]) + " 0?1", "", "0-0")
    sides = "--source", source, "--reference", target, "--gold-alignments", gold, "--beam", 1
    # The Japanese line is one word where white space alone parts words, and each of the others is linked to it.
    result = json.loads(run_command(evaluate, model, *sides, "--json").stdout)["alignment"]
    right = len(expected[0]) + 1
    assert result["sure"] == right
    assert result["links"] == len(expected[0]) + 3
    assert result["recall"] == 1.0
    assert result["error_rate"] == pytest.approx(1 - (right + right) / (right + 2 + right))
    printed = run_command(evaluate, model, *sides, "--align-by", "occlusion").stdout
    assert "alignment: precision" in printed.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alignments", "-"], "--alignments - would be mixed with the translations"),
        (["--align-by", "attention"], "--align-by needs --alignments FILE"),
        (
            ["--alignments", "x.txt", "--paragraphs"],
            "--alignments cannot be used with a document, only",
        ),
    ],
)
def test_translate_rejects_invalid_alignment_options(run_command, model, source, options, message):
    with pytest.raises(ConfigError, match=message):
        run_command(translate, model, source, *options)


def test_alignment_output_conflicts_and_invalid_options_of_score_and_evaluate(
    run_command, model, source, write_lines, tmp_path
):
    with pytest.raises(DataError, match="is an input as well"):
        run_command(translate, model, source, "--alignments", source)
    with pytest.raises(ConfigError, match="is where the translations go"):
        run_command(translate, model, source, "--alignments", tmp_path / "x", "-o", f"{tmp_path}/./x")
    pair = "--source", source, "--target", source
    with pytest.raises(ConfigError, match="--alignments - would be mixed with the scores"):
        run_command(score, model, *pair, "--alignments", "-")
    with pytest.raises(ConfigError, match="--align-by needs --alignments FILE"):
        run_command(score, model, *pair, "--align-by", "occlusion")
    sides = "--source", source, "--reference", source
    with pytest.raises(ConfigError, match="--gold-base needs --gold-alignments FILE"):
        run_command(evaluate, model, *sides, "--gold-base", 1)
    with pytest.raises(DataError, match="has links of 1 sentences, but there are 3"):
        run_command(evaluate, model, *sides, "--gold-alignments", write_lines("gold.txt", "0-0"))
    with pytest.raises(ConfigError, match="--gold-alignments cannot be used with --hypothesis"):
        run_command(evaluate, "--hypothesis", source, "--reference", source, "--gold-alignments", source)
