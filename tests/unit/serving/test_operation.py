"""What an operator relies on: keys, bounds, an orderly end, models that are replaced, and plain words at the start."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from clearhead.bundle import save_bundle
from clearhead.config import ServeConfig
from clearhead.decoding import decode
from clearhead.errors import ClearheadError, ConfigError, ModelError
from clearhead.runtime.installation import pip_install
from clearhead.runtime.threads import num_threads
from clearhead.serving.app import make_app
from clearhead.serving.batched_search import Job
from clearhead.serving.connections import Connection, ConnectionConfig
from clearhead.serving.http_errors import HTTPError, unavailable
from clearhead.serving.keys import Keys, add_key
from clearhead.serving.log import log_event
from clearhead.serving.models import ModelSource, load_model
from clearhead.serving.server import allow_files, bind, serve
from clearhead.serving.service import MAX_REPLACEMENTS, Service
from clearhead.translation.translator import searching_by
from commands import clearhead
from processes import check_often, finish, wait_until

LIMITS = {
    "max_requests": 4,
    "max_requests_per_client": 2,
    "request_seconds": 60,
    "max_characters": 200_000,
    "max_request_tokens": 10_000_000,
    "grace_seconds": 60,
}
MOST_CONNECTIONS = 30


@pytest.fixture(scope="module")
def model(write_model, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("strict") / "de-en", decode={"source_lang": "de", "split": "never"})


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.jsonl"
    return path, {name: add_key(path, name, rate) for name, rate in (("anna", 1_000), ("otto", 1_000), ("slow", 1))}


@pytest.fixture(scope="module")
def hasty(start_server, model):
    """Return a server of few connections, whose clients have all the time they want."""
    limits = {
        "header_seconds": 600,
        "body_seconds": 600,
        "answer_seconds": 2,
        "max_connections": MOST_CONNECTIONS,
        "max_held_bytes": 100_000,
    }
    return start_server(str(model), *(part for name, value in limits.items() for part in ("--set", f"{name}={value}")))


@pytest.fixture(scope="module")
def strict(start_server, model, keys):
    limits = [part for name, value in LIMITS.items() for part in ("--set", f"{name}={value}")]
    return start_server(str(model), "--keys", str(keys[0]), "--cors", "https://example.org", *limits)


def ask(server, key, text="Ein Hund.", **fields):
    body = {"q": text, "source": "de", "target": "en", "api_key": key, **fields}
    return httpx.post(f"{server.url}/translate", json=body, timeout=120)


def test_a_key_is_needed_and_its_rate_is_kept(strict, keys):
    path, given = keys
    assert [ask(strict, key).status_code for key in (None, "", "x" * 43, given["anna"])] == [400, 400, 403, 200]
    bearer = {"authorization": f"Bearer {given['anna']}"}
    body = {"text": "Ein Hund.", "model": "de-en"}
    assert httpx.post(f"{strict.url}/v1/translate", json=body, headers=bearer).status_code == 200
    assert httpx.post(f"{strict.url}/v1/translate", json=body).status_code == 400
    fields = {"q": "Ein Hund.", "source": "de", "target": "en", "api_key": given["anna"]}
    no_key = {"authorization": "Bearer"}
    assert httpx.post(f"{strict.url}/translate", json=fields, headers=no_key).status_code == 200
    slow = [ask(strict, given["slow"]) for _ in range(2)]  # in the same minute
    assert [answer.status_code for answer in slow] == [200, 429]
    assert slow[-1].json()["error"].startswith("Slowdown:")
    assert 1 <= int(slow[-1].headers["retry-after"]) <= 61
    kept = path.read_text(encoding="utf-8") + strict.log.read_text(encoding="utf-8")
    assert all(key not in kept for key in given.values())


def test_the_name_of_a_translated_file_is_enough_to_fetch_it_and_its_report(strict, keys):
    fields = {"source": "de", "target": "en"}
    files = {"file": ("a.txt", b"Ein Hund.")}
    assert httpx.post(f"{strict.url}/translate_file", data=fields, files=files).status_code == 400  # without a key
    fields["api_key"] = keys[1]["anna"]
    answer = httpx.post(f"{strict.url}/translate_file", data=fields, files=files, timeout=120).json()
    urls = answer["translatedFileUrl"], answer["reportUrl"]
    assert [httpx.get(url).status_code for url in urls] == [200, 200]
    assert [httpx.get(url.replace(url[-20:], "x" * 20)).status_code for url in urls] == [404, 404]


def test_pages_of_one_origin_may_ask(strict):
    for origin, allowed in (("https://example.org", "https://example.org"), ("https://example.com", None)):
        headers = httpx.get(f"{strict.url}/languages", headers={"origin": origin}).headers
        assert headers.get("access-control-allow-origin") == allowed
    refused = httpx.post(f"{strict.url}/translate", json={}, headers={"origin": "https://example.org"})
    assert refused.status_code == 400
    for answer in (refused, httpx.get(f"{strict.url}/languages", headers={"origin": "https://example.org"})):
        assert answer.headers["access-control-expose-headers"] == "Retry-After, X-Request-Id"


def address(server):
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def connect(server):
    return socket.create_connection(address(server), timeout=60)


@contextlib.contextmanager
def serving_here(config):
    """Serve in a thread of this process, without models; yield the address."""
    service = Service([], config, Keys({}), device="cpu")
    server = uvicorn.Server(ConnectionConfig(make_app(service), config))
    listener = bind("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server._serve([listener])))
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        service.close()


def test_slow_request_headers_and_bodies_are_cut_off():
    with serving_here(ServeConfig(header_seconds=0.1, body_seconds=0.1)) as address, contextlib.ExitStack() as held:
        headers, body, nothing = (held.enter_context(socket.create_connection(address, timeout=60)) for _ in range(3))
        headers.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n")
        body.sendall(b"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nq")
        assert headers.recv(1_000) == b""
        assert body.recv(1_000).startswith(b"HTTP/1.1 408 ")
        assert nothing.recv(1_000) == b""


def test_connections_beyond_most_connections_close_the_oldest_idle_one(hasty):
    with contextlib.ExitStack() as held:
        idle = [held.enter_context(connect(hasty)) for _ in range(MOST_CONNECTIONS)]
        assert httpx.get(f"{hasty.url}/livez").status_code == 200  # in the place of the oldest
        assert idle[0].recv(100) == b""
        asking = [held.enter_context(connect(hasty)) for _ in range(MOST_CONNECTIONS)]
        for one in asking:
            one.sendall(
                b"POST /translate HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n"
            )
        assert all(one.recv(100).startswith(b"HTTP/1.1 100 ") for one in asking)
        for _ in range(3):  # one that is refused, and still there, is not closed to let the next one in
            assert held.enter_context(connect(hasty)).recv(100).startswith(b"HTTP/1.1 503 ")
    assert httpx.get(f"{hasty.url}/livez").status_code == 200


def test_the_connections_that_may_be_open_may_be_files(noted, monkeypatch):
    resource = pytest.importorskip("resource")  # there is none on Windows
    set_to = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    unbound = resource.RLIM_INFINITY
    for limits, most in (((1_024, 4_096), 2_200), ((1_024, unbound), 9_000), ((unbound, unbound), 9), ((9, 9), 9)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        allow_files(most)
    assert set_to == [(2_200, 4_096), (9_000, unbound)]
    assert noted == []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 4_096))
    allow_files(9_000)
    assert set_to[2:] == [(4_096, 4_096)]
    assert noted == [{"event": "files", "allowed": 4_096, "wanted": 9_000}]


def test_more_connections_than_the_limit_at_once_are_all_answered(hasty):
    ask = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with contextlib.ExitStack() as held:
        hasty.send(signal.SIGSTOP)
        try:
            crowd = [held.enter_context(connect(hasty)) for _ in range(MOST_CONNECTIONS + 20)]
            for one in crowd:
                one.sendall(ask)
        finally:
            hasty.send(signal.SIGCONT)
        answers = [b"".join(iter(lambda one=one: one.recv(10_000), b"")) for one in crowd]
    statuses = Counter(answer[9:12] for answer in answers)
    assert statuses.keys() == {b"200", b"503"}
    assert statuses[b"200"] >= MOST_CONNECTIONS


def test_pipelined_requests_are_all_answered_in_order(hasty):
    head = b"HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 4_000
    asked = (b"GET /nothing %s\r\n\r\nHEAD /livez %s\r\n\r\n" % (head, head)) * 150  # more than wait in memory
    with connect(hasty) as connection:
        sending = threading.Thread(target=connection.sendall, args=(asked,))
        sending.start()
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 300:
            answers += connection.recv(1_000_000)
        sending.join()
    assert re.findall(rb"HTTP/1.1 (\d+) ", answers) == [b"404", b"200"] * 150


@pytest.mark.parametrize("before", [b"", b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_oversized_malformed_request_is_answered_431_once(hasty, before):
    with connect(hasty) as connection:
        connection.sendall(before + b"x y z" * 10_000)
        answer = b"".join(iter(lambda: connection.recv(10_000), b""))
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200"] * bool(before) + [b"431"]
    assert httpx.get(f"{hasty.url}/livez").status_code == 200
    assert [event for event in hasty.events() if event["level"] == "error"] == []


class Untaken(asyncio.Transport):
    """What was sent, of which a client takes a bit now and then, and at last nothing."""

    def __init__(self):
        super().__init__()
        self.sizes = [50, 40, 30, 30]
        self.is_aborted = asyncio.Event()

    def get_write_buffer_size(self):
        return self.sizes.pop(0)

    def is_closing(self):
        return False

    def abort(self):
        self.is_aborted.set()


def test_connection_is_aborted_only_when_its_client_stops_reading():
    async def send():
        config, transport = ServeConfig(answer_seconds=0.01), Untaken()
        connection = Connection(ConnectionConfig(print, config), ServerState(), {})
        connection.connection_made(transport)
        connection.pause_writing()
        await asyncio.wait_for(transport.is_aborted.wait(), 60)
        return transport.sizes

    assert asyncio.run(send()) == []


@pytest.mark.parametrize("time_is_over", ["timeout_keep_alive_handler", "_on_header_timeout"])
def test_a_connection_whose_time_is_over_is_not_closed_when_it_has_just_asked(time_is_over):
    async def expire(sent):
        ours, theirs = socket.socketpair()
        arguments = ConnectionConfig(print, ServeConfig()), ServerState(), {}
        with ours, theirs:
            transport, connection = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(*arguments), ours
            )
            theirs.send(sent)
            getattr(connection, time_is_over)()  # before the loop has read it
            is_closed = transport.is_closing()
            transport.abort()
            return is_closed

    assert not asyncio.run(expire(b"GET /livez HTTP/1.1\r\n"))
    assert asyncio.run(expire(b""))


class Gone(Untaken):
    """Of a client that left before it was answered."""

    def write(self, data):
        pass

    def write_eof(self):
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


def test_send_400_response_to_a_closed_connection_does_not_raise():
    async def refuse():
        connection = Connection(ConnectionConfig(print, ServeConfig()), ServerState(), {})
        connection.connection_made(Gone())
        connection.send_400_response("")
        connection.connection_lost(OSError())

    asyncio.run(refuse())


def test_headers_behind_a_body_have_a_bound_too(hasty):
    with connect(hasty) as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ")
        with contextlib.suppress(ConnectionError):
            while True:  # until it is cut off
                connection.send(b"x" * 10_000)
                time.sleep(0.01)


def test_bodies_of_all_requests_have_a_bound_together(hasty):
    head = b"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n"
    with connect(hasty) as first, connect(hasty) as second:
        first.sendall(head + b"x" * 59_000)
        second.sendall(head + b"x" * 59_000)
        [refused], _, _ = select.select([first, second], [], [], 60)
        assert refused.recv(20).startswith(b"HTTP/1.1 503 ")


def test_replaced_model_is_reloaded_and_a_broken_one_is_not(start_server, write_model, tmp_path):
    usual = {"source_lang": "de", "split": "never"}
    model = write_model(tmp_path / "de-en", decode=usual)
    server = start_server(str(model))
    before = ask(server, "").json()
    answers, is_over = [], threading.Event()

    def go_on():
        while not is_over.is_set():
            answers.append(ask(server, ""))

    thread = threading.Thread(target=go_on)
    thread.start()
    write_model(model, seed=11, decode=usual)
    server.wait_for("reload", model="de-en", result="done")
    after = ask(server, "").json()
    assert after != before
    (model / "tokenizer.json").write_text("{}")
    server.send(signal.SIGHUP)
    server.wait_for("reload", model="de-en", result="refused")
    assert ask(server, "").json() == after
    is_over.set()
    thread.join()
    assert {answer.status_code for answer in answers} == {200}
    assert {json.dumps(answer.json()) for answer in answers} <= {json.dumps(before), json.dumps(after)}
    assert server.end() == 0


def test_server_shuts_down_cleanly_while_clients_send_requests(start_server, model):
    server = start_server(str(model), "--set", "grace_seconds=60")
    statuses, broken = [], []

    def go_on():
        with httpx.Client(timeout=120) as client:
            while statuses[-1:] != [503]:  # who is told to ask again later does not ask again at once
                try:
                    body = {"q": "Ein Hund.", "source": "de", "target": "en"}
                    statuses.append(client.post(f"{server.url}/translate", json=body).status_code)
                except httpx.ConnectError:  # it has ended before this client came back
                    return
                except httpx.TransportError as error:
                    broken.append(repr(error))
                    return

    threads = [threading.Thread(target=go_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(statuses) < 10 and not broken:
        time.sleep(0.01)
    assert server.end() == 0
    for thread in threads:
        thread.join()
    assert broken == []
    assert 200 in statuses
    assert set(statuses) <= {200, 503}
    assert "ending" in [event["event"] for event in server.events()]


def never_translate():
    """Let a translation of `/translate` wait for ever, and notice nothing."""
    from clearhead.serving import libretranslate_api

    def wait(*_):
        log_event(logging.INFO, event="waiting")
        threading.Event().wait()

    libretranslate_api._translate = wait


def test_a_request_that_is_stuck_does_not_keep_the_server_from_ending(start_server, models):
    server = start_server(str(models["de-en"]), "--set", "grace_seconds=0.1", first=never_translate)
    body = b"q=Ein+Hund&source=de&target=en"
    head = f"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with connect(server) as connection:
        connection.sendall(head.encode() + body)
        server.wait_for("waiting")
        server.send(signal.SIGTERM)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 503 ")
    assert finish(server.process) == 1
    assert server.wait_for("stuck")["level"] == "error"


def verify_without_end(loads=1):
    """Let the verification of a model search until its search is cancelled, except that of the first `loads`."""
    from clearhead.serving import service

    load_model, left = service.load_model, iter(range(loads))

    def load(source, *, device, as_served):
        if next(left, None) is not None:
            return load_model(source, device=device, as_served=as_served)
        asked = as_served(load_model(source, device=device).translator)
        log_event(logging.INFO, event="verifying")
        while True:
            asked.translate(["Ein Hund."])

    service.load_model = load


def test_sigterm_while_a_model_is_loading_ends_the_server_without_an_error(start_server, models):
    server = start_server(str(models["de-en"]), wait=False, first=partial(verify_without_end, loads=0))
    server.wait_for("verifying")
    assert server.end() == 0
    assert [one["event"] for one in server.events()] == ["listening", "verifying", "ending"]


def test_a_model_that_is_being_reloaded_does_not_keep_the_server_from_ending(start_server, models):
    server = start_server(str(models["de-en"]), first=verify_without_end)
    server.send(signal.SIGHUP)
    server.wait_for("verifying")
    assert server.end() == 0
    assert not server.all_of("reload")


@pytest.mark.skipif(sys.platform != "linux", reason="the search has a process of its own on Linux alone")
def test_a_search_that_ended_is_replaced_a_few_times(start_server, models):
    server = start_server(str(models["de-en"]))
    search = server.search
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as a whole group of processes is told to end
        os.kill(search, number)
    # They were blocked before there was the process, which so never was without.
    blocked = next(
        line for line in Path(f"/proc/{search}/status").read_text().splitlines() if line.startswith("SigBlk")
    )
    assert int(blocked.split()[1], 16) == sum(
        1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    )
    assert ask(server, "").status_code == 200
    for replaced in range(1, MAX_REPLACEMENTS + 1):
        os.kill(server.search, signal.SIGKILL)
        wait_until(lambda number=replaced: len(server.all_of("search")) == number, server.process)
        wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200, server.process)
        assert ask(server, "").status_code == 200
    os.kill(server.search, signal.SIGKILL)
    assert finish(server.process) == 1
    assert "the process that searches has ended" in server.log.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="the search has a process of its own on Linux alone")
def test_a_search_that_is_stopped_is_replaced(start_server, models):
    server = start_server(str(models["de-en"]), first=partial(check_often, seconds_to_answer=0.5))
    search = server.search
    os.kill(search, signal.SIGSTOP)
    server.wait_for("search", result="stuck")
    wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200, server.process)
    assert server.search != search
    assert ask(server, "").status_code == 200
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'clearhead_search_restarts_total{reason="stuck"} 1.0' in metrics
    memory = re.search(r"^clearhead_search_process_resident_memory_bytes (\S+)$", metrics, re.MULTILINE)
    assert float(memory[1]) > 10_000_000
    assert server.end() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a model to serve"),
        (["nowhere"], "no model at nowhere: there is no such directory"),
        (["--set", "max_request=1", "nowhere"], "unknown setting 'max_request'; did you mean 'max_requests'?"),
        (["--set", "max_requests", "nowhere"], "write NAME=VALUE"),
        (["a=x", "a=y"], "two models are called 'a'"),
        (["--demo"], "there is no runs/demo to serve"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_serve_rejects_invalid_arguments(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert clearhead("serve", *arguments) == 1
    assert message in capsys.readouterr().err


def test_a_file_without_keys_does_not_open_the_server_to_everybody(tmp_path, model, capsys):
    (tmp_path / "keys.jsonl").write_text("\n")
    assert clearhead("serve", model, "--keys", tmp_path / "keys.jsonl") == 1
    assert "has no key, so nobody could ask" in capsys.readouterr().err


def test_a_model_that_translates_otherwise_is_not_served(make_bundle, tmp_path):
    golden = [{"source": "Ein Hund.", "text": "no such text", "score": -1.0}]
    save_bundle(tmp_path / "wrong", make_bundle(), golden=golden, card="")
    with pytest.raises(ModelError, match="does not translate as it did when it was made"):
        load_model(ModelSource("wrong", tmp_path / "wrong"), device="cpu")


@pytest.mark.parametrize("content", ["{", "{}"])
def test_a_quality_file_left_over_does_not_keep_a_model_from_being_served(make_bundle, tmp_path, content):
    save_bundle(tmp_path / "model", make_bundle(), golden=[], card="")
    (tmp_path / "model" / "quality.json").write_text(content)
    load_model(ModelSource("model", tmp_path / "model"), device="cpu")


def test_a_model_whose_quality_cannot_be_estimated_is_not_served(make_bundle, tmp_path):
    # Otherwise the server would be ready, and fail with every file.
    damaged = {"quality.json": lambda path, _: path.write_text("{}")}
    save_bundle(tmp_path / "model", make_bundle(), golden=[], card="", side_files=damaged)
    with pytest.raises(ModelError, match=r"quality\.json is damaged"):
        load_model(ModelSource("model", tmp_path / "model"), device="cpu")


def test_a_model_is_prepared_by_the_search_of_requests_and_by_no_other(make_bundle, tmp_path, monkeypatch):
    save_bundle(tmp_path / "model", make_bundle(), golden=[], card="")
    usual, by_requests, every = sys.modules["clearhead.decoding.decode"].search, [], []

    def search(*given):
        by_requests.append(given)
        return decode(*given)

    def counted(*given):
        every.append(given)
        return usual(*given)

    monkeypatch.setattr(sys.modules["clearhead.decoding.decode"], "search", counted)
    source = ModelSource("model", tmp_path / "model")
    model = load_model(source, device="cpu", as_served=lambda own: searching_by(own, search))
    # An engine of its own would keep its weights and its memory for as long as the server runs.
    assert 0 < len(every) <= len(by_requests)
    assert "_edges" in vars(model.translator.term_encoder)  # the first request with a term need not wait for it


def test_livez_and_readyz_while_loading_serving_and_ending(models, spared):
    service = Service([ModelSource("de-en", models["de-en"])], ServeConfig(), Keys({}), device="cpu")

    async def statuses():
        body = {"q": "a", "source": "de", "target": "en"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(make_app(service)), base_url="http://a") as client:
            answers = [await client.get(path) for path in ("/livez", "/readyz", "/health")]
            answers.append(await client.post("/translate", json=body))
        assert all(("retry-after" in answer.headers) == (answer.status_code == 503) for answer in answers)
        return [answer.status_code for answer in answers]

    assert asyncio.run(statuses()) == [200, 503, 503, 503]
    service.load()
    assert spared == [True]
    assert asyncio.run(statuses()) == [200, 200, 200, 200]
    service.admission.is_ending = True
    assert asyncio.run(statuses()) == [200, 503, 503, 503]
    service.close()


def test_load_fails_if_the_search_process_has_ended(models):
    ours, theirs = Pipe()
    theirs.close()
    source = ModelSource("de-en", models["de-en"])
    processes = SimpleNamespace(new=lambda: (ours, 0), close=ours.close)
    service = Service([source], ServeConfig(), Keys({}), device="cpu", search_processes=processes)
    with pytest.raises(ClearheadError, match=r"^the process that searches has ended"):
        service.load()
    service.close()


def test_batches_of_a_model_with_few_positions_are_usual(write_model, tmp_path):
    path = write_model(tmp_path / "few", positions="learned", max_positions=64)
    service = Service([ModelSource("de-en", path)], ServeConfig(), Keys({}), device="cpu")
    service.load()
    assert {batch.has_default_options for batch in service._searches._batches.values()} == {True}
    service.close()


def test_alignments_are_limited_to_as_many_as_there_are_threads(models):
    service = Service(
        [ModelSource(name, models[name]) for name in ("de-en", "many")], ServeConfig(), Keys({}), device="cpu"
    )
    service.load()
    assert {id(one.translator.aligner.passes) for one in service.models.served.values()} == {id(service._alignments)}
    assert service._alignments._initial_value == num_threads()
    service.close()


def test_a_model_that_a_failing_search_could_not_verify_is_tried_again(write_model, tmp_path, monkeypatch):
    path = write_model(tmp_path / "de-en")
    service = Service([ModelSource("de-en", path)], ServeConfig(), Keys({}), device="cpu")
    service.load()
    write_model(path, seed=11)

    def unverified(*_, **__):
        raise unavailable("the process that searches has ended; ask again")

    with monkeypatch.context() as failing:
        failing.setattr("clearhead.serving.service.load_model", unverified)
        assert [service.reload() for _ in range(3)] == [False] * 3  # it is looked at once while it may be written
    assert service.reload()
    service.close()


def test_large_texts_are_prepared_one_at_a_time():
    service, texts = Service([], ServeConfig(), Keys({}), device="cpu"), ["a" * 2_001]

    def job(seconds):
        return Job("anna", time.monotonic() + seconds, 1)

    first = job(60)
    with service.prepared(first, texts):
        with service.prepared(job(0), ["a" * 2_000]):  # a small one does not wait
            pass
        with pytest.raises(HTTPError) as refused, service.prepared(job(0), texts):
            pass
        assert refused.value.status == 504
        first.preparation.close()  # its search begins
        with service.prepared(job(0), texts):
            pass
    service.close()


def test_threads_that_compute_let_others_run_soon(monkeypatch):
    service, usual, seen = Service([], ServeConfig(), Keys({}), device="cpu"), sys.getswitchinterval(), []

    def run(serving):
        serving.close()
        seen.append(sys.getswitchinterval())

    monkeypatch.setattr("asyncio.run", run)
    with bind("127.0.0.1", 0) as listener:
        serve(service, listener)
    assert seen == [pytest.approx(0.0005)]
    assert sys.getswitchinterval() == usual


def test_every_way_to_send_a_large_text_waits_for_its_turn(models):
    config = ServeConfig(max_request_tokens=1_000)
    service = Service([ModelSource("de-en", models["de-en"])], config, Keys({}), device="cpu")
    service.load()
    large = {"source": "de", "target": "en", "text": "Ein Hund rennt. " * 200}
    scored = {"texts": [large["text"]], "translations": ["a"], "source": "de", "target": "en"}
    sent = [
        ("/translate", {"q": large["text"], "source": "de", "target": "en"}),
        ("/v1/translate", large),
        ("/v1/translate", large | {"stream": True}),
        ("/v1/score", scored),
    ]

    async def statuses():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(make_app(service)), base_url="http://a") as client:
            answers = [await client.post(path, json=body) for path, body in sent]
        return [
            json.loads(answer.text.rpartition("data: ")[2])["status"] if "event: error" in answer.text
            else answer.status_code
            for answer in answers
        ]  # fmt: skip

    other = Job("otto", time.monotonic() + 60, 1)
    with contextlib.ExitStack() as held:
        held.enter_context(service.prepared(other, [large["text"]]))
        for _ in range(num_threads()):
            held.enter_context(service.outside_batches(other))
        service.config = config.model_copy(update={"request_seconds": 0.5})
        waited = asyncio.run(statuses())
    service.config = config
    refused = [asyncio.run(statuses()) for _ in range(2)]  # refusals give it back
    service.close()
    assert waited == [504] * 4
    assert refused == [[413] * 4] * 2


def test_a_client_that_reads_slowly_does_not_hold_the_turn_of_large_texts(models):
    service = Service([ModelSource("de-en", models["de-en"])], ServeConfig(), Keys({}), device="cpu")
    service.load()
    texts = ["12", "Ein Hund rennt.\n" * 200]  # the first needs no search
    body = json.dumps({"text": texts, "source": "de", "target": "en", "stream": True}).encode()
    headers = [(b"host", b"a"), (b"content-type", b"application/json")]
    path = "/v1/translate"
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "scheme": "http", "http_version": "1.1", "headers": headers,
    }  # fmt: skip
    sent, received = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return received.pop() if received else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)
        if b"event: translation" in message.get("body", b"") and len(sent) < 3:
            with service.prepared(Job("otto", time.monotonic(), 1), texts):  # does not wait
                pass

    asyncio.run(make_app(service)(scope, receive, send))
    assert b"event: done" in b"".join(message.get("body", b"") for message in sent)
    service.close()


def test_the_port_must_be_free(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(ConfigError, match="cannot listen on 127"):
        bind("127.0.0.1", other.getsockname()[1])


@pytest.mark.parametrize("package", ["babel", "fastapi", "prometheus_client", "py3langid", "uvicorn"])
def test_serve_names_missing_packages_with_pip_install(model, package):
    program = f"import sys; sys.modules['{package}'] = None; from clearhead.cli.main import run; run()"
    command = [sys.executable, "-c", program, "serve", str(model.parent), "--port", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    wanted = f"serving needs the package {package}, which is not installed: {pip_install('serve')}"
    assert (ran.returncode, ran.stderr) == (1, f"clearhead: {wanted}\n")
