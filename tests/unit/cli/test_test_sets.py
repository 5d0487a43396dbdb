"""`clearhead evaluate --sets`: several models on the test sets of a directory."""

from __future__ import annotations

import csv
import gzip
import json

import pytest
import sacrebleu

from clearhead.cli.evaluate import evaluate
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation import compare
from clearhead.translation.translator import Translator


@pytest.fixture
def models(make_model_dir):
    """Return two models of German and English."""
    info = {"data": {"languages": ["de", "en"]}}
    return make_model_dir("first", seed=3, info=info), make_model_dir("second", seed=11, info=info)


@pytest.fixture
def sets(models, sentences, tmp_path):
    """Return a directory of two test sets of 5 and 7 lines, partly translated as the first model does, and theirs."""
    directory = tmp_path / "sets"
    directory.mkdir()
    texts = [translation.text for translation in Translator.load(models[0]).translate(sentences)]
    usable = [pair for pair in zip(sentences, texts, strict=True) if not set(pair[1]) & set("\t\r\n")]
    pairs = [(source, text if at % 3 else f"other words {at}") for at, (source, text) in enumerate(usable)]
    assert len(pairs) >= 7
    small, large = pairs[:5], pairs[-7:]
    (directory / "talks.tsv").write_text("".join(f"{source}\t{text}\n" for source, text in small), encoding="utf-8")
    (directory / "news.de").write_text("".join(f"{source}\n" for source, _ in large), encoding="utf-8")
    (directory / "news.en.gz").write_bytes(gzip.compress("".join(f"{text}\n" for _, text in large).encode()))
    (directory / "README.md").write_text("where they are from")
    return directory, {"news": large, "talks.tsv": small}


def test_every_model_is_judged_on_every_set_as_sacrebleu_judges_it(run_command, models, sets):
    directory, pairs = sets
    result = run_command(evaluate, *models, "--sets", directory, "--json")
    found = json.loads(result.stdout)
    assert f"{directory}: left out, by their names no test sets: README.md" in result.stderr
    assert found["baseline"] == str(models[0])
    expected = [(str(model), name) for model in models for name in ("news", "talks.tsv")]
    assert [(one["model"], one["set"]) for one in found["results"]] == expected
    for one in found["results"]:
        sources, references = map(list, zip(*pairs[one["set"]], strict=True))
        first, own = (
            [translation.text for translation in Translator.load(model).translate(sources)]
            for model in (models[0], one["model"])
        )
        assert one["sentences"] == len(sources) in (5, 7)
        assert one["bleu"] == pytest.approx(sacrebleu.corpus_bleu(own, [references]).score, abs=0.005)
        assert one["chrf"] == pytest.approx(sacrebleu.corpus_chrf(own, [references]).score, abs=0.005)
        if one["model"] == str(models[0]):
            assert "comparison" not in one
        else:
            assert one["comparison"]["chrf"]["p_value"] == compare(references, first, own).metrics["chrf"].p_value
            assert one["comparison"]["chrf"]["difference"] < 0


def test_numbers_are_those_of_the_single_test_set(run_command, models, sets):
    directory, _ = sets
    *_, talks = json.loads(run_command(evaluate, *models, "--sets", directory, "--json").stdout)["results"]
    alone = ["--pairs", directory / "talks.tsv", "--compare", models[0], "--json"]
    single = json.loads(run_command(evaluate, models[1], *alone).stdout)
    speeds = {"sentences_per_second", "output_tokens_per_second"}
    assert single.keys() == talks.keys() - {"set", "files", "model"}
    assert [name for name in single if single[name] != talks[name] and name not in speeds] == []


def test_text_csv_and_page_show_the_same_scores(run_command, models, sets, tmp_path):
    directory, _ = sets
    command = [evaluate, *models, "--sets", directory]
    found = json.loads(run_command(*command, "--json", "-o", tmp_path / "table.csv").stdout)["results"]
    text = run_command(*command, "-o", tmp_path / "table.html").stdout
    page = (tmp_path / "table.html").read_text(encoding="utf-8")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["test_set"], row["metric"]) for row in rows[::2]] == [
        (name, metric) for name in ("news", "talks.tsv") for metric in ("BLEU", "chrF")
    ]
    for row in rows:
        name = row["metric"].lower()
        (one,) = (one for one in found if (one["set"], one["model"]) == (row["test_set"], row["model"]))
        assert (float(row["score"]), int(row["sentences"])) == (one[name], one["sentences"])
        assert [float(row["low"]), float(row["high"])] == one[f"{name}_interval"]
        shown = [f"{one[name]:.2f}", "{:.2f} to {:.2f}".format(*one[f"{name}_interval"])]
        if one["model"] == str(models[1]):
            compared = one["comparison"][name]
            assert float(row["p_value"]) == round(compared["p_value"], 4)
            assert row["significant"] == str(compared["p_value"] < 0.05)
            doubt = "significant" if compared["p_value"] < 0.05 else "not significant"
            shown += [f"{compared['difference']:+.2f}", f"p = {compared['p_value']:.4f}, {doubt}"]
        else:
            assert row["difference"] == row["p_value"] == row["significant"] == ""
        (line,) = (
            line
            for line in text.splitlines()
            if line.split()[:4] == [row["test_set"], row["sentences"], row["metric"], row["model"]]
        )
        assert line.endswith(shown[-1])
        assert all(part in line for part in shown)
        assert "<br>".join([*shown[:2], ", ".join(shown[2:])]).removesuffix("<br>") in page
        assert row["signature"] in text
        assert row["signature"] in page


def test_unusable_sets_are_named_before_anything_is_translated(run_command, models, sets, monkeypatch):
    directory, _ = sets
    (directory / "empty.tsv").write_text("")
    (directory / "french.csv").write_text("fr,en\nchien,dog\n")
    (directory / "lonely.de").write_text("Hund\n")
    (directory / "noise.txt").write_bytes(b"a\tb\n\xff\xfe\n")
    (directory / "short.de").write_text("Hund\nKatze\n")
    (directory / "short.en").write_text("dog\n")
    (directory / "swiss.fr").write_text("chien\n")
    (directory / "swiss.it").write_text("cane\n")
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: pytest.fail("translated for nothing"))
    with pytest.raises(DataError) as caught:
        run_command(evaluate, *models, "--sets", directory)
    head, *lines = str(caught.value).splitlines()
    assert head == "6 of 8 test sets cannot be used, and nothing was translated:"
    for line, words in zip(
        lines,
        (
            "empty.tsv: no pairs to translate",
            f"french.csv: from fr, but {models[0]} translates from de",
            "lonely.de: the file of the other language is missing",
            "noise.txt",
            "short.en has 1",
            "swiss.it: the languages to read are de and en",
        ),
        strict=True,
    ):
        assert words in line


@pytest.mark.parametrize("flags", [[], ["--swap"], ["--from-lang", "de"], ["--from-lang", "en", "--to-lang", "de"]])
def test_direction_of_two_files_is_that_of_the_model_unless_it_is_given(run_command, make_model_dir, sets, flags):
    model = make_model_dir("unknown", info={"data": {"languages": ["de", None if "de" in flags else "en"]}})
    directory, _ = sets
    (directory / "talks.tsv").unlink()
    command = [evaluate, model, "--sets", directory, "--json", *flags]
    if "en" in flags:
        with pytest.raises(DataError, match=f"news.de: from en, but {model} translates from de"):
            run_command(*command)
    else:
        (one,) = json.loads(run_command(*command).stdout)["results"]
        sides = [str(directory / "news.de"), str(directory / "news.en.gz")]
        assert one["files"] == (sides[::-1] if flags == ["--swap"] else sides)


def test_two_files_of_unknown_direction_and_an_empty_directory_are_errors(run_command, make_model_dir, sets, tmp_path):
    directory, _ = sets
    with pytest.raises(DataError, match=r"news\.en\.gz: which is the source\? Name the languages with --from-lang"):
        run_command(evaluate, make_model_dir(), "--sets", directory)
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="none holds no test set: a file of pairs, or two files such as"):
        run_command(evaluate, make_model_dir(), "--sets", tmp_path / "none")
    with pytest.raises(DataError, match=r"cannot read .*nowhere: No such file or directory"):
        run_command(evaluate, make_model_dir(), "--sets", tmp_path / "nowhere")
    (directory / "news.en").write_text("a\n")
    with pytest.raises(DataError, match=r"news\.en\.gz: another file has the same side"):
        run_command(evaluate, make_model_dir(), "--sets", directory)


def test_scores_of_a_run_on_every_set_are_kept_in_it(run_command, models, sets, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    models[0].rename(run / "model")
    (run / "config.toml").write_text("")
    run_command(evaluate, run, run, "--sets", sets[0], "--metric", "chrf", "--beam", 1)
    kept = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert [(one["files"], one["sentences"]) for one in kept] == [(["news.de", "news.en.gz"], 7), (["talks.tsv"], 5)]
    assert [(list(one["scores"]), one["options"]) for one in kept] == [(["chrF"], {"beam_size": 1})] * 2


def test_options_of_one_test_set_and_other_outputs_are_refused(run_command, models, sets, tmp_path):
    directory, _ = sets
    of_sets, pairs = [*models, "--sets", directory], directory / "talks.tsv"
    for arguments, named in (
        ([*models, "--pairs", pairs], "more than one MODEL needs --sets DIR"),
        (["--sets", directory, "--hypothesis", pairs], "--sets needs MODEL"),
        ([*of_sets, "--pairs", pairs], "--sets cannot be used with --pairs, which is for one test set"),
        ([*of_sets, "--compare", models[0]], "--sets cannot be used with --compare"),
        ([*of_sets, "-o", tmp_path / "t.txt"], "with --sets the table is written, as .csv or .html"),
        ([*of_sets, "-o", directory / "t.csv"], "it would be in the directory of the test sets"),
    ):
        with pytest.raises(ConfigError, match=named):
            run_command(evaluate, *arguments)
