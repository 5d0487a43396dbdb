"""A real server over small models, and what starts one."""

from __future__ import annotations

import json
import logging
import os
import signal
import string
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx
import pytest
from trained_text import counted, info_of
from typer.testing import CliRunner

from clearhead.bundle import save_bundle
from clearhead.cli.main import app
from clearhead.serving import search_process, service
from clearhead.serving.log import LOGGER
from clearhead.translation.golden import make_golden
from clearhead.translation.translator import Translator
from processes import check_often, finish
from processes import start as start_process

SECONDS_TO_START = 120.0
PATIENT = ("--set", f"request_seconds={SECONDS_TO_START:.0f}")
"""A busy machine may take long for an answer."""
LANGUAGES = ("de", "en", "fr")
TERMS = "Hund\tdog|hound\nMänner\tmen\nzwei Hunde\ttwo dogs\n"
MEMORY = "Zwei Männer sitzen auf einer Bank.\tTwo men on a bench.\nÖffnen Sie %s.\tOpen it.\n"


@dataclass
class Server:
    """A server in a process of its own."""

    process: ForkServerProcess
    log: Path
    url: str

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    @property
    def search(self) -> int:
        """The number of the process that searches (Linux): the fork of a fork."""
        return _fork_of(_fork_of(self.process.pid))

    def all_of(self, event: str) -> list[dict]:
        return [found for found in self.events() if found["event"] == event]

    def wait_for(self, event: str, **fields: object) -> dict:
        """Return what was logged, when it is."""
        until = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < until:
            for found in self.events():
                if found["event"] == event and fields.items() <= found.items():
                    return found
            time.sleep(0.02)
        raise AssertionError(f"no {event} in {self.log.read_text(encoding='utf-8')}")

    def end(self) -> int | None:
        """End it as a system does; return its status."""
        self.send(signal.SIGTERM)
        return finish(self.process)

    def send(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)


def _fork_of(process: int) -> int:
    """Return the only child that is a fork: others were started with commands of their own.

    One that was ended and one that takes its place may be there together, or neither; then it is waited for.
    """
    own, until = Path(f"/proc/{process}"), time.monotonic() + SECONDS_TO_START
    command = (own / "cmdline").read_bytes()
    while True:
        children = [child for one in own.glob("task/*/children") for child in one.read_text().split()]
        with suppress(FileNotFoundError):  # a child may end meanwhile
            found = [int(child) for child in children if Path(f"/proc/{child}/cmdline").read_bytes() == command]
            if len(found) == 1:
                return found[0]
        assert time.monotonic() < until, f"process {process} has no single fork"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def spared(monkeypatch) -> list[bool]:
    """Note what would spare all objects of the tests the garbage collection: it looks at each first, for a second."""
    spared: list[bool] = []
    for module in (search_process, service):
        monkeypatch.setattr(module, "freeze_loaded_objects", lambda: spared.append(True))
    return spared


@pytest.fixture
def noted() -> Iterator[list[dict]]:
    """Return what the server logs in this process, as it does."""
    events: list[dict] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: events.append(json.loads(record.getMessage()))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield events
    LOGGER.setLevel(logging.NOTSET)
    LOGGER.removeHandler(handler)


@pytest.fixture(scope="session")
def write_model(make_bundle) -> Callable[..., Path]:
    """Return a function that writes a small model with golden sentences; takes what `make_bundle` takes."""

    def write(path: Path, **settings: object) -> Path:
        bundle = make_bundle(**settings)
        save_bundle(path, bundle, golden=make_golden(Translator(bundle)), card="# A small model\n")
        return path

    return write


@pytest.fixture(scope="session")
def start_server(tmp_path_factory) -> Iterator[Callable[..., Server]]:
    """Return a function that starts a server and waits until it listens."""
    started = []

    def start(*arguments: str, wait: bool = True, first: Callable[[], None] = check_often) -> Server:
        log = tmp_path_factory.mktemp("server") / "log"
        log.touch()
        command = ["serve", "--port", "0", "--device", "cpu", "--threads", "2", *PATIENT, *arguments]
        process = start_process(command, log, first)
        server = Server(process, log, "")
        started.append(server)
        if wait:
            server.url = f"http://127.0.0.1:{server.wait_for('listening')['port']}"
            server.wait_for("ready")
        return server

    yield start
    for server in started:
        server.process.kill()
        server.process.join()


@pytest.fixture(scope="session")
def models(write_model, sentences, tmp_path_factory) -> dict[str, Path]:
    """Return a model of one pair of languages, and one with language tags, which knows that it was trained on lines
    of one sentence in usual letters."""
    directory = tmp_path_factory.mktemp("models")
    info = info_of(counted(zip(sentences, sentences, strict=True), "de", (90, 40), string.printable))
    tagged = {"language_tags": LANGUAGES, "decode": {"target_lang": "de"}, "info": info}
    return {
        "de-en": write_model(directory / "de-en", printable=True, decode={"source_lang": "de"}),
        "many": write_model(directory / "many", printable=True, seed=5, **tagged),
    }


@pytest.fixture(scope="session")
def lists(tmp_path_factory) -> dict[str, Path]:
    """Return a file of terms and a translation memory."""
    directory = tmp_path_factory.mktemp("lists")
    written = {directory / "terms.tsv": TERMS, directory / "memory.tsv": MEMORY}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return {path.stem: path for path in written}


@pytest.fixture(scope="session")
def server(start_server, models, lists) -> Server:
    """Return a server whose list of terms is for who asks for it, and for all that is translated from French to German;
    as is its translation memory."""
    terms, memory = lists["terms"], lists["memory"]
    named = ["--terms", f"pets={terms}", "--terms", f"fr-de={terms}", "--memory", f"fr-de={memory}"]
    return start_server(*map(str, models.values()), *named)


@pytest.fixture(scope="session")
def command() -> Callable[..., list[str]]:
    """Return a function that returns what `clearhead translate` prints of lines."""

    def translate(model: Path, *arguments: str, lines: list[str]) -> list[str]:
        done = CliRunner().invoke(app, ["translate", str(model), "--device", "cpu", *arguments], input="\n".join(lines))
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    return translate


@pytest.fixture
def client(server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=SECONDS_TO_START) as found:
        yield found
