"""The outermost middleware: which names of the server, which pages and which requests it lets in."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from pydantic import ValidationError

from clearhead.config import ServeConfig
from clearhead.serving.admission import Admission
from clearhead.serving.metrics import Metrics
from clearhead.serving.middleware import Gate
from clearhead.serving.schemas import TranslateRequest
from clearhead.serving.server import _served_hosts

ORIGIN = "https://example.org"
LOCAL = (b"host", b"localhost:5000")


def status(*headers, method="POST", target=b"/translate", hosts=("localhost", "::1"), origins=()):
    """Return the status of a request with the given headers."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    metrics = Metrics(num_open=lambda: 0, num_requests=lambda: 0, is_ready=lambda: True)
    config = ServeConfig()
    work = Admission(config, metrics)
    gate = Gate(app, config=config, metrics=metrics, endpoints=frozenset(), work=work, hosts=hosts, origins=origins)
    scope = {"type": "http", "method": method, "path": target.decode(), "raw_path": target, "query_string": b""}
    scope["headers"] = list(headers)
    asyncio.run(gate(scope, receive, send))
    work.close()
    return sent[0]["status"]


@pytest.mark.parametrize(
    ("headers", "hosts", "expected"),
    [
        ([LOCAL], ("localhost",), 200),
        ([(b"host", b"LocalHost")], ("localhost",), 200),
        ([(b"host", b"[::1]:5000")], ("::1",), 200),
        ([(b"host", b"evil.example")], (), 200),
        ([(b"host", b"evil.example")], ("localhost",), 400),
        ([(b"host", b"localhost.evil.example")], ("localhost",), 400),
        ([(b"host", b"[::1")], ("::1",), 400),
        ([], (), 400),
        ([LOCAL, LOCAL], (), 400),
    ],
)
def test_it_answers_to_its_names_alone(headers, hosts, expected):
    assert status(*headers, hosts=hosts) == expected


@pytest.mark.parametrize(
    ("site", "origins", "method", "expected"),
    [
        (b"same-origin", (), "POST", 200),
        (b"none", (), "POST", 200),
        (b"cross-site", (), "POST", 403),
        (b"same-site", (), "POST", 403),
        (b"cross-site", (), "GET", 200),
        (b"cross-site", (ORIGIN,), "POST", 200),
        (b"cross-site", ("https://other.example",), "POST", 403),
        (b"cross-site", ("*",), "POST", 200),
    ],
)
def test_pages_of_other_sites_ask_only_if_allowed(site, origins, method, expected):
    headers = [LOCAL, (b"sec-fetch-site", site), (b"origin", ORIGIN.encode())]
    assert status(*headers, method=method, origins=origins) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"http://localhost/translate", 200),
        (b"http://localhost", 200),
        (b"http://evil.example/translate", 400),  # counts instead of the header
        (b"http://[::1/translate", 400),
    ],
)
def test_a_whole_url_as_target_names_the_host(target, expected):
    assert status(LOCAL, target=target) == expected


def test_an_upgrade_is_ignored():
    assert status(LOCAL, (b"connection", b"upgrade"), (b"upgrade", b"h2c")) == 200


def test_a_body_with_two_lengths_is_refused():
    assert status(LOCAL, (b"content-length", b"3"), (b"transfer-encoding", b"chunked")) == 400


@pytest.mark.parametrize(("size", "expected"), [(32_600, 200), (32_800, 431)])
def test_headers_have_a_size_limit(size, expected):
    assert status(LOCAL, (b"x", b"a" * size)) == expected
    assert status(LOCAL, *[(b"x", b"")] * (size // 5)) == expected
    assert status(LOCAL, target=b"/" + b"a" * size) == expected


@pytest.mark.parametrize(
    ("host", "given", "served"),
    [
        ("127.0.0.1", [], {"localhost", "127.0.0.1", "::1"}),
        ("127.0.0.1", ["a.example"], {"a.example", "localhost", "127.0.0.1", "::1"}),
        ("127.0.0.1", ["*"], set()),
        ("0.0.0.0", [], set()),
        ("0.0.0.0", ["a.example"], {"a.example", "localhost", "127.0.0.1", "::1", "0.0.0.0"}),
    ],
)
def test_a_server_for_this_machine_alone_has_only_its_names(host, given, served):
    with socket.create_server((host, 0)) as listener:
        assert set(_served_hosts(given, listener)) == served


@pytest.mark.parametrize(
    "body",
    [
        {"text": [1] * 1_000},
        {"text": "a", "terms": [1] * 1_000},
        {"text": "a", "terms": [{"source": "a", "target": [1] * 1_000}]},
        {f"field{number}": 1 for number in range(1_000)},
    ],
)
def test_validation_ends_at_the_first_mistake(body):
    with pytest.raises(ValidationError) as refused:
        TranslateRequest.model_validate(json.loads(json.dumps(body)))
    assert refused.value.error_count() <= 3  # each alternative of a type has one
