"""The server of a review: its routes, what it refuses, and `clearhead review` from start to end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sqlite3
import threading
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from clearhead.cli import main
from clearhead.errors import ConfigError, DataError
from clearhead.formats.document_files import read_document
from clearhead.formats.pair import SentencePair
from clearhead.formats.tmx.pairs import write_tmx
from clearhead.serving import review as module
from clearhead.serving.review import review_app
from clearhead.translation.documents import TranslatedSegment
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.result import Alternative, Translation
from clearhead.translation.review import Review
from clearhead.translation.review_files import open_review
from clearhead.translation.terminology import Term, Terms
from processes import finish, wait_for_review
from processes import start as start_process

HEAD = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
CATALOGUE = HEAD + "".join(f'msgid "Hund {n}"\nmsgstr "{"dog 2" * (n == 2)}"\n\n' for n in range(5))
SECONDS_TO_ANSWER = 120.0
LOCAL = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}


class Model:
    """A model that has two translations of each line, and links words in order."""

    def __init__(self):
        self.asked = []

    def decode_config(self, settings):
        self.asked.append(settings)
        return type("Config", (), {"beam_size": 4})

    def translates(self, text):
        return any(map(str.isalpha, text))

    def translate(self, lines, num_best, one_line, **settings):
        self.asked.append({"num_best": num_best, **settings})
        pairs = [(line.upper(), line.title()) for line in lines]
        return [
            Translation(line, best, -1.0, (), alternatives=(Alternative(best, -1.0), Alternative(second, -2.0)))
            for line, (best, second) in zip(lines, pairs, strict=True)
        ]

    def align(self, sources, targets, **settings):
        if " 4" in sources[0]:
            raise ConfigError("words are aligned by cross-attention")
        return [[(0, 1), (1, 0)]]


@pytest.fixture
def catalogue(tmp_path) -> Path:
    path = tmp_path / "messages.po"
    path.write_text(CATALOGUE, encoding="utf-8")
    return path


@pytest.fixture
def review(catalogue):
    with open_review(str(catalogue), None, {}) as files:
        document = files.read(read_document)
        made = [
            TranslatedSegment(one, "kept")
            if one.is_finished
            else TranslatedSegment(one, "translated", Translation(one.text, one.text.upper(), -1.0, (), quality=0.5))
            for one in document.segments
        ]
        review = Review(files, document, made, terms=Terms([Term("Hund", ("dog",))]))
        yield review
        review.close()


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def app(review, model):
    page = {"name": "messages.po", "languages": ("de", None), "direction": ("ltr", "ltr"), "output": "messages.po"}
    return review_app(review, model, {"target_lang": "en"}, page, hosts=["localhost", "127.0.0.1"])


@pytest.fixture
def client(app):
    return TestClient(app, base_url="http://localhost", headers=LOCAL)


def edit(client, number, text="x", state="accepted", revision=0):
    return client.post(f"/segments/{number}", json={"text": text, "state": state, "revision": revision})


def test_the_page_knows_the_review_and_loads_nothing_else(client):
    answer = client.get("/")
    data = json.loads(re.search(r'<script[^>]* id="review"[^>]*>(.*?)</script>', answer.text, re.DOTALL)[1])
    assert (data["name"], data["count"], data["done"]) == ("messages.po", 5, 1)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_segments_come_in_order_page_by_page(client):
    answer = client.get("/segments", params={"start": 1, "count": 2, "show": "open"}).json()
    assert [one["number"] for one in answer["segments"]] == [1, 3]
    assert (answer["start"], answer["total"], answer["done"]) == (1, 4, 1)
    after = client.get("/segments", params={"after": 1, "show": "open"}).json()
    assert ([one["number"] for one in after["segments"]], after["start"]) == ([3, 4], 2)
    assert [one["number"] for one in client.get("/segments?show=done").json()["segments"]] == [2]
    for text, numbers in (("HUND 3", [3]), ("dog", [2]), ("cat", [])):  # in a source, in a translation
        found = client.get("/segments", params={"show": "all", "find": text}).json()
        assert ([one["number"] for one in found["segments"]], found["total"]) == (numbers, len(numbers))
    assert len(client.get("/segments").json()["segments"]) == 5
    assert client.get("/segments?start=99").json()["segments"] == []
    edit(client, 3, "dog 3")
    after = client.get("/segments", params={"after": 3, "show": "open"}).json()  # done meanwhile
    assert ([one["number"] for one in after["segments"]], after["start"]) == ([4], 2)


def test_a_segment_has_all_that_the_page_shows(client):
    assert client.get("/segments/1").json() == {
        "number": 1,
        "place": "entry 2, line 7",
        "source": "Hund 1",
        "text": "HUND 1",
        "machine": "HUND 1",
        "file": None,
        "origin": "machine",
        "state": "open",
        "flags": [],
        "quality": 0.5,
        "score_per_token": -1.0,
        "matches": [],
        "terms": [{"source": "Hund", "target": ["dog"], "found": False}],
        "placeholders": [],
        "context": None,
        "revision": 0,
    }


def test_a_change_is_answered_with_the_segment_and_undone(client, review, catalogue):
    changed = edit(client, 1, "dog 1").json()
    assert (changed["state"], changed["text"], changed["revision"]) == ("edited", "dog 1", 1)
    assert client.get("/status").json() == {"done": 2, "count": 5, "saved": False, "problem": None}
    review.save()
    assert client.get("/status").json()["saved"] is True
    assert 'msgstr "dog 1"' in catalogue.read_text(encoding="utf-8")
    assert client.post("/undo", json={}).json()["segment"]["state"] == "open"
    assert client.post("/undo", json={}).json() == {"segment": None}


def test_another_tab_gets_the_present_segment(client):
    edit(client, 0, "dog 0")
    answer = edit(client, 0, "hound 0")
    assert answer.status_code == 409
    assert answer.json()["segment"]["text"] == "dog 0"
    assert "changed" not in answer.json()


def test_a_text_that_cannot_be_written_and_a_document_that_was_changed(client, catalogue):
    answer = edit(client, 0, "a\0")
    assert (answer.status_code, answer.json()["error"][:16]) == (422, "entry 1, line 4:")
    catalogue.write_text("mine", encoding="utf-8")
    answer = edit(client, 0, "dog")
    assert (answer.status_code, answer.json()["changed"]) == (409, True)
    assert "is not overwritten" in answer.json()["error"]
    assert client.post("/undo", json={}).status_code == 200  # there is nothing to undo


def test_a_journal_that_cannot_be_written_keeps_the_segment_open(client, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answer = edit(client, 0, "dog")
    assert (answer.status_code, client.get("/segments/0").json()["state"]) == (503, "open")
    assert "No space left on device" in answer.json()["error"]


def test_checks_need_no_model(client, model):
    answer = client.post("/check", json={"number": 3, "text": "dog 4"}).json()
    assert [flag["kind"] for flag in answer["flags"]] == ["numbers"]
    assert answer["terms"] == [{"source": "Hund", "target": ["dog"], "found": True}]
    assert (answer["placeholders"], answer["problem"]) == ([], None)
    assert model.asked == []


def test_alternatives_and_links_are_those_of_the_model(client, model):
    answer = client.get("/segments/1/alternatives").json()
    assert answer == {
        "text": "HUND 1",
        "alternatives": ["HUND 1", "Hund 1"],
        "links": [[0, 1], [1, 0]],
    }
    assert model.asked[1] == {"num_best": 5, "beam_size": 5, "target_lang": "en"}
    assert client.get("/segments/4/alternatives").json()["links"] == []


def test_the_inside_of_a_segment_is_a_page(client, monkeypatch):
    class Explained:
        def to_html(self):
            return "<p>inside</p>"

    asked = []
    monkeypatch.setattr(
        module, "explain", lambda *texts, **settings: asked.append((*texts[1:], settings)) or Explained()
    )
    answer = client.get("/segments/1/inside")
    assert (answer.text, asked) == ("<p>inside</p>", [("Hund 1", "HUND 1", {"target_lang": "en"})])


def test_a_text_over_the_limit_of_the_model_has_no_inside(client, monkeypatch):
    def too_long(*texts, **settings):
        raise DataError("line 1: 9 tokens; the model reads 8")

    monkeypatch.setattr(module, "explain", too_long)
    answer = client.get("/segments/1/inside")
    assert (answer.status_code, answer.json()) == (422, {"error": "line 1: 9 tokens; the model reads 8"})


def test_requests_that_wait_for_the_model_keep_no_change_waiting_and_end_with_their_client(app, model):
    released, num_asked = threading.Event(), 2 * 40  # the pool has 40 threads
    translate = model.translate

    def slow(*arguments, **settings):
        assert released.wait(SECONDS_TO_ANSWER)
        return translate(*arguments, **settings)

    model.translate = slow

    async def ask() -> tuple[int, list[int]]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=LOCAL) as client:
            waiting = [asyncio.create_task(client.get("/segments/1/alternatives")) for _ in range(num_asked)]
            while not model.asked:
                await asyncio.sleep(0.01)
            body = {"text": "dog 0", "state": "edited", "revision": 0}
            changed = await asyncio.wait_for(client.post("/segments/0", json=body), SECONDS_TO_ANSWER / 2)
            released.set()
            return changed.status_code, [answer.status_code for answer in await asyncio.gather(*waiting)]

    assert asyncio.run(ask()) == (200, [200] * num_asked)


def test_the_model_is_not_asked_for_a_client_that_has_left(app, model):
    async def ask() -> list[dict]:
        events = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])
        sent = []

        async def receive() -> dict:
            return next(events)

        async def send(message: dict) -> None:
            sent.append(message)

        path, headers = "/segments/1/alternatives", [(b"host", b"localhost")]
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
        await app({**scope, "headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send)
        return sent

    assert asyncio.run(ask())[0]["status"] == 400
    assert model.asked == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/segments/5", 404),
        ("/segments/-1", 400),
        ("/segments/" + "9" * 5000, 400),
        ("/segments/\u0663", 400),
        ("/segments/1/nothing", 404),
        ("/segments?start=x", 400),
        ("/segments?show=some", 400),
        ("/segments?after=5", 404),
        ("/none", 404),
        ("/undo", 405),
    ],
)
def test_unknown_segments_and_routes_are_refused(client, path, status):
    answer = client.get(path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 400),
        (b'{"text": 1, "state": "open", "revision": 0}', "application/json", 400),
        (b'{"text": "a", "state": "finished", "revision": 0}', "application/json", 400),
        (b'{"text": "a", "state": "open", "revision": -1}', "application/json", 400),
        (b'{"text": "a", "state": "open", "revision": 1e400}', "application/json", 400),
        (b'{"text": "\\ud800", "state": "open", "revision": 0}', "application/json", 400),
        (b'{"text": "a", "state": "open", "revision": 0, "x": 1}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"text": "a", "state": "open", "revision": 0}', "text/plain", 415),
        (b'{"text": "a", "state": "open", "revision": 0}', "application/x-www-form-urlencoded", 415),
        (b'{"text": "' + b"a" * 4_000_000 + b'"}', "application/json", 413),
        (b'{"text": "' + b"a" * 200_001 + b'", "state": "open", "revision": 0}', "application/json", 400),
    ],
)
def test_bodies_that_are_no_change_are_refused(client, body, kind, status):
    answer = client.post("/segments/0", content=body, headers={"content-type": kind})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert client.get("/segments/0").json()["revision"] == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 400),
        ({"host": "localhost.evil.example:5000"}, 400),
        ({"host": "[::1"}, 400),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:6000"}, 403),
        ({"sec-fetch-site": "same-origin", "host": "LOCALHOST:5000"}, 200),
    ],
)
def test_other_names_and_pages_of_other_sites_are_refused(client, headers, status):
    assert client.post("/undo", json={}, headers=headers).status_code == status
    assert client.get("/status", headers=headers).status_code == (400 if status == 400 else 200)


@pytest.mark.parametrize(("origin", "status"), [("http://evil.example", 403), ("null", 403), ("http://localhost", 200)])
def test_without_sec_fetch_site_the_origin_counts(review, model, origin, status):
    app = review_app(review, model, {}, {}, hosts=["localhost"])
    client = TestClient(app, base_url="http://localhost")
    assert client.post("/undo", json={}, headers={"origin": origin}).status_code == status


@pytest.fixture
def started(tmp_path, models):
    """Return a function that starts `clearhead review` and returns its process and a client."""
    processes, clients = [], []

    def start(path, *arguments, wait=True):
        log = tmp_path / f"log-{len(processes)}"
        log.touch()
        command = ["review", str(path), str(models["de-en"]), "--port", "0", "--device", "cpu", "--threads", "1"]
        process = start_process([*command, *map(str, arguments)], log)
        process.log = log
        processes.append(process)
        if not wait:
            return process, None
        clients.append(httpx.Client(base_url=wait_for_review(process, log), timeout=120))
        return process, clients[-1]

    yield start
    for client in clients:
        client.close()
    for process in processes:
        process.kill()
        process.join()


def test_a_review_from_start_to_end(started, catalogue, tmp_path):
    memory = tmp_path / "project.sqlite"
    process, client = started(catalogue, "--memory", memory)
    other, _ = started(catalogue, wait=False)
    assert finish(other) == 1
    assert "is being reviewed by another process" in other.log.read_text(encoding="utf-8")
    first = client.get("/segments?show=open").json()["segments"][0]
    saved = edit(client, first["number"], f"good {first['source'][-1]}").json()
    assert saved["state"] == "edited"
    assert sqlite3.connect(memory).execute("SELECT target FROM pairs").fetchall() == [(saved["text"],)]
    process.kill()  # at once, before the document has it
    process.join()
    process, client = started(catalogue, "--memory", memory)
    assert client.get(f"/segments/{first['number']}").json()["text"] == saved["text"]
    alternatives = client.get(f"/segments/{first['number']}/alternatives").json()
    assert alternatives["text"] == saved["text"]
    assert client.get(f"/segments/{first['number']}/inside").text.startswith("<!doctype html>")
    again = client.get(f"/segments/{first['number']}").json()
    assert [again[name] for name in ("machine", "origin")] == [first[name] for name in ("machine", "origin")]
    for segment in client.get("/segments?show=open").json()["segments"]:
        edit(client, segment["number"], segment["text"])
    os.kill(process.pid, signal.SIGINT)
    assert finish(process) == 0
    assert "all of it is reviewed" in process.log.read_text(encoding="utf-8")
    assert all(one.is_finished for one in read_document(str(catalogue)).segments)
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == {
        "..messages.po.review.jsonl.lock"
    }


def test_an_interrupted_end_says_where_the_changes_are(catalogue, models, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("clearhead.cli.review._wait", interrupted)
    ended = CliRunner().invoke(main.app, ["review", str(catalogue), str(models["de-en"]), "--port", "0"])
    assert ended.exit_code == 130
    journal = catalogue.with_name(".messages.po.review.jsonl")
    assert f"{catalogue} may lack the last changes; the same command continues from {journal}" in ended.stderr
    assert journal.exists()


def test_a_document_changed_outside_is_no_saved_one_at_the_end(catalogue, models, monkeypatch):
    monkeypatch.setattr("clearhead.cli.review._wait", lambda: catalogue.write_text(CATALOGUE, encoding="utf-8"))
    ended = CliRunner().invoke(main.app, ["review", str(catalogue), str(models["de-en"]), "--port", "0"])
    assert ended.exit_code == 1
    assert f"{catalogue} was changed by another program; it is not overwritten" in str(ended.exception)
    assert f"wrote {catalogue}" not in ended.stderr
    assert catalogue.read_text(encoding="utf-8") == CATALOGUE


def test_a_document_of_one_language_needs_an_output(started, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p>Hund</p>", encoding="utf-8")
    for output in ([], ["-o", page]):
        process, _ = started(page, *output, wait=False)
        assert finish(process) == 1
        assert "name another file for them with --output" in process.log.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == "<p>Hund</p>"
    process, client = started(page, "-o", tmp_path / "out.html")
    edit(client, 0, "dog")
    os.kill(process.pid, signal.SIGTERM)
    assert finish(process) == 143
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == "<p>dog</p>"


def test_a_memory_that_is_only_read_and_the_corrections_are_merged_by_the_command_of_the_notice(
    started, catalogue, tmp_path
):
    memory = tmp_path / "old memory.tmx"
    pairs = [SentencePair(*pair, "") for pair in (("Hund 1", "hound 1"), ("Kuh", "cow"))]
    write_tmx(str(memory), pairs, ("de-DE", "en-US"))
    before = memory.read_bytes()
    process, client = started(catalogue, "--memory", memory)
    found = next(one for one in client.get("/segments").json()["segments"] if one["source"] == "Hund 1")
    edit(client, found["number"], "dog 1")
    os.kill(process.pid, signal.SIGINT)
    assert finish(process) == 0
    assert memory.read_bytes() == before
    [command] = re.findall(r"only read; .*`clearhead (.*)`", process.log.read_text(encoding="utf-8"))
    assert CliRunner().invoke(main.app, shlex.split(command)).exit_code == 0
    new = shlex.split(command)[-1]
    merged = TranslationMemory.load([new], from_lang="de", to_lang="en")
    assert {source: merged.match(source).target for source in ("Hund 1", "Kuh")} == {"Hund 1": "dog 1", "Kuh": "cow"}
    process, client = started(catalogue, "--memory", new)
    os.kill(process.pid, signal.SIGINT)
    assert finish(process) == 0
    assert shlex.quote(new.replace(".1.tmx", ".2.tmx")) in process.log.read_text(encoding="utf-8")


def test_a_memory_of_another_pair_is_refused(started, catalogue, tmp_path):
    from clearhead.translation.memory_file import write_memory

    memory = tmp_path / "other.sqlite"
    write_memory(str(memory), [("chien", "pies", None)], ("fr", "pl"))
    process, _ = started(catalogue, "--memory", memory, wait=False)
    assert finish(process) == 1
    assert "is a memory for fr to pl" in process.log.read_text(encoding="utf-8")
    memory.write_bytes(memory.read_bytes()[:5000])
    process, _ = started(catalogue, "--memory", memory, wait=False)
    assert finish(process) == 1
    assert catalogue.read_text(encoding="utf-8") == CATALOGUE
