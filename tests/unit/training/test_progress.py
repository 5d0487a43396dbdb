"""What a person sees: lines in a log file, a bar on a terminal."""

from __future__ import annotations

import pytest

from clearhead.training import progress as module
from clearhead.training.progress import Display

PROGRESS = {"step": 1234, "progress": 0.5, "loss": 2.34567, "tokens_per_second": 4321.0}


def test_without_a_terminal_each_stage_is_named_once_on_stderr(capsys):
    with Display() as display:
        for count in range(3):
            display.stage("reading", 1000 * count)
        display.stage("tokenising", 0)
        display.stage("reading \x1b[2J", 1)
        display.say("done [bold]as is[/bold]\r")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["reading", "tokenising", r"reading \x1b[2J", r"done [bold]as is[/bold]\r"]


@pytest.mark.parametrize(
    ("seconds", "left"), [(59.9, "0:59 left"), (61, "1:01 left"), (3661, "1:01:01 left"), (-5, "0:00")]
)
def test_display_prints_training_progress_periodically_with_the_time_left(capsys, monkeypatch, seconds, left):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with Display() as display:
        display.training(**PROGRESS, seconds_left=seconds)
        assert capsys.readouterr().err == ""
        clock[0] += 31
        display.training(**PROGRESS, seconds_left=seconds)
        display.training(**PROGRESS, seconds_left=seconds)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("step 1,234  loss 2.346  4,321 tokens/s")
    assert left in line


def test_display_renews_one_line_in_a_notebook(capsys, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with Display() as display:
        display.stage("reading", 1000)
        display.stage("reading", 2000)
        display.say("done")
        for _ in range(2):
            clock[0] += 1
            display.training(**PROGRESS, seconds_left=5)
    out, err = capsys.readouterr()
    first, rest = err.split("done\n")
    assert (out, first) == ("", f"reading 1,000\r{' ' * 13}\rreading 2,000\r{' ' * 13}\r")
    text = "step 1,234  loss 2.346  4,321 tokens/s  0:05 left"
    assert rest == 2 * f"{text}\r{' ' * len(text)}\r"


def test_a_terminal_gets_a_bar_and_file_names_with_brackets_are_text(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Display() as display:
        display.stage("reading data[/de].txt", 7000)
        display.training(**PROGRESS, seconds_left=5)
        display.say("validated [/x]")
        display.stage("reading data[/de].txt", 9000)
    out, err = capsys.readouterr()
    assert out == ""
    assert "validated [/x]" in err
    assert "reading data[/de].txt 9,000" in err
