"""`clearhead train`: what it takes, and what a mistake gets: one paragraph, an exit status and nothing half-made."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clearhead.config import Config
from clearhead.data.prepare import open_prepared, prepare
from clearhead.training.loop import Loop
from commands import clearhead
from every_run import slow
from small_runs import QUICK_FLAGS, numbers, write_numbers, write_sides, write_tsv


def resolved(run: Path) -> Config:
    return Config.load(run / "config.toml")


@pytest.fixture
def pairs(tmp_path) -> str:
    return str(write_numbers(tmp_path / "numbers.tsv"))


def make_no_steps(monkeypatch) -> None:
    """Let every run end before its first step, when its text is prepared and its settings are saved."""
    monkeypatch.setattr(Loop, "begin", lambda *_: sys.exit(0))


@pytest.fixture
def without_steps(monkeypatch) -> None:
    make_no_steps(monkeypatch)


def test_one_command_trains_and_says_where_the_model_is(tmp_path, pairs, capsys):
    run = tmp_path / "run"
    assert clearhead("train", "--pairs", pairs, "--out", run, *QUICK_FLAGS) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(f"model:  {run / 'model'}\nreport: {run / 'report.html'}\n")
    assert clearhead("train", "--pairs", pairs, "--out", run, *QUICK_FLAGS) == 0
    assert "this run is finished (max_steps)" in capsys.readouterr().err


def test_train_resumes_a_run_given_only_its_directory(quick, tmp_path, capsys):
    run = quick["out"]
    assert clearhead("train", run) == 0
    assert "this run is finished (max_steps)" in capsys.readouterr().err
    assert clearhead("train", run, "--max-steps", 6) == 0
    assert "resuming after step 4" in capsys.readouterr().err
    assert clearhead("train", run, "--max-steps", 3) == 1
    assert "this run has made 6 steps, and --max-steps 3 counts them too" in capsys.readouterr().err
    assert resolved(tmp_path / "run").train.max_steps == 6
    assert clearhead("train", run, "--out", tmp_path / "other") == 1
    assert "it is the run to go on with; leave out --out" in capsys.readouterr().err
    assert clearhead("train", tmp_path) == 1
    assert f"{tmp_path} is not a run: it holds no config.toml" in capsys.readouterr().err


def test_a_run_starts_from_the_model_of_another(tmp_path, quick_run, pairs, capsys, monkeypatch):
    first, second, third = quick_run, tmp_path / "second", tmp_path / "third"
    assert clearhead("train", "--from", first, "--pairs", pairs, "--out", second, *QUICK_FLAGS) == 0
    said = capsys.readouterr().err
    assert f"starting from the model of {first}" in said
    assert "name validation text that it has not seen" in said
    with monkeypatch.context() as patch:
        make_no_steps(patch)
        assert clearhead("train", second, "--max-steps", 5) == 0  # its settings name the model still
    assert resolved(second).from_model == str(first)
    assert clearhead("train", second / "config.toml", "--from", second / "model", "--out", third) == 0
    assert resolved(third).from_sha256 != resolved(second).from_sha256
    capsys.readouterr()
    assert clearhead("info", third) == 0
    assert "started from second" in capsys.readouterr().out
    assert clearhead("train", "--from", first, "--pairs", pairs, "--out", tmp_path / "x", "--preset", "small") == 1
    said = capsys.readouterr().err
    assert f"a run from {first} has the shape and the tokenizer of that model" in said
    assert "preset small has model.d_model = 256, and the model has 16" in said


@pytest.mark.usefixtures("without_steps")
def test_the_command_prepares_a_large_text_in_as_many_processes_as_threads(tmp_path, pairs, monkeypatch):
    asked = []

    def noted(*arguments, processes, **named):
        asked.append(processes)
        return prepare(*arguments, **named)

    monkeypatch.setattr("clearhead.training.preparation.prepare", noted)
    monkeypatch.setattr("clearhead.runtime.threads.num_threads", lambda: 3)
    assert clearhead("train", "--pairs", pairs, "--out", tmp_path / "run", *QUICK_FLAGS) == 0
    assert asked == [3]


@pytest.mark.usefixtures("without_steps")
def test_an_option_takes_several_files(tmp_path):
    first, second = write_tsv(tmp_path / "a.tsv", numbers()[:107]), write_tsv(tmp_path / "b.tsv", numbers()[107:])
    runs = [tmp_path / "spread", tmp_path / "repeated"]
    assert clearhead("train", "--pairs", first, second, "--out", runs[0], *QUICK_FLAGS) == 0
    assert clearhead("train", "--pairs", first, "--pairs", second, "--out", runs[1], *QUICK_FLAGS) == 0
    for run in runs:
        assert resolved(run).data.pairs == (str(first), str(second))
        report = open_prepared(run / "data").report
        assert [file["lines"] for file in report["files"]] == [107, 93]


@pytest.mark.usefixtures("without_steps")
def test_line_aligned_files_and_validation_files_are_read(tmp_path):
    source, target = write_sides(tmp_path / "train", numbers()[:-13])
    valid = write_sides(tmp_path / "valid", numbers()[-13:])
    run, files = tmp_path / "run", ["--source", source, "--target", target]
    files += ["--valid-source", valid[0], "--valid-target", valid[1]]
    assert clearhead("train", *files, "--out", run, *QUICK_FLAGS) == 0
    data = open_prepared(run / "data")
    assert (len(data.train), len(data.valid)) == (187, 13)
    assert data.report["valid_held_out"] is False


def test_columns_and_direction_are_kept_and_rows_that_are_no_pairs_are_counted(tmp_path, capsys, monkeypatch):
    rows = [f'{n},"{target}","{source}, ja"\n' for n, (source, target) in enumerate(numbers())]
    rows[100] = "100,torn\n"
    (tmp_path / "train.csv").write_text("id,english,german\n" + "".join(rows[:187]), encoding="utf-8")
    write_tsv(tmp_path / "valid.tsv", [("german", "english"), *numbers()[187:]])
    run, files = tmp_path / "run", [f"--{part}={tmp_path / name}" for part, name in FILES_OF_PAIRS]
    arguments = ["train", *files, "--out", run, *QUICK_FLAGS]
    assert clearhead(*arguments, "--columns", "english,german", "--swap") == 0
    lines = capsys.readouterr().err.splitlines()
    told = [
        f"{tmp_path / 'train.csv'}: comma-separated, 3 columns with a header; "
        f"from column 3 (german) to column 2 (english)",
        f"{tmp_path / 'valid.tsv'}: tab-separated, 2 columns with a header; "
        f"from column 1 (german) to column 2 (english)",
    ]
    assert lines[:2] == told
    source, target = numbers()[0]
    assert any(f"the first pair, from source to target: '{source}, ja' -> '{target}'" in s for s in lines)
    assert any(
        s.endswith(f"1 dropped: malformed, the row of its file is no pair ({tmp_path}/train.csv:102)") for s in lines
    )
    data, report = open_prepared(run / "data"), open_prepared(run / "data").report
    assert (data.valid.source(0), data.valid.target(0)) == numbers()[187]
    assert [f"{file['path']}: {file['read_as']}" for file in report["files"]] == told
    page, card = ((run / name).read_text(encoding="utf-8") for name in ("report.html", "model/README.md"))
    assert told[0] in page
    assert "| train.csv | 188 | comma-separated, 3 columns with a header; from column 3 (german) to" in card
    assert report["train"]["dropped"]["malformed"] == 1
    assert report["train"]["read"] == 187 == report["train"]["kept"] + sum(report["train"]["dropped"].values())
    assert (resolved(run).data.columns, resolved(run).data.swap) == (("english", "german"), True)

    make_no_steps(monkeypatch)
    assert clearhead(*arguments, "--columns", "english,german") == 1
    assert "data.swap: True -> False" in capsys.readouterr().err
    assert clearhead("train", run, "--columns", "2,3") == 1
    assert "data.columns: ['english', 'german'] -> [2, 3]" in capsys.readouterr().err
    assert clearhead("train", run, "--max-steps", 5) == 0
    assert clearhead("train", "--out", run, "--fresh", "--max-steps", 2) == 0
    assert [file["read_as"] for file in open_prepared(run / "data").report["files"]] == [s.split(": ")[1] for s in told]


FILES_OF_PAIRS = (("pairs", "train.csv"), ("valid-pairs", "valid.tsv"))


def test_line_aligned_files_are_swapped_too(tmp_path, capsys):
    german, english = write_sides(tmp_path / "train", numbers())
    run = tmp_path / "run"
    assert clearhead("train", "--source", german, "--target", english, "--swap", "--out", run, *QUICK_FLAGS) == 0
    told = f"line by line, swapped: from {english} to {german}"
    assert capsys.readouterr().err.startswith(told + "\n")
    data = open_prepared(run / "data")
    assert (data.train.source(0), data.train.target(0)) in {(target, source) for source, target in numbers()}
    assert [file["lines"] for file in data.report["files"]] == [200, 200]
    assert "English → German" in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_steps")
def test_flags_win_over_settings_and_settings_over_the_file(tmp_path, pairs):
    run = tmp_path / "run"
    (tmp_path / "c.toml").write_text(
        f'out = "elsewhere"\n[data]\npairs = ["{pairs}"]\n[train]\nmax_steps = 77\npatience = 5\nseed = 11\n'
    )
    settings = ["--set", "train.seed=13", "train.max_steps=88"]
    assert clearhead("train", tmp_path / "c.toml", "--out", run, "--max-steps", 4, *QUICK_FLAGS, *settings) == 0
    train = resolved(run).train
    assert (train.patience, train.seed, train.max_steps) == (5, 13, 4)
    assert not Path("elsewhere").exists()


@pytest.mark.usefixtures("without_steps")
def test_a_vocabulary_that_the_tokenizer_overrules_is_not_overruled_in_silence(tmp_path, pairs, capsys):
    arguments = ["train", "--pairs", pairs, "--out", tmp_path / "run", *QUICK_FLAGS]
    assert clearhead(*arguments) == 0
    saved = tmp_path / "run" / "config.toml"
    for setting in ("model.vocab_size=997", "model={vocab_size=997}"):
        assert clearhead("train", saved, "--out", tmp_path / "other", "--set", setting) != 0
        assert "set tokenizer.vocab_size = 997" in capsys.readouterr().err
    wanted = f"model.vocab_size={resolved(tmp_path / 'run').tokenizer.vocab_size}"
    assert clearhead("train", saved, "--set", wanted) == 0
    assert clearhead("train", "--out", tmp_path / "run", "--set", wanted) == 0
    edited = tmp_path / "edited.toml"
    rows, text = resolved(tmp_path / "run").model.vocab_size, saved.read_text(encoding="utf-8")
    before, model = text.split("[model]\n")
    edited.write_text(f"{before}[model]\n{model.replace(f'vocab_size = {rows}', 'vocab_size = 997', 1)}", "utf-8")
    assert clearhead("train", edited, "--out", tmp_path / "other") == 0
    assert f"model.vocab_size is {rows}, the pieces of this tokenizer, not 997 as set" in capsys.readouterr().err


@pytest.mark.usefixtures("without_steps")
def test_train_takes_a_configuration_after_its_options(tmp_path, pairs):
    (tmp_path / "c.toml").write_text("[train]\nseed = 11\n")
    assert clearhead("train", *QUICK_FLAGS, "--out", tmp_path / "run", "--pairs", pairs, tmp_path / "c.toml") == 0
    assert resolved(tmp_path / "run").train.seed == 11
    assert resolved(tmp_path / "run").data.pairs == (pairs,)


@pytest.mark.usefixtures("without_steps")
def test_fresh_starts_over(tmp_path, pairs, capsys):
    arguments = ["train", "--pairs", pairs, "--out", tmp_path / "run", *QUICK_FLAGS]
    assert clearhead(*arguments) == 0
    assert clearhead(*arguments, "--set", "train.seed=7", "--fresh") == 0
    assert (resolved(tmp_path / "run").train.seed, resolved(tmp_path / "run.old-1").train.seed) == (7, 1)
    assert "moved the earlier run to" in capsys.readouterr().err


@pytest.mark.usefixtures("without_steps")
def test_megabyte_words_are_dropped_and_counted(tmp_path, capsys):
    words = [("x" * 1_000_003, "y" * 1_000_003), ("z" * 1_000_003, "kurz")]
    path = write_tsv(tmp_path / "numbers.tsv", numbers() + words)
    assert clearhead("train", "--pairs", path, "--out", tmp_path / "run", *QUICK_FLAGS) == 0
    assert "2 dropped: too_many_characters" in capsys.readouterr().err
    assert open_prepared(tmp_path / "run" / "data").report["train"]["dropped"]["too_many_characters"] == 2


Bad = Callable[[Path], list[object]]


def text(name: str, content: bytes) -> Callable[[Path], str]:
    """Return a function that writes a file at the path that the test gives."""

    def write(directory: Path) -> str:
        (directory / name).write_bytes(content)
        return str(directory / name)

    return write


def of_pairs(content: bytes, *more: object) -> Bad:
    return lambda directory: ["--pairs", text("bad.tsv", content)(directory), *more]


def of_files(source: bytes, target: bytes) -> Bad:
    return lambda directory: [
        *("--source", text("bad.de", source)(directory)),
        *("--target", text("bad.en", target)(directory)),
    ]


def of_settings(*more: object) -> Bad:
    return lambda directory: ["--pairs", directory / "numbers.tsv", *more]


def of_config(content: bytes) -> Bad:
    return lambda directory: [text("c.toml", content)(directory), "--pairs", directory / "numbers.tsv"]


LINES = b"".join(b"eins %d\n" % n for n in range(211))
TSV = "".join(f"{source}\t{target}\n" for source, target in numbers()).encode()
CSV = "".join(f"{n},{source},{target}\n" for n, (source, target) in enumerate(numbers())).encode()
WORDS = b"".join(b"%s\t%s\n" % (bytes([97 + n]) * 1_000_003, b"y" * 1_000_003) for n in range(12))

MISTAKES: dict[str, tuple[Bad, str]] = {
    "missing file": (lambda d: ["--pairs", d / "none.tsv"], r"there is no such file: .*none\.tsv"),
    "missing files": (
        lambda d: ["--source", d / "a.de", d / "b.de", "--target", d / "a.en", d / "b.en"],
        r"there is no such file: .*a\.de, .*b\.de, .*a\.en, .*b\.en",
    ),
    "missing validation file": (of_settings("--valid-pairs", "none.tsv"), r"there is no such file: none\.tsv"),
    "directory": (lambda d: ["--source", d, "--target", d], r" is a directory; give a file"),
    "directory of pairs": (
        lambda d: [(d / "dir.tsv").mkdir(), "--pairs", d / "dir.tsv"][1:],
        r"dir\.tsv is a directory without a file of pairs \(",
    ),
    "unequal counts": (of_files(LINES, LINES[:-9]), r"bad\.de has 211 lines but .*bad\.en has 210"),
    "source without target": (
        lambda d: ["--source", text("bad.de", LINES)(d)],
        r"1 source files but 0 target files",
    ),
    "not utf-8": (
        of_files(LINES, b"eins\nzwei f\xfcnf\n" + LINES),
        r"bad\.en, line 2: byte 7 \(0xfc\) is not valid UTF-8",
    ),
    "nul": (of_pairs(TSV + b"ei\0ns\tone\n"), r"bad\.tsv, line 201: byte 3 is NUL"),
    "utf-16": (of_files("eins\n".encode("utf-16"), b"one\n"), r"bad\.de looks like UTF-16; convert: iconv"),
    "rows without a tab": (
        of_pairs(TSV + b"eins one\n" * 3),
        r"bad\.tsv was taken for: tab-separated, 2 columns; but 3 of 203 rows are no pairs, and at most 1 % may be "
        r"skipped: line 201: there is no tab \(the row begins 'eins one'\); line 202: .*; mend or remove",
    ),
    "no tab anywhere": (
        lambda d: ["--pairs", text("bad.txt", LINES)(d)],
        r"bad\.txt, line 1: there is no tab \(the line begins 'eins 0'\), and none of the first 200 lines has two",
    ),
    "no such column": (
        lambda d: ["--pairs", text("bad.csv", b"id,de,en\n" + CSV)(d), "--columns", "de,english"],
        r"bad\.csv has no column 'english'; it has 'id', 'de', 'en' \(columns may also be given by number, from 1\)",
    ),
    "no such number": (
        of_settings("--columns", "1,4"),
        r"column 4 is asked for, but \S*numbers\.tsv has 2 columns",
    ),
    "one column twice": (of_settings("--columns", "1,1"), r"columns '1,1': name two different ones, source and target"),
    "one column": (of_settings("--columns", "en"), r"columns 'en': name two different ones"),
    "column 0": (of_settings("--set", "data.columns=[0, 1]"), r"columns \[0, 1\]: name two .* counted from 1"),
    "a header that leaves it open": (
        lambda d: ["--pairs", text("bad.csv", b"de,en,fr\nja,yes,oui\n")(d)],
        r"bad\.csv has 3 columns: 'de', 'en', 'fr'; say which two hold source and target, for example --columns en,fr",
    ),
    "columns of lines": (
        lambda d: [*of_files(LINES, LINES)(d), "--columns", "1,2"],
        r"columns 1,2: no file of pairs is named that could have them; leave data\.columns \(--columns\) out",
    ),
    "unknown format": (
        lambda d: ["--pairs", text("bad.docx", TSV)(d)],
        r"bad\.docx.*\.tsv",
    ),
    "empty file": (of_pairs(b""), r"empty corpus: there is no line in .*bad\.tsv"),
    "blank lines": (of_files(b"\n" * 17, b"\n" * 17), r"none of the 17 training pairs .* dropped: empty 17"),
    "megabyte words only": (of_pairs(WORDS), r"none of the 12 training pairs .* dropped: too_many_characters 12"),
    "three pairs": (of_pairs(b"".join(TSV.splitlines(True)[:3])), r"the corpus has 3 usable pairs, and 10 are needed"),
    "few bytes": (
        lambda d: [*of_pairs(b"eins\tone\nzwei\ttwo\n")(d), "--valid-pairs", text("v.tsv", b"drei\tthree\n")(d)],
        r"the training text \(14 bytes\) is smaller than the smallest vocabulary",
    ),
    "empty validation": (
        lambda d: [*of_settings("--valid-pairs", text("v.tsv", b"")(d))(d)],
        r"empty corpus: there is no line in .*v\.tsv",
    ),
    "validation is training": (
        of_settings("--valid-pairs", "numbers.tsv"),
        r"none of the 200 training pairs .* dropped: leakage 200",
    ),
    "vocabulary too large": (
        of_settings("--set", "tokenizer.vocab_size=5000"),
        r"tokenizer\.vocab_size \(5000\) is more than the \d+ pieces this corpus yields; set it to at most \d+",
    ),
    "vocabulary too small": (
        of_settings("--set", "tokenizer.vocab_size=100"),
        r"tokenizer\.vocab_size \(100\) must be at least \d+",
    ),
    "no text": (lambda d: [], r"there is no training text: .*--source F --target F.*--pairs F\.tsv"),
    "unknown key": (
        of_settings("--set", "train.warmup_step=3"),
        r"unknown setting 'train\.warmup_step'; did you mean 'train\.warmup_steps'",
    ),
    "unknown section": (of_settings("--set", "trian.seed=3"), r"unknown setting 'trian'; did you mean 'train'"),
    "two mistakes": (
        of_settings("--set", "train.warmup_step=3", "model.dropout=2"),
        r"(?s)unknown setting 'train\.warmup_step'.*model\.dropout = 2|model\.dropout = 2.*'train\.warmup_step'",
    ),
    "heads": (
        of_settings("--set", "model.num_heads=7"),
        r"model\.d_model \(\d+\) must be a multiple of model\.num_heads \(7\); nearest that fit: \d+",
    ),
    "wrong kind of value": (of_settings("--set", "train.batch_tokens=many"), r"train\.batch_tokens = 'many'"),
    "no steps": (of_settings("--max-steps", "0"), r"train\.max_steps = 0"),
    "negative minutes": (of_settings("--max-minutes", "-1"), r"train\.max_minutes = -1"),
    "nonsense for --set": (
        of_settings("--set", "nonsense"),
        r"--set 'nonsense' must look like section\.key=value, for example --set train\.max_steps=1000",
    ),
    "unknown preset": (of_settings("--preset", "tinny"), r"unknown preset 'tinny'; did you mean 'tiny'"),
    "unknown device": (of_settings("--device", "gpu"), r"unknown device 'gpu'; use auto, cpu, cuda"),
    "missing configuration": (lambda d: [d / "none.toml"], r"cannot read the configuration .*none\.toml: No such file"),
    "not toml": (of_config(b"[train\n"), r"c\.toml is not valid TOML"),
    "binary configuration": (of_config(b"\xff\xfe\0"), r"c\.toml is not valid TOML"),
    "unknown key in the file": (
        of_config(b"[data]\nsorce = ['a']\n"),
        r"unknown setting 'data\.sorce'; did you mean 'data\.source'",
    ),
}


@pytest.mark.parametrize(("mistake", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_gets_one_paragraph_and_leaves_nothing(mistake, message, tmp_path, pairs, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = mistake(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert clearhead("train", "--out", tmp_path / "run", *arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert err.count("clearhead: ") == 1
    paragraph = err[err.index("clearhead: ") :]
    assert re.search(message, paragraph), paragraph
    assert "\n\n" not in paragraph
    assert len(paragraph) < 1_000
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_train_rejects_an_unavailable_device(tmp_path, pairs, capsys):
    assert clearhead("train", "--pairs", pairs, "--out", tmp_path / "run", "--device", "cuda") == 1
    assert "device 'cuda' is not available: this machine has no cuda device" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_train_without_out_is_rejected(pairs, capsys):
    assert clearhead("train", "--pairs", pairs) == 1
    assert capsys.readouterr().err.startswith("clearhead: name the run directory: --out RUN")


@pytest.mark.parametrize("out", ["numbers.tsv/run", "/proc/run"])
def test_train_rejects_an_unwritable_run_directory(tmp_path, pairs, capsys, monkeypatch, out):
    if out.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("needs a /proc")
    monkeypatch.chdir(tmp_path)
    assert clearhead("train", "--pairs", pairs, "--out", out) == 1
    err = capsys.readouterr().err
    assert re.fullmatch(rf"clearhead: cannot (create|write) the run directory \S*{out}: .*\n", err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-steps", "many"], "Invalid value for '--max-steps'"),
        (["--maxsteps", "3"], "No such option: --maxsteps"),
        (["a.toml", "b.toml"], "unexpected argument b.toml"),
        (["--out"], "requires an argument"),
    ],
)
def test_wrong_usage_has_a_status_of_its_own(tmp_path, pairs, capsys, arguments, message):
    assert clearhead("train", "--pairs", pairs, *arguments) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["corpus", "stats", "x"], "x: there is no such file"),
        slow(["train", "--pairs", "x", "--out", "run"], "there is no such file: x"),
    ],
)
def test_the_installed_command_ends_with_the_status(tmp_path, command, said):
    done = subprocess.run(
        [sys.executable, "-c", "from clearhead.cli.main import run; run()", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"clearhead: {said}\n")
    assert list(tmp_path.iterdir()) == []
