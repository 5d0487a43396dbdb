"""The outermost middleware: which names of the server, which pages and which requests it lets in."""

from __future__ import annotations

import asyncio
import json
import socket
from hashlib import sha256
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from clearhead.config import ServeConfig
from clearhead.serving.admission import Admission
from clearhead.serving.keys import ApiKey, Keys
from clearhead.serving.metrics import Metrics
from clearhead.serving.middleware import Endpoints, OutermostMiddleware
from clearhead.serving.schemas import TranslateRequest
from clearhead.serving.server import served_hosts

ORIGIN = "https://example.org"
LOCAL = (b"host", b"localhost:5000")


def service_of(keys=None, **limits):
    """Return what the middleware needs of a service."""
    config, metrics = ServeConfig(**limits), Metrics(num_open=int, num_requests=int, is_ready=bool)
    admission = Admission(config, metrics)
    return SimpleNamespace(config=config, metrics=metrics, admission=admission, keys=Keys(keys or {}))


def status(*headers, method="POST", target=b"/translate", hosts=("localhost", "::1"), origins=()):
    """Return the status of a request with the given headers."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    middleware = OutermostMiddleware(app, service_of(), Endpoints(paths=frozenset()), hosts=hosts, origins=origins)
    scope = {"type": "http", "method": method, "path": target.decode(), "raw_path": target, "query_string": b""}
    scope["headers"] = list(headers)
    asyncio.run(middleware(scope, receive, send))
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
def test_only_allowed_hosts_are_answered(headers, hosts, expected):
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
    ("host", "origin", "origins", "method", "expected"),
    [
        (b"translate.lan:5000", b"http://translate.lan:5000", (), "POST", 200),
        (b"translate.lan", b"https://translate.lan:8443", (), "POST", 200),  # behind a proxy
        (b"translate.lan:5000", b"http://translate.lan:7631", (), "POST", 403),
        (b"translate.lan:5000", b"http://evil.example", (), "POST", 403),
        (b"translate.lan", b"http://translate.lan.evil.example", (), "POST", 403),
        (b"translate.lan", b"null", (), "POST", 403),
        (b"translate.lan:5000", b"https://example.org", (ORIGIN,), "POST", 200),
        (b"translate.lan:5000", b"http://evil.example", (), "GET", 200),
    ],
)
def test_the_origin_of_a_page_counts_where_browsers_say_no_site(host, origin, origins, method, expected):
    headers = [(b"host", host), (b"origin", origin)]
    assert status(*headers, hosts=("translate.lan",), origins=origins, method=method) == expected


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


KEY = "k" * 43
JSON = (b"content-type", b"application/json")
KNOWN = (b"authorization", f"Bearer {KEY}".encode())
FORM = b'--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
FILE = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n%s\r\n--B--\r\n'


def asked(path, *headers, body=b"", packet=65_536, has_keys=True, **limits):
    """Return the status of a request, its client, and how many bytes of its body were read."""
    sent, seen, size = [], {}, 0

    async def app(scope, receive, send):
        seen.update(scope["state"])
        await send({"type": "http.response.start", "status": 200})

    async def receive():
        nonlocal size
        part = body[size : size + packet]
        size += len(part)
        return {"type": "http.request", "body": part, "more_body": size < len(body)}

    async def send(message):
        sent.append(message)

    files, fields = frozenset({"/translate_file"}), frozenset({"/translate", "/translate_file"})
    endpoints = Endpoints(paths=fields | {"/v1/translate"}, with_key_field=fields, with_files=files)
    keys = {"anna": ApiKey(name="anna", sha256=sha256(KEY.encode()).hexdigest())}
    middleware = OutermostMiddleware(app, service_of(keys if has_keys else {}, **limits), endpoints)
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [LOCAL, *headers], "client": ("10.0.0.1", 1)}
    asyncio.run(middleware(scope, receive, send))
    return sent[0]["status"], seen.get("client"), size


def test_a_key_in_the_header_is_checked_before_the_body_is_read():
    wrong = (b"authorization", b"Bearer x")
    body = b"x" * 1_000
    assert asked("/translate", wrong, body=body) == (403, None, 0)
    assert asked("/v1/translate", body=body) == (400, None, 0)
    assert asked("/v1/translate", KNOWN, body=body) == (200, "key anna", 1_000)
    assert asked("/translate", body=body) == (200, None, 1_000)  # its key may be in the body
    assert asked("/translate", body=body, has_keys=False) == (200, "address 10.0.0.1", 1_000)


def test_a_body_without_a_known_key_is_short():
    most = 12 * 100 + 20_000
    for size, expected in ((most, 200), (most + 1, 413)):
        assert asked("/translate", body=b"x" * size, packet=100, max_characters=100)[0] == expected
    length = (b"content-length", b"30000")
    assert asked("/translate", length, body=b"x" * 30_000, max_characters=100) == (413, None, 0)
    assert asked("/translate", length, KNOWN, JSON, body=b"x" * 30_000, max_characters=100)[0] == 200


@pytest.mark.parametrize("kind", [[], [(b"content-type", b"application/x-www-form-urlencoded; charset=utf-8")]])
def test_a_form_without_parts_is_as_long_as_a_text_can_be(kind):
    most = 12 * 100 + 20_000
    for size, expected in ((most, 200), (most + 1, 413)):
        for known in ({"has_keys": False}, {}):
            assert (
                asked("/translate", KNOWN, *kind, body=b"%" * size, packet=100, max_characters=100, **known)[0]
                == expected
            )
    assert asked("/v1/translate", KNOWN, *kind, body=b"x" * 30_000, max_characters=100)[0] == 200  # JSON, with terms


def test_a_key_before_the_file_of_a_form_allows_a_large_file():
    form = (b"content-type", b"multipart/form-data; boundary=B")
    file, fields = FILE % (b"x" * 500_000), FORM % (b"source", b"de")
    key, wrong = (FORM % (b"api_key", given) for given in (KEY.encode(), b"x"))
    most, size = 12 * 20_000 + 20_000, len(fields + key + file)
    assert asked("/translate_file", form, body=fields + key + file) == (200, "key anna", size)
    assert asked("/translate_file", form, body=fields + wrong + file)[0] == 403
    for body in (fields + file, file.removesuffix(b"--\r\n") + b"\r\n" + key):
        status, _, read = asked("/translate_file", form, body=body)
        assert (status, read) == (413, (most // 65_536 + 1) * 65_536)
    assert asked("/translate_file", form, KNOWN, body=file)[0] == 200


def test_only_forms_may_be_as_large_as_files():
    assert asked("/translate_file", JSON, KNOWN, body=b"x" * 2_000_000)[0] == 413


def test_bodies_without_a_known_key_leave_room_for_others():
    body = b"x" * 2_000
    assert asked("/translate", body=body, max_held_bytes=6_000)[0] == 503
    assert asked("/translate", KNOWN, body=body, max_held_bytes=6_000)[0] == 200


def test_a_body_of_more_values_than_texts_can_have_is_refused():
    for count, expected in ((61_000, 200), (61_001, 400)):  # 20,000 characters, 100 terms of 200 on each side, 1,000
        assert asked("/translate", KNOWN, body=b"[" + b"1," * count + b"1]")[0] == expected


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
        assert set(served_hosts(given, listener)) == served


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
