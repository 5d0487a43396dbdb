"""The command line as a whole: streams that are closed or full, signals, and `python -m clearhead`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from clearhead.cli.main import make_app, run
from clearhead.runtime.version import full_version
from commands import clearhead
from every_run import slow

CLOSED = """
import os, sys
for number in map(int, sys.argv[1].split(",")):
    os.close(number)
os.execv(sys.executable, [sys.executable, "-m", "clearhead", *sys.argv[2:]])
"""


@pytest.fixture(autouse=True)
def buffered_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python buffer standard streams, as it does unless told otherwise: what fails there fails again at exit."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def clearhead_with_closed(numbers: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line with some of the standard streams closed before it starts."""
    command = [sys.executable, "-c", CLOSED, numbers, *map(str, arguments)]
    return subprocess.run(command, input="Ein Hund.\n", capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("Ein Hund.\n", encoding="utf-8")
    return path


@pytest.fixture
def pairs(tmp_path) -> Path:
    path = tmp_path / "in.tsv"
    path.write_text("Ein Hund.\tA dog.\n", encoding="utf-8")
    return path


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "clearhead", "--version"], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == f"clearhead {full_version()}\n"


AS_CLEARHEAD = "import sys; sys.argv[0] = 'clearhead'; from clearhead.cli.main import run; run()"


COMPLETIONS = """
import contextlib, io, json, os, sys
from clearhead.cli.main import run
sys.argv[0], offered = "clearhead", []
for words in json.loads(sys.argv.pop()):
    os.environ |= {"_CLEARHEAD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        run()
    offered.append(out.getvalue().split())
print(json.dumps(offered))
"""
"""What bash is offered for the last of the words, each in turn."""


def test_a_shell_completes_commands_options_and_choices():
    expected = {
        "clearhead tra": ["train", "translate"],
        "clearhead translate --prec": ["--precision"],
        "clearhead translate model --precision b": ["bf16x3", "bf16"],
        "clearhead corpus ch": ["check"],
        "clearhead corpus check --out": ["--output", "--out"],
        "clearhead translate model fil": [],  # the shell offers files
    }
    command = [sys.executable, "-c", COMPLETIONS, json.dumps([*expected])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert dict(zip(expected, json.loads(done.stdout), strict=True)) == expected


def test_the_script_for_a_shell_is_shown_and_one_command_does_without():
    command = [sys.executable, "-c", AS_CLEARHEAD, "--show-completion", "bash"]
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert "_CLEARHEAD_COMPLETE=complete_bash $1" in done.stdout
    assert [make_app(only)._add_completion for only in (None, "translate")] == [True, False]


def assert_one_line(done: subprocess.CompletedProcess[str], line: str) -> None:
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == line
    assert "Traceback" not in done.stderr


CANNOT_WRITE = "clearhead: cannot write standard output: Bad file descriptor"
CANNOT_READ = "clearhead: cannot read standard input: Bad file descriptor"


def test_a_closed_standard_output_is_one_line():
    assert_one_line(clearhead_with_closed("1", "--version"), CANNOT_WRITE)


def test_a_closed_standard_input_is_one_line():
    done = clearhead_with_closed("0", "corpus", "stats", "-")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{CANNOT_READ}\n")


def test_convert_to_a_file_works_with_closed_standard_streams(pairs, tmp_path):
    output = tmp_path / "out.jsonl"
    done = clearhead_with_closed("0,1,2", "corpus", "convert", pairs, output)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(output.read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.slow  # it imports PyTorch for each; the commands above do not
def test_closed_streams_are_one_line_of_a_translation_as_well(make_model_dir, text, tmp_path):
    assert_one_line(clearhead_with_closed("1", "translate", make_model_dir(), text), CANNOT_WRITE)
    done = clearhead_with_closed("0", "translate", make_model_dir())
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{CANNOT_READ}\n")
    output = tmp_path / "out.txt"
    done = clearhead_with_closed("0,1,2", "translate", make_model_dir(), text, "-o", output)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(output.read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
@pytest.mark.parametrize("arguments", [slow(["--version"]), ["--help"]])
def test_a_full_standard_output_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "clearhead", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "clearhead: cannot write standard output: No space left on device"
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs pipes that break")
@pytest.mark.parametrize(
    ("gone", "arguments", "code"),
    [
        slow("stdout", [], 0),
        slow("stdout", ["--version"], 0),
        ("stdout", ["--help"], 0),
        slow("stdout", ["nonsense"], 2),
        ("stderr", ["nonsense"], 1),  # a mistake is one, read or not
    ],
)
def test_closed_stdout_or_stderr_keeps_the_exit_status(gone, arguments, code):
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, gone: writing}
    command = [sys.executable, "-m", "clearhead", *arguments]
    done = subprocess.run(command, **streams, text=True, timeout=120, check=False)
    os.close(writing)
    assert done.returncode == code
    assert code or done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
def test_convert_ends_well_if_stderr_is_full(pairs, tmp_path, capsys):
    command = [sys.executable, "-m", "clearhead", "corpus", "convert", str(pairs), str(tmp_path / "out.jsonl")]
    clearhead(*command[3:])
    said = capsys.readouterr().err
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, timeout=120, check=False)
    assert "1 pairs written" in said
    assert done.returncode == 0
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8").count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
def test_a_full_standard_error_stops_no_translation(make_model_dir, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text("Hund " * 2_000 + "\n", encoding="utf-8")  # cut, which is said on standard error
    model = make_model_dir(decode={"max_input_tokens": 7, "beam_size": 1})
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "clearhead", "translate", str(model), str(long)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("previous", [signal.SIG_DFL, signal.SIG_IGN])
def test_sigterm_is_handled_while_a_command_runs_and_left_as_it_was(monkeypatch, previous):
    during = []
    before = signal.signal(signal.SIGTERM, previous)
    try:
        handler = partial(signal.getsignal, signal.SIGTERM)
        monkeypatch.setattr("clearhead.cli.main.make_app", lambda only: lambda args, obj: during.append(handler()))
        run(["--version"])
        assert signal.getsignal(signal.SIGTERM) is previous
    finally:
        signal.signal(signal.SIGTERM, before)
    # Where the signal is ignored, as under nohup, it stays ignored.
    assert (during[0] is previous) == (previous is signal.SIG_IGN)


def test_a_sigterm_ends_the_blocks_of_the_command(monkeypatch):
    ended = []

    def command(args: list[str], obj: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)  # a second one does not interrupt the tidying up
            ended.append(True)

    monkeypatch.setattr("clearhead.cli.main.make_app", lambda only: command)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        assert clearhead() == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended == [True]


@pytest.mark.parametrize(
    ("threads", "rule"), [(0, "greater than or equal to 1"), (100_000, "less than or equal to 1024")]
)
def test_impossible_numbers_of_threads_are_refused(threads, rule, capsys):
    assert clearhead("translate", "model", "--threads", threads) == 2
    assert rule in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["train"], ["translate"], ["score"], ["evaluate"], ["optimize"], ["average"], ["verify"]),
        ["demo", "--minutes", "0"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_command_that_computes_takes_the_number_of_threads(arguments, monkeypatch):
    asked = []
    monkeypatch.setattr("clearhead.runtime.threads.set_num_threads", asked.append)
    assert clearhead(arguments[0], "--threads", "3", *arguments[1:]) in (1, 2)  # for want of a model or run
    assert asked == [3]


@pytest.mark.parametrize("command", ["info", "verify", "translate"])
def test_a_name_that_is_too_long_is_one_line(command, capsys):
    assert clearhead(command, "x" * 5_000) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(("clearhead: cannot use xxx", "clearhead: no model at xxx"))
    assert line.endswith(": File name too long")
    assert len(line) < 4_000
