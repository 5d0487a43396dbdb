from __future__ import annotations

import csv
import re

import pytest

from clearhead.cli.score import score
from clearhead.errors import ConfigError, DataError
from clearhead.translation.translator import Translator


def test_score_prints_one_score_per_line(run_command, make_model_dir, write_lines, sentences):
    sources, targets = [*sentences, "", "x"], [*reversed(sentences), "y", ""]
    model = make_model_dir()
    result = run_command(score, model, "--source", write_lines("a", *sources), "--target", write_lines("b", *targets))
    lines = result.stdout.split("\n")
    assert lines.pop() == ""
    assert all(re.fullmatch(r"-\d+\.\d{6}", line) for line in lines)
    expected = Translator.load(model).score(sources, targets)
    assert lines == [f"{value:.6f}" for value in expected]


def test_scores_go_to_a_file(run_command, make_model_dir, write_lines, tmp_path):
    files = ["--source", source := write_lines("a", "Ein Hund.", ""), "--target", write_lines("b", "A dog.", "")]
    model, output = make_model_dir(), tmp_path / "scores.txt"
    assert run_command(score, model, *files, "-o", output).stdout == ""
    assert output.read_text() == run_command(score, model, *files).stdout
    with pytest.raises(DataError, match="is an input as well"):
        run_command(score, model, *files, "-o", source)
    with pytest.raises(ConfigError, match="where the scores go"):
        run_command(score, model, *files, "-o", output, "--alignments", output)


def test_one_side_or_both_may_be_standard_input(run_command, make_model_dir, write_lines):
    model, source, target = make_model_dir(), write_lines("a", "Ein Hund."), write_lines("b", "A dog.")
    expected = run_command(score, model, "--source", source, "--target", target).stdout
    assert run_command(score, model, "--source", source, "--target", "-", stdin="A dog.\n").stdout == expected
    both = run_command(score, model, "--pairs", "-", stdin="Ein Hund.\tA dog.\n")
    assert both.stdout == expected
    assert "standard input: tab-separated, 2 columns; from column 1 to column 2" in both.stderr
    with pytest.raises(DataError, match=r"standard input \(-\) is named more than once"):
        run_command(score, model, "--source", "-", "--target", "-", stdin="x\n")


def test_unequal_files_are_refused_with_both_counts(run_command, make_model_dir, write_lines):
    source, target = write_lines("a", "1", "2", "3"), write_lines("b", "1", "2")
    with pytest.raises(DataError, match=r"has 3 lines but .* has 2"):
        run_command(score, make_model_dir(), "--source", source, "--target", target)


def test_empty_files_have_no_scores(run_command, make_model_dir, write_lines):
    result = run_command(score, make_model_dir(), "--source", write_lines("a"), "--target", write_lines("b"))
    assert (result.stdout, result.exit_code) == ("", 0)


def test_score_with_language_tags_needs_target_lang_and_depends_on_it(run_command, make_model_dir, write_lines):
    model = make_model_dir(language_tags=("de", "fr"))
    files = ["--source", write_lines("a", "Ein Hund."), "--target", write_lines("b", "A dog.")]
    with pytest.raises(ConfigError, match=r"a, line 1: into which language\?.*de, fr"):
        run_command(score, model, *files)
    german, french = (run_command(score, model, *files, "--target-lang", lang).stdout for lang in ("de", "fr"))
    assert german != french
    tagged = ["--source", write_lines("c", "<2fr> Ein Hund."), *files[2:]]
    assert run_command(score, model, *tagged).stdout == french


def test_score_rejects_source_lang_without_source_language_tokens(run_command, make_model_dir, write_lines):
    files = ["--source", write_lines("a", "Ein Hund."), "--target", write_lines("b", "A dog.")]
    with pytest.raises(ConfigError, match="--source-lang has no meaning here: this model is not told the language"):
        run_command(score, make_model_dir(), *files, "--source-lang", "de")


def test_both_files_are_required(run_command, make_model_dir, write_lines, tmp_path):
    model, source = make_model_dir(), write_lines("a", "x")
    for given in ([], ["--source", source], ["--target", source]):
        with pytest.raises(ConfigError, match="score needs --source FILE and --target FILE, or --pairs FILE"):
            run_command(score, model, *given)
    with pytest.raises(ConfigError, match="--source cannot be used with --pairs, which contains both sides"):
        run_command(score, model, "--pairs", source, "--source", source)
    with pytest.raises(DataError, match="nowhere: there is no such file"):
        run_command(score, model, "--source", source, "--target", tmp_path / "nowhere")


def test_a_pair_too_long_to_score_is_named(run_command, make_model_dir, write_lines):
    model = make_model_dir(decode={"max_input_tokens": 11})
    files = ["--source", write_lines("a", "x", "y"), "--target", write_lines("b", "x", "Zwei Männer sitzen. " * 3)]
    with pytest.raises(DataError, match=r"pair 2 has \d+ tokens on one side; at most 11 are scored or aligned"):
        run_command(score, model, *files)


def test_score_output_does_not_depend_on_batch_tokens(run_command, make_model_dir, write_lines, sentences):
    model = make_model_dir()
    files = ["--source", write_lines("a", *sentences), "--target", write_lines("b", *reversed(sentences))]
    small, large = (run_command(score, model, *files, "--batch-tokens", n).stdout for n in (1, 9_999))
    assert small == large


@pytest.fixture
def tables(tmp_path, write_lines, sentences):
    """Return a comma-separated file of pairs with a header and an id, and the same as two files."""
    texts = [text.replace("\t", " ").replace("\0", "") for text in sentences]
    with (tmp_path / "p.csv").open("w", encoding="utf-8", newline="") as file:
        rows = ([n, source, target] for n, (source, target) in enumerate(zip(texts, texts[::-1], strict=True)))
        csv.writer(file).writerows([("id", "de", "en"), *rows])
    return tmp_path / "p.csv", write_lines("a", *texts), write_lines("b", *texts[::-1])


def test_pairs_in_one_file_score_as_in_two(run_command, make_model_dir, tables):
    model, (pairs, source, target) = make_model_dir(), tables
    expected = run_command(score, model, "--source", source, "--target", target)
    assert expected.stderr == ""
    found = run_command(score, model, "--pairs", pairs)
    assert found.stdout == expected.stdout
    assert found.stderr == (
        f"clearhead: {pairs}: comma-separated, 3 columns with a header; from column 2 (de) to column 3 (en)\n"
    )
    assert run_command(score, model, "--pairs", pairs, "--columns", "en,de", "--swap").stdout == expected.stdout


def test_the_other_direction_is_scored(run_command, make_model_dir, tables):
    model, (pairs, source, target) = make_model_dir(), tables
    expected = run_command(score, model, "--source", target, "--target", source).stdout
    swapped = run_command(score, model, "--source", source, "--target", target, "--swap")
    assert swapped.stdout == expected
    assert f"line by line, swapped: from {target} to {source}" in swapped.stderr
    assert run_command(score, model, "--pairs", pairs, "--columns", "3,2").stdout == expected


def test_columns_need_a_file_of_pairs(run_command, make_model_dir, write_lines):
    files = ["--source", write_lines("a", "x"), "--target", write_lines("b", "y")]
    with pytest.raises(ConfigError, match="--columns needs --pairs FILE"):
        run_command(score, make_model_dir(), *files, "--columns", "1,2")
    with pytest.raises(ConfigError, match="--columns: columns '2,2': name two different ones"):
        run_command(score, make_model_dir(), "--pairs", write_lines("p.tsv", "x\ty"), "--columns", "2,2")


def test_error_in_a_csv_pair_names_its_file_and_line(run_command, make_model_dir, write_lines):
    pairs = write_lines("p.csv", "de,en", "<2de> x,y", "<2xx> x,y")
    with pytest.raises(DataError, match=r"the pairs of \S*p\.csv, line 2: unknown language tag <2xx>"):
        run_command(score, make_model_dir(language_tags=("de", "fr")), "--pairs", pairs)
