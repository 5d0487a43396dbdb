"""Uploaded documents in a process of their own: as read here, with limits of memory and time."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from http import HTTPStatus
from pathlib import Path
from shutil import rmtree

import psutil
import pytest

from clearhead.errors import DataError
from clearhead.formats.document import Filling, watched_by
from clearhead.formats.document_files import read_document
from clearhead.serving import document_process, files
from clearhead.serving.document_process import TextLimit, memory_of, open_document
from clearhead.serving.files import TranslatedFiles, uploaded
from clearhead.serving.http_errors import HTTPError, timed_out
from clearhead.serving.metrics import Metrics

PAGE = "Ein `Hund` und `Katzen`.\n\nZwei.\n\n> <p>Drei</p>\n"
WRONG = "A <x1/><x2/>"  # code next to code would be one code


def no_limit():
    """Let it take as long as it takes."""


def test_a_document_is_as_read_here(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    here = read_document(str(path))
    filled = [None, Filling("Two.")]
    before = set(multiprocessing.active_children())
    with open_document(str(path), no_limit) as there:
        assert list(there.segments) == list(here.segments)
        assert (there.format, there.keeps_finished) == (here.format, here.keeps_finished)
        assert there.remarks == here.remarks != []
        assert there.problem(0, WRONG) == here.problem(0, WRONG) != ""
        assert there.filled(filled) == here.filled(filled)
    assert set(multiprocessing.active_children()) <= before


def test_the_language_of_translations_reaches_the_process(tmp_path):
    path = tmp_path / "page.html"
    path.write_text('<html lang="en"><p>a', encoding="utf-8")
    with open_document(str(path), no_limit) as document:
        document.language = "de"
        assert document.filled([Filling("b")]) == b'<html lang="de"><p>b'


def test_document_process_above_its_memory_limit_is_answered_413(tmp_path, monkeypatch):
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(document_process, "_serve_document", _fill_the_memory)
    with pytest.raises(HTTPError, match="too much memory") as refused, open_document(str(path), no_limit):
        pass
    assert refused.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def _fill_the_memory(connection, path, options, limit):
    document_process.read_document = lambda *_, **__: bytearray(document_process.MAX_MEMORY)
    document_process._serve_document(connection, path, options, limit)


@pytest.mark.parametrize(
    ("name", "size", "memory"),
    [
        ("a.vtt", 0, 134_217_728),
        ("a.vtt", 6_000_000, 494_217_728),
        ("a.DOCX", 1_000_000, 734_217_728),
        ("a.html", 30_000_000, 1_073_741_824),
    ],
)
def test_memory_grows_with_the_size_of_a_file(name, size, memory):
    assert memory_of(name, size) == memory


def test_a_process_that_was_ended_is_an_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(document_process, "_serve_document", _end)
    with pytest.raises(HTTPError, match="too much memory"), open_document(str(tmp_path / "a.html"), no_limit):
        pass


def _end(*_):
    """End without an answer."""


def test_document_process_past_its_time_limit_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(document_process, "_serve_document", _wait)

    before = set(multiprocessing.active_children())

    def over():
        raise timed_out()

    with pytest.raises(HTTPError) as refused, open_document(str(tmp_path / "a.html"), over):
        pass
    assert refused.value.status == HTTPStatus.GATEWAY_TIMEOUT
    until = time.monotonic() + 60
    while not set(multiprocessing.active_children()) <= before:  # it had not started yet
        assert time.monotonic() < until
        time.sleep(0.01)


def _wait(connection, *_):
    connection.recv()


FORKS = "forkserver" in multiprocessing.get_all_start_methods()


def run(program, directory):
    """Start a program in a process with a forkserver of its own; its standard output is read from it."""
    first = "import os, signal, sys, test_document_process as tests; from clearhead.serving import document_process\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", first + program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=directory)


@pytest.mark.skipif(not FORKS, reason="processes are not forked")
def test_a_process_that_forks_is_replaced_when_it_is_stopped_or_its_socket_is_swept(tmp_path):
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    program = (
        "def count():\n"
        "    with document_process.open_document('page.md', tests.no_limit) as document:\n"
        "        print(len(document.segments), document_process._forkserver(), flush=True)\n"
        "document_process.prepare(); count()\n"
        "os.kill(document_process._forkserver(), signal.SIGSTOP)\n"
        "document_process.SECONDS_TO_START = 0.5\n"
        "try:\n"
        "    with document_process.open_document('page.md', tests._refuse): pass\n"  # its time is over
        "except tests.HTTPError: document_process.SECONDS_TO_START = 5\n"
        "count()\n"
        "tests.rmtree(document_process.get_temp_dir()); count()\n"
    )
    with run(program, tmp_path) as ran:
        said = [line.split() for line in ran.communicate()[0].splitlines()]
    assert {segments for segments, _ in said} == {"2"}
    assert len({number for _, number in said} - {"None"}) == 3
    assert ran.returncode == 0


def _refuse():
    raise timed_out()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_server_whose_files_cannot_be_read_is_not_ready_until_the_process_that_forks_is_replaced(tmp_path):
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    program = (
        "from clearhead.config import ServeConfig\n"
        "from clearhead.serving.keys import Keys\n"
        "from clearhead.serving.service import Service\n"
        "service = Service([], ServeConfig(), Keys({}), device='cpu')\n"
        "service.load()\n"
        "with document_process.open_document('page.md', tests.no_limit): print(service.is_ready)\n"
        "before = document_process._forkserver()\n"
        "os.kill(before, signal.SIGSTOP)\n"
        "while not document_process.is_stopped(): pass\n"
        "print(service.is_ready); service.check_processes(); print(service.is_ready)\n"
        "with document_process.open_document('page.md', tests.no_limit) as document: print(len(document.segments))\n"
        "print(document_process._forkserver() != before)\n"
        "service.close()\n"
    )
    with run(program, tmp_path) as ran:
        assert ran.communicate()[0].split() == ["True", "False", "True", "2", "True"]
    assert ran.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_memory_of_documents_is_counted(tmp_path):
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    others = {child.pid for child in multiprocessing.active_children()}  # servers of other tests
    with open_document(str(tmp_path / "page.md"), no_limit):
        own = {child.pid for child in multiprocessing.active_children()} - others
        numbers = [document_process._forkserver(), *own]
        resident = sum(psutil.Process(number).memory_info().rss for number in numbers)
        assert document_process.resident_memory() == pytest.approx(resident, rel=0.2)
        metrics = Metrics(
            num_open=lambda: 0,
            num_requests=lambda: 0,
            is_ready=lambda: True,
            document_memory=document_process.resident_memory,
        )
        assert b"\nclearhead_documents_resident_memory_bytes " in metrics.text()
    assert document_process.resident_memory() < resident


@pytest.mark.skipif(not FORKS, reason="processes are not forked")
def test_the_process_ends_with_its_server(tmp_path):
    program = (
        "from multiprocessing import active_children\n"
        "def say(): print(*(one.pid for one in active_children()), flush=True)\n"
        "document_process._serve_document = tests._compute\n"
        "with document_process.open_document('a.html', say): pass\n"
    )
    with run(program, tmp_path) as server:
        number = int(next(filter(str.strip, server.stdout)))
        process = psutil.Process(number)
        server.kill()
    psutil.wait_procs([process], timeout=60)
    assert not process.is_running()


def _compute(connection, *_):
    """Compute for a long time, as reading some documents does."""
    document_process._end_with_server(connection)
    while True:
        pass


@pytest.mark.skipif(not FORKS, reason="processes are not forked")
@pytest.mark.parametrize("command", [[], ["clearhead.cli.main"]])
def test_prepare_preloads_the_command_in_the_forkserver(monkeypatch, command):
    preloaded = []
    monkeypatch.setattr(document_process._CONTEXT, "set_forkserver_preload", preloaded.extend)
    monkeypatch.setattr("multiprocessing.forkserver.ensure_running", lambda: None)
    monkeypatch.delitem(sys.modules, "clearhead.cli.main", raising=False)
    for name in command:
        monkeypatch.setitem(sys.modules, name, None)
    document_process.prepare()
    assert preloaded == ["clearhead.serving.document_process", *command]


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        ("a.json", b"{", DataError, r"^a\.json, line 1"),
        (
            "a.csv",
            b"one,two,three\nx,y,z\n",
            HTTPError,
            r"^a\.csv has 3 columns \(numbers 1 to 3\); say which to translate, for example columns 1, or which one "
            r"into which other, columns 1,2; a file of one column needs no choice$",
        ),
        ("a.tmx", b"<tmx>\n\x1e</tmx>", DataError, r"^a\.tmx, line 2, .* U\+001E; remove it$"),
        ("a.srt", b"one", DataError, r"^a\.srt has 1 lines, and none with times, .* --> 00:00:04,000$"),
    ],
)
def test_errors_of_uploaded_files_name_no_path_and_no_option(tmp_path, name, data, error, message):
    with pytest.raises(error, match=message), uploaded(name, data, tmp_path, no_limit):
        pass
    assert not list(tmp_path.iterdir())


def test_the_languages_of_a_request_choose_those_of_a_memory(tmp_path):
    texts = {"de": "Ein Hund", "fr": "Un chien", "en": "A dog"}
    variants = "".join(f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>' for language, text in texts.items())
    memory = f'<tmx version="1.4"><header/><body><tu>{variants}</tu></body></tmx>'.encode()
    with uploaded("a.tmx", memory, tmp_path, no_limit, from_lang="fr", to_lang="en") as document:
        assert [segment.text for segment in document.segments] == ["Un chien"]
    with pytest.raises(HTTPError, match="no text in 'it'"):
        uploaded("a.tmx", memory, tmp_path, no_limit, from_lang="it", to_lang="en").__enter__()


def test_a_file_in_another_language_than_the_request_says_so_in_its_fields(tmp_path):
    unit = '<trans-unit id="1"><source>a</source></trans-unit>'
    head = '<xliff version="1.2"><file source-language="en-US" datatype="plaintext" original="a"><body>'
    data = f"{head}{unit}</body></file></xliff>".encode()
    with uploaded("a.xlf", data, tmp_path, no_limit, from_lang="en", to_lang="de") as document:
        assert len(document.segments) == 1
    with pytest.raises(HTTPError, match=r"^a\.xlf, line 1: .*en-US.* source ") as refused:
        uploaded("a.xlf", data, tmp_path, no_limit, from_lang="fr", to_lang="de").__enter__()
    assert "--" not in refused.value.message


def test_files_of_a_directory_that_was_swept_are_gone_and_new_ones_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = TranslatedFiles(60)
    left = store.add("anna", "a.txt", b"1")
    rmtree(store.directory)
    with pytest.raises(HTTPError) as refused:
        store.get(left)
    assert refused.value.status == HTTPStatus.NOT_FOUND
    path = store.directory
    with uploaded("a.txt", b"Ein Hund.", path, no_limit) as document:
        assert len(document.segments) == 1
    kept = store.add("anna", "b.txt", b"2")
    assert store.get(kept) == b"2"
    assert path.stat().st_mode & 0o077 == 0
    store.close()
    assert not list(tmp_path.glob(f"{files._PREFIX}*"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs on Windows")
def test_foreign_files_and_links_in_a_shared_directory_are_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a").touch()
    os.mkfifo(tmp_path / f"{files._PREFIX}fifo")
    (tmp_path / f"{files._PREFIX}link").symlink_to(elsewhere)
    for name, make in (("fifos", os.mkfifo), ("links", lambda path: path.symlink_to(elsewhere / "b"))):
        directory = tmp_path / f"{files._PREFIX}{name}"
        directory.mkdir()
        make(directory / "in use")
    monkeypatch.setattr(os, "geteuid", lambda owner=os.geteuid(): owner + 1)
    with pytest.raises(PermissionError):
        TranslatedFiles(60)  # all are of another user, its own too
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = TranslatedFiles(60)
    store.close()
    assert [path.name for path in elsewhere.iterdir()] == ["a"]
    names = {path.name.removeprefix(files._PREFIX) for path in tmp_path.iterdir()}
    assert names == {"elsewhere", "fifo", "link"}  # the directories of this user were left by a server


def test_directories_of_killed_servers_are_removed_and_those_in_use_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{files._PREFIX}left"
    left.mkdir()
    (left / "somebody's text").write_text("secret", encoding="utf-8")
    stores = [TranslatedFiles(60) for _ in range(2)]
    assert {Path(path) for path in tmp_path.iterdir()} == {store.directory for store in stores}
    for store in stores:
        store.close()
    assert not list(tmp_path.iterdir())


CSV = "\n".join(f"word{number}" for number in range(9))
PO = 'msgid ""\nmsgstr ""\n\n' + "".join(f'msgid "word{number}"\nmsgstr ""\n\n' for number in range(9))
UNITS = "".join(f"<trans-unit><source>word{number}</source></trans-unit>" for number in range(9))
XLF = f'<xliff version="1.2">{UNITS}</xliff>'
TUS = "".join(f'<tu><tuv xml:lang="en"><seg>word{number}</seg></tuv></tu>' for number in range(9))
TMX = f'<tmx version="1.4"><header srclang="en"/><body>{TUS}</body></tmx>'


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.json", json.dumps(CSV.split()), {}),
        ("a.csv", CSV, {}),
        ("a.po", PO, {}),
        ("a.xlf", XLF, {}),
        ("a.tmx", TMX, {"to_lang": "de"}),
        ("a.srt", "\n\n".join(f"{n}\n0:00:0{n},0 --> 0:00:0{n},9\nword{n}" for n in range(9)), {}),
    ],
)
def test_the_limit_of_characters_is_checked_while_segments_are_found(tmp_path, name, content, options):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    seen = []

    def watch(document, segment):
        seen.append(segment.text)
        limit(document, segment)

    limit = TextLimit(3 * len("word0"))
    with pytest.raises(HTTPError, match=r"request \(more than 15\) exceeds text limit \(15\)"), watched_by(watch):
        read_document(str(path), **options)
    assert seen == ["word0", "word1", "word2", "word3"]  # and no more of the nine
    with pytest.raises(HTTPError, match="more than 15"), open_document(str(path), no_limit, 15, **options):
        pass
    with open_document(str(path), no_limit, 45, **options) as document:
        assert len(document.segments) == 9


def test_character_limit_counts_each_untranslated_text_with_words_once(tmp_path):
    path = tmp_path / "a.po"
    messages = [("", ""), ("finished", "fertig"), ("open\\n1.5\\nlines", ""), ("lines", "")]
    path.write_text("".join(f'msgid "{one}"\nmsgstr "{other}"\n\n' for one, other in messages), encoding="utf-8")
    with open_document(str(path), no_limit, len("open" + "lines")) as document:
        assert len(document.segments) == 3
    with pytest.raises(HTTPError, match="more than 8"), open_document(str(path), no_limit, 8):
        pass
