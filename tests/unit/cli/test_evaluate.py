from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import sacrebleu

from clearhead.bundle import save_bundle
from clearhead.cli.evaluate import evaluate
from clearhead.data.store import StoreWriter
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.files import file_sha256
from clearhead.training.evaluations import evaluations
from clearhead.translation.translator import Translator
from commands import clearhead
from small_runs import ENGLISH, GERMAN

NUMBERS = Path(__file__).parents[2] / "compat/0.1.0/run/model"
"""A model of German numbers."""
KEYS = [
    "bleu",
    "bleu_signature",
    "bleu_interval",
    "chrf",
    "chrf_signature",
    "chrf_interval",
    "exact_match",
    "sentences",
    "sentences_per_second",
    "output_tokens_per_second",
]


@pytest.fixture(scope="module")
def judged(make_bundle, sentences, tmp_path_factory):
    """Return a model, for reading, and its translations."""
    model = tmp_path_factory.mktemp("judged") / "model"
    save_bundle(model, make_bundle(seed=3), card="# A small model\n")
    return model, [translation.text for translation in Translator.load(model).translate(sentences)]


@pytest.fixture
def test_set(judged, write_lines, sentences):
    """Return a model and a test set on which it is right in half of all sentences without a tab."""
    model, texts = judged
    references = [text if index % 2 and "\t" not in text else "nothing like it" for index, text in enumerate(texts)]
    assert not any("\n" in text or "\r" in text or "\0" in text for text in references)
    files = ["--source", write_lines("source", *sentences), "--reference", write_lines("reference", *references)]
    return model, files, texts, references


def test_json_is_one_object_with_exactly_the_promised_keys(run_command, test_set):
    model, files, texts, references = test_set
    found = json.loads(run_command(evaluate, model, *files, "--json").stdout)
    assert list(found) == KEYS
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, [references]).score, abs=0.005)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(texts, [references]).score, abs=0.005)
    assert found["exact_match"] == 50.0
    assert found["sentences"] == len(texts)
    assert found["sentences_per_second"] > 0
    assert found["bleu_signature"].startswith("nrefs:1|case:mixed")


def test_evaluate_table_shows_the_values_of_json(run_command, test_set):
    model, files, *_ = test_set
    found = json.loads(run_command(evaluate, model, *files, "--json").stdout)
    lines = run_command(evaluate, model, *files).stdout.splitlines()
    assert lines[0].split() == ["metric", "value", "95", "%", "signature"]
    for line, name, title in ((lines[1], "bleu", "BLEU"), (lines[2], "chrf", "chrF")):
        low, high = found[f"{name}_interval"]
        assert low < found[name] < high
        shown = [f"{low:.2f}", "to", f"{high:.2f}"]
        assert line.split() == [title, f"{found[name]:.2f}", *shown, found[f"{name}_signature"]]
    assert lines[3].split() == ["exact", "match,", "%", "50.00"]
    assert len(lines) == 7


def test_evaluate_compare_scores_both_models(run_command, test_set, make_model_dir):
    model, files, *_ = test_set
    other = make_model_dir("other", seed=11)
    found = json.loads(run_command(evaluate, model, *files, "--json", "--compare", other).stdout)
    assert list(found) == [*KEYS, "comparison"]
    comparison = found["comparison"]
    assert (comparison["baseline"], comparison["system"]) == (str(other), str(model))
    assert comparison["bleu"]["system"] == found["bleu"]
    assert comparison["bleu"]["baseline"] < found["bleu"]
    assert comparison["bleu"]["difference"] > 0
    lines = run_command(evaluate, model, *files, "--compare", other).stdout
    assert f"from {other} to {model}:" in lines
    assert "p = " in lines


def test_comparing_a_model_with_itself_gives_difference_zero_and_p_value_one(run_command, test_set):
    model, files, *_ = test_set
    comparison = json.loads(run_command(evaluate, model, *files, "--json", "--compare", model).stdout)["comparison"]
    assert (comparison["bleu"]["difference"], comparison["bleu"]["p_value"]) == (0.0, 1.0)


def test_lines_are_split_and_flagged_as_in_translate(run_command, make_model_dir, write_lines):
    model, line = make_model_dir(), "Ein Hund rennt. Zwei Männer sitzen 2018."
    whole, split = (Translator.load(model).translate([line], split=mode)[0] for mode in ("never", "always"))
    files = ["--source", write_lines("source", line), "--reference", write_lines("reference", split.text)]
    assert json.loads(run_command(evaluate, model, *files, "--json").stdout)["exact_match"] == 0.0
    result = run_command(evaluate, model, *files, "--json", "--split", "always", "--source-lang", "de")
    assert json.loads(result.stdout)["exact_match"] == 100.0
    assert whole.text != split.text
    assert "numbers" in {flag.kind for flag in split.warnings}
    assert (
        f"{files[1]}: 1 with numbers (a number of the source is missing, or a number is invented): line 1"
        in result.stderr
    )


def test_the_translations_are_written_line_by_line(run_command, test_set, tmp_path):
    model, files, texts, _ = test_set
    result = run_command(evaluate, model, *files, "--output", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n") == [*texts, ""]
    assert "BLEU" in result.stdout


def test_evaluate_translates_with_the_beam_option(run_command, test_set, tmp_path, sentences):
    model, files, texts, _ = test_set
    run_command(evaluate, model, *files, "--beam", 1, "-o", tmp_path / "out.txt")
    greedy = [translation.text for translation in Translator.load(model).translate(sentences, beam_size=1)]
    assert greedy != texts
    found = (tmp_path / "out.txt").read_bytes().decode().split("\n")
    assert len(found) == len(greedy) + 1
    assert found[0] == greedy[0].replace("\r", " ").replace("\n", " ")


def test_a_long_line_is_named(run_command, make_model_dir, write_lines):
    model = make_model_dir(decode={"max_input_tokens": 11, "extra_length": 1})
    source = write_lines("a", "", "Zwei Männer sitzen. " * 3)
    result = run_command(evaluate, model, "--source", source, "--reference", write_lines("b", "x", "y"))
    where = f"clearhead: {source}, line 2"
    assert result.stderr.splitlines() == [
        f"{where}: longer than 11 tokens (decode.max_input_tokens); only the beginning is translated",
        f"{where}: the translation was ended by the length limit, decode.extra_length (1), or as a repetition loop "
        "(decode.end_loops), not by the model",
    ]


def test_evaluate_with_precision_does_not_call_score(run_command, make_model_dir, write_lines, monkeypatch):
    monkeypatch.setattr("clearhead.translation.search.score", lambda *_, **__: pytest.fail("scored for nothing"))
    files = ["--source", write_lines("a", "Ein Hund."), "--reference", write_lines("b", "A dog.")]
    assert run_command(evaluate, make_model_dir(), *files, "--precision", "bf16").exit_code == 0


def test_evaluate_rejects_unusable_files_and_contradicting_options(run_command, make_model_dir, write_lines, tmp_path):
    model, one, two = make_model_dir(), write_lines("one", "x"), write_lines("two", "x", "y")
    with pytest.raises(DataError, match=r"one has 1 lines but .*two has 2"):
        run_command(evaluate, model, "--source", one, "--reference", two)
    with pytest.raises(DataError, match="nothing to evaluate"):
        run_command(evaluate, model, "--source", write_lines("e1"), "--reference", write_lines("e2"))
    with pytest.raises(DataError, match="two is an input as well"):
        run_command(evaluate, model, "--source", two, "--reference", two, "-o", two)
    with pytest.raises(ConfigError, match="beam_size = 0"):
        run_command(evaluate, model, "--source", two, "--reference", two, "--beam", 0)
    sides = ["--source", two, "--reference", two]
    for arguments, named in (
        ([model, *sides, "--from-lang", "de"], "--from-lang needs --pairs FILE"),
        ([model, *sides, "--metric", "chrf", "--tokenize", "zh"], "--tokenize needs --metric bleu"),
        ([model, "--source", two], "MODEL needs --source FILE and --reference FILE, or --pairs FILE"),
        ([model], "MODEL needs --source FILE and --reference FILE, or --pairs FILE"),
        (["--hypothesis", two], "--hypothesis needs --reference FILE or --pairs FILE"),
        ([model, "--pairs", two, "--source", two], "--source cannot be used with --pairs, which contains both sides"),
        (["--source", two, "--reference", two], "evaluate needs MODEL or --hypothesis FILE"),
        ([model, "--hypothesis", two, "--reference", two], "MODEL cannot be used with --hypothesis"),
        (["--hypothesis", two, "--reference", two, "--beam", 3], "--beam cannot be used with --hypothesis"),
        (
            ["--hypothesis", two, "--reference", two, "--source", two, "-o", tmp_path / "x"],
            "--source, --output cannot be used with --hypothesis, whose translations exist already",
        ),
        (["--hypothesis", two, "--reference", two, "--as-is"], "--as-is cannot be used with --hypothesis"),
        (["--hypothesis", two, "--reference", two, "--device", "cpu"], "--device cannot be used with --hypothesis"),
        (["--hypothesis", two, "--reference", two, "--swap"], "--swap needs MODEL or --pairs FILE"),
        ([model, "--source", two, "--reference", two, "--columns", "1,2"], "--columns needs --pairs FILE"),
    ):
        with pytest.raises(ConfigError, match=named):
            run_command(evaluate, *arguments)


def test_evaluate_checks_compare_and_output_before_translating(
    run_command, make_model_dir, write_lines, tmp_path, monkeypatch
):
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: pytest.fail("translated for nothing"))
    command = [evaluate, make_model_dir(), "--source", write_lines("a", "x"), "--reference", write_lines("b", "y")]
    with pytest.raises(ModelError, match="nowhere: there is no such directory"):
        run_command(*command, "--compare", tmp_path / "nowhere")
    with pytest.raises(DataError, match=f"cannot write {tmp_path}: it is a directory"):
        run_command(*command, "-o", tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)  # modes do not hold for root
    with pytest.raises(DataError, match=f"{tmp_path} is not a directory that may be changed"):
        run_command(*command, "-o", tmp_path / "out.txt")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_takes_the_translations_and_not_the_metrics(test_set, capsys):
    model, files, *_ = test_set
    assert clearhead("evaluate", model, *files, "-o", "/dev/full") == 1
    out, err = capsys.readouterr()
    assert out.startswith("metric")
    assert "cannot write /dev/full: No space left on device" in err


def test_pairs_in_one_file_are_a_test_set_too(run_command, test_set, write_lines, tmp_path):
    model, files, _, references = test_set
    sources = (tmp_path / files[1]).read_text(encoding="utf-8").splitlines()
    tsv = tmp_path / "test.tsv"
    tsv.write_text("".join(f"{a}\t{b}\n" for a, b in zip(sources, references, strict=True)), encoding="utf-8")
    found, expected = (
        json.loads(run_command(evaluate, model, *where, "--json").stdout) for where in (["--pairs", tsv], files)
    )
    assert {name: found[name] for name in KEYS[:8]} == {name: expected[name] for name in KEYS[:8]}


def test_columns_and_direction_of_a_test_set_can_be_chosen(run_command, test_set, tmp_path):
    model, files, _, references = test_set
    sources = files[1].read_text(encoding="utf-8").splitlines()
    table = tmp_path / "test.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        rows = zip(references, range(len(sources)), sources, strict=True)
        csv.writer(file, delimiter=";").writerows([("hers", "id", "his"), *rows])
    expected = json.loads(run_command(evaluate, model, *files, "--json").stdout)
    swapped = ["--source", files[3], "--reference", files[1], "--swap"]
    for given in (
        ["--pairs", table, "--columns", "his,hers"],
        ["--pairs", table, "--columns", "1,3", "--swap"],
        swapped,
    ):
        if "1,3" in given:
            table.write_text(table.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")  # without header
        result = run_command(evaluate, model, *given, "--json")
        found = json.loads(result.stdout)
        assert {name: found[name] for name in KEYS[:8]} == {name: expected[name] for name in KEYS[:8]}
    assert f"line by line, swapped: from {files[1]} to {files[3]}" in result.stderr


@pytest.mark.parametrize(
    ("sides", "flags", "remedy"),
    [((ENGLISH, GERMAN), [], "add"), ((GERMAN, ENGLISH), ["--swap"], "leave out"), ((GERMAN, ENGLISH), [], None)],
)
def test_evaluate_notices_that_the_sides_are_exchanged(run_command, write_lines, sides, flags, remedy):
    pairs = write_lines("p.tsv", *("\t".join(f"{words[n]} {words[n - 1]}" for words in sides) for n in range(10)))
    said = run_command(evaluate, NUMBERS, "--pairs", pairs, *flags).stderr
    assert ("seems to translate" in said) == (remedy is not None)
    assert f"{NUMBERS} seems to translate the references into the sources; {remedy} --swap" in said or not remedy


def test_evaluate_hypothesis_scores_given_translations_as_the_models_own(run_command, test_set, write_lines, tmp_path):
    model, files, texts, references = test_set
    hypotheses = write_lines("hypotheses", *texts)
    expected = json.loads(run_command(evaluate, model, *files, "--json").stdout)
    result = run_command(evaluate, "--hypothesis", hypotheses, *files[2:], "--json")
    assert json.loads(result.stdout) == {name: expected[name] for name in KEYS[:8]}
    assert "sentences/s" not in run_command(evaluate, "--hypothesis", hypotheses, *files[2:]).stdout
    tsv = tmp_path / "test.tsv"
    tsv.write_text("".join(f"x\t{b}\n" for b in references), encoding="utf-8")
    beside_pairs = run_command(evaluate, "--hypothesis", hypotheses, "--pairs", tsv, "--json")
    assert beside_pairs.stdout == result.stdout
    with pytest.raises(DataError, match="1 translations but"):
        run_command(evaluate, "--hypothesis", write_lines("one", "x"), "--pairs", tsv)


def test_lines_like_the_training_text_are_judged_apart(run_command, judged, write_lines, sentences, tmp_path):
    model, texts = judged
    run = tmp_path / "run"
    shutil.copytree(model, run / "model")
    (run / "data").mkdir()
    with StoreWriter(run / "data" / "train.arrow") as store:
        store.append(sentences[0], "anything", [3, 2], [3, 2])
    references = [texts[0], *("nothing like it" for _ in sentences[1:])]
    files = ["--source", write_lines("source", *sentences), "--reference", write_lines("reference", *references)]
    found = json.loads(run_command(evaluate, run, *files, "--json").stdout)
    assert list(found) == [*KEYS, "near_training", "far_from_training"]
    near, far = found["near_training"], found["far_from_training"]
    assert (near["sentences"], near["exact_match"]) == (1, 100.0)
    assert (far["sentences"], far["exact_match"]) == (len(sentences) - 1, 0.0)
    lines = run_command(evaluate, run, *files).stdout.splitlines()
    assert lines[-2] == (
        f"1 lines like one of the training text (half of their words or more): "
        f"BLEU {near['bleu']:.2f}, chrF {near['chrf']:.2f}"
    )
    assert lines[-1].startswith(f"{len(sentences) - 1} lines unlike any of the training text: BLEU ")
    assert list(json.loads(run_command(evaluate, run / "model", *files, "--json").stdout)) == KEYS


def test_metrics_and_their_form_can_be_chosen(run_command, write_lines):
    files = ["--hypothesis", write_lines("a", "DAS HAUS"), "--reference", write_lines("b", "das haus")]
    chosen = ["--metric", "chrf++", "--metric", "bleu", "--metric", "bleu", "--lowercase", "--tokenize", "char"]
    found = json.loads(run_command(evaluate, *files, *chosen, "--json").stdout)
    of_metrics = (f"{name}{of}" for name in ("chrf++", "bleu") for of in ("", "_signature", "_interval"))
    assert list(found) == [*of_metrics, "exact_match", "sentences"]
    assert (found["chrf++"], found["bleu"], found["exact_match"]) == (100.0, 100.0, 0.0)
    assert "case:lc" in found["bleu_signature"]
    assert "tok:char" in found["bleu_signature"]
    lines = run_command(evaluate, *files, *chosen).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["metric", "chrF++", "BLEU", "exact", "sentences"]
    assert json.loads(run_command(evaluate, *files, "--json").stdout)["chrf"] < 100.0
    assert run_command(evaluate, *files, "--metric", "ter").exit_code == 2


def test_evaluate_with_language_tags_needs_target_lang(run_command, make_model_dir, write_lines):
    model = make_model_dir(language_tags=("de", "fr"))
    files = ["--source", write_lines("a", "x"), "--reference", write_lines("b", "y")]
    with pytest.raises(ConfigError, match="a, line 1: into which language"):
        run_command(evaluate, model, *files)
    assert run_command(evaluate, model, *files, "--target-lang", "fr").exit_code == 0


def test_an_ensemble_is_evaluated_and_compared_with_one_model(run_command, test_set, make_model_dir):
    model, files, *_ = test_set
    other = make_model_dir("other", seed=8)
    alone, same, both = (
        json.loads(run_command(evaluate, model, *files, "--json", *more).stdout)
        for more in ([], ["--ensemble", model], ["--ensemble", other, "--compare", model])
    )
    assert (same["bleu"], same["chrf"]) == (alone["bleu"], alone["chrf"])
    assert both["bleu"] < alone["bleu"]
    assert both["comparison"]["system"] == f"{model} + {other}"
    with pytest.raises(ConfigError, match="--ensemble cannot be used with --hypothesis"):
        run_command(evaluate, "--hypothesis", files[3], *files[2:], "--ensemble", other)


@pytest.fixture
def run_and_files(judged, write_lines, sentences, tmp_path):
    """Return a run with a report, and the options for its test set."""
    run = tmp_path / "run"
    shutil.copytree(judged[0], run / "model")
    (run / "config.toml").write_text("")
    (run / "report.html").write_text(f"<p>a</p>{evaluations(run, '')}<p>b</p>")
    return run, ["--source", write_lines("test.de", *sentences), "--reference", write_lines("test.en", *judged[1])]


def test_scores_of_a_run_are_kept_in_it_and_shown_in_its_report(run_command, run_and_files):
    run, files = run_and_files
    assert "No test set yet" in (run / "report.html").read_text()
    run_command(evaluate, run, *files)
    run_command(evaluate, run, *files, "--beam", 4, "--metric", "chrf", "--lowercase")
    first, second = map(json.loads, (run / "evaluations.jsonl").read_text().splitlines())
    assert first["files"] == ["test.de", "test.en"]
    assert (list(first["scores"]), list(second["scores"])) == (["BLEU", "chrF"], ["chrF"])
    assert (first["options"], second["options"]) == ({}, {"lowercase": True, "beam_size": 4})
    page = (run / "report.html").read_text()
    assert page.startswith("<p>a</p>")
    assert page.endswith("<p>b</p>")
    assert "<dt>chrF, test: test.de, test.en</dt><dd>100.0</dd>" in page
    assert "<dt>BLEU, test" not in page  # of the latest alone
    assert "Scores on test sets (2)" in page
    assert "lowercase True, beam_size 4" in page
    assert "No test set yet" not in page


def test_scores_of_an_earlier_model_are_not_those_of_the_published(run_and_files):
    run, _ = run_and_files
    line = {"date": "2026-11-26", "files": ["<b>.de"], "model_sha256": "before", "options": {}, "sentences": 8}
    lines = [line | {"scores": {"BLEU": {"score": 31.25, "interval": [30.0, 32.5]}}}, line, ["no evaluation"]]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines) + '{"date"')
    section = evaluations(run, "now")
    assert "No test set yet" in section
    assert ">earlier</td>" in section
    assert "31.25<br>30.00 to 32.50" in section
    assert "&lt;b&gt;.de" in section
    assert "damaged, and not shown: 3." in section
    assert "<dt>BLEU, test: &lt;b&gt;.de</dt><dd>31.2</dd>" in evaluations(run, "before")


def test_cut_off_line_of_evaluations_jsonl_does_not_damage_the_next(run_command, run_and_files):
    run, files = run_and_files
    (run / "evaluations.jsonl").write_text('{"date"')
    run_command(evaluate, run, *files)
    assert (run / "evaluations.jsonl").read_text().startswith('{"date"\n{"date": "')
    page = (run / "report.html").read_text()
    assert "Scores on test sets (1)" in page
    assert "damaged, and not shown: 1." in page


def test_scores_are_those_of_the_model_that_translated(run_command, run_and_files, make_model_dir, monkeypatch):
    run, files = run_and_files
    evaluated, newer = file_sha256(run / "model" / "model.safetensors"), make_model_dir("newer", seed=11)

    def publish(directory, sources):  # a run in progress does so at any time
        shutil.rmtree(run / "model")
        shutil.copytree(newer, run / "model")

    monkeypatch.setattr("clearhead.translation.test_set.near_training", publish)
    run_command(evaluate, run, *files)
    assert json.loads((run / "evaluations.jsonl").read_text())["model_sha256"] == evaluated
    page = (run / "report.html").read_text()
    assert "No test set yet" in page
    assert ">earlier</td>" in page


@pytest.mark.parametrize("name", ["evaluations.jsonl", "report.html"])
def test_unwritable_evaluations_jsonl_or_report_does_not_stop_evaluate(run_command, run_and_files, name):
    run, files = run_and_files
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    result = run_command(evaluate, run, *files)
    assert "BLEU" in result.stdout
    told = f"cannot write {run / 'evaluations.jsonl'}, so these scores are not kept: Is a directory"
    assert (told in result.stderr) == (name == "evaluations.jsonl")


def test_damaged_training_data_take_no_metrics_with_them(run_command, run_and_files):
    run, files = run_and_files
    (run / "data").mkdir()
    (run / "data" / "train.arrow").write_bytes(b"ARROW1" + b"\1" * 300)
    result = run_command(evaluate, run, *files)
    assert result.stdout.startswith("metric")
    assert "lines like the training text and unlike it are not judged apart: " in result.stderr


def test_scores_of_an_ensemble_and_of_a_model_alone_are_not_kept(run_command, run_and_files, judged):
    run, files = run_and_files
    run_command(evaluate, run, *files, "--ensemble", judged[0])
    run_command(evaluate, run / "model", *files)
    assert not (run / "evaluations.jsonl").exists()
    assert not (run / "model" / "evaluations.jsonl").exists()
