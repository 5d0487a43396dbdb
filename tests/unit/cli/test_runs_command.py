"""`clearhead runs`: runs listed and compared, and `train --watch`, the page of a run in progress."""

from __future__ import annotations

import json
import re
import shutil
import socket
from pathlib import Path

import httpx
import pytest

from clearhead.pages import Html
from clearhead.serving.watch import watched
from clearhead.training.loop import Loop
from commands import clearhead
from small_runs import QUICK_FLAGS, write_numbers


@pytest.fixture
def runs(quick_run, tmp_path, monkeypatch) -> Path:
    """Return a folder of two runs that differ in their seed."""
    folder = tmp_path / "runs"
    shutil.copytree(quick_run, folder / "first")
    second = Path(shutil.copytree(quick_run, folder / "second"))
    settings = (second / "config.toml").read_text(encoding="utf-8")
    (second / "config.toml").write_text(re.sub(r"(?m)^seed = \d+", "seed = 4321", settings), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


def test_runs_are_listed_with_the_settings_that_differ(runs, capsys):
    assert clearhead("runs") == 0
    said = capsys.readouterr().out.splitlines()
    assert [said[0], said[3]] == ["runs/first", "runs/second"]
    assert said[1] == said[4] == "  finished, 4 steps of tiny on 189 pairs of numbers.tsv"
    assert re.fullmatch(r"  validation BLEU \d+\.\d\d, chrF \d+\.\d\d", said[2])
    assert said[6:] == ["  train.seed = 4321"]
    assert clearhead("runs", "runs/second", "--json") == 0
    (summary,) = json.loads(capsys.readouterr().out)
    assert (summary["run"], summary["settings"]["train.seed"]) == ("runs/second", 4321)


def test_runs_are_compared(runs, capsys):
    assert clearhead("runs", "--compare", "-o", "page.html") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == ["\truns/first\truns/second", "train.seed\t1\t4321"]
    assert captured.err == "page: page.html\n"
    assert "train.seed" in Path("page.html").read_text(encoding="utf-8")
    assert clearhead("runs", "runs/first", "--compare") == 1
    assert "--compare needs several runs, and this is runs/first alone" in capsys.readouterr().err


def test_a_damaged_run_does_not_hide_the_others(runs, capsys):
    (runs / "first" / "config.toml").write_text("preset = ", encoding="utf-8")
    assert clearhead("runs") == 0
    captured = capsys.readouterr()
    assert "first/config.toml" in captured.err
    assert captured.out.startswith("runs/second\n")
    assert clearhead("runs", "runs/first") == 1
    assert "none of these runs can be read" in capsys.readouterr().err


def test_a_page_replaces_no_file_of_another_kind(runs, tmp_path, capsys):
    theirs = tmp_path / "settings.toml"
    theirs.write_text("[train]", encoding="utf-8")
    assert clearhead("runs", "-o", str(theirs)) == 1
    assert "settings.toml: the page is a file whose name ends in .html" in capsys.readouterr().err
    assert theirs.read_text(encoding="utf-8") == "[train]"


def test_a_table_on_a_terminal_has_no_control_characters_of_a_run(runs, capsys, monkeypatch):
    settings = (runs / "second" / "config.toml").read_text(encoding="utf-8")
    changed = settings.replace("numbers.tsv", "num\\u001b]0;title\\u0007bers.tsv")
    assert changed != settings
    (runs / "second" / "config.toml").write_text(changed, encoding="utf-8")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert clearhead("runs", "--compare") == 0
    said = capsys.readouterr().out
    assert "train.seed" in said
    assert not {"\x1b", "\x07"} & {*said}


def test_settings_of_many_runs_are_compared_once(runs, monkeypatch):
    calls = []
    monkeypatch.setattr("clearhead.training.runs.differing_settings", lambda found: calls.append(len(found)) or {})
    assert clearhead("runs") == 0
    assert calls == [2]


def test_a_browser_that_reads_nothing_does_not_keep_a_page_from_ending():
    long = Html("x" * 20_000_000)  # more than a connection holds
    with socket.socket() as browser, watched(0, "title", lambda: long, lambda: 0) as address:
        browser.connect(("127.0.0.1", int(address.rsplit(":", 1)[1].strip("/"))))
        browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert browser.recv(1)  # the answer has begun, and stays unread


def test_a_run_in_progress_is_shown_to_this_machine(tmp_path, capsys, monkeypatch):
    answers = []
    advance = Loop.begin

    def begin(loop, *arguments):
        address = re.search(r"http://\S+", capsys.readouterr().err)[0]
        answers.append(httpx.get(address))
        answers.append(httpx.get(address, headers={"host": "evil.example"}))
        return advance(loop, *arguments)

    monkeypatch.setattr(Loop, "begin", begin)
    pairs = write_numbers(tmp_path / "numbers.tsv")
    assert clearhead("train", "--pairs", pairs, "--out", tmp_path / "run", "--watch", 0, *QUICK_FLAGS) == 0
    page, refused = answers
    assert page.status_code == 200
    assert "Training: run" in page.text
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    assert refused.status_code == 400


def test_a_port_in_use_is_refused_before_training(tmp_path, capsys):
    pairs = write_numbers(tmp_path / "numbers.tsv")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert clearhead("train", "--pairs", pairs, "--out", tmp_path / "run", "--watch", port) == 1
    said = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1 port {port}" in said
    assert "choose another port with --watch" in said
    assert not (tmp_path / "run").exists()
