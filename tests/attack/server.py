"""Attack: hostile requests to a real server on loopback; each gets an answer in time, and SIGTERM ends the server."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from child import die_with_parent
from documents import PIECES, SOUND
from harness import SPARE_MEMORY, Attack, Campaign, Case, Outcome, Verdict
from structured import CONSTRUCTS, structured_text

LIMITS = {
    "request_seconds": 4,
    "file_seconds": 6,
    **dict.fromkeys(("header_seconds", "body_seconds", "answer_seconds", "idle_seconds", "grace_seconds"), 3),
    "max_body_bytes": 200_000,
    "max_characters": 5_000,
    "max_requests": 16,
}
LONGEST = LIMITS["body_seconds"] + LIMITS["file_seconds"]
"""Seconds that a request may take by these limits."""
PATIENCE = 90.0
"""Seconds without an answer after which a request hangs, also on a machine that is busy with something else."""
IN_A_BATCH = 250
CLIENTS = 6
"""Requests sent at the same time."""
ENDINGS = 20
"""How many servers of a full run are ended while they answer requests."""
PATHS = (
    *("/translate", "/v1/translate", "/v1/score", "/v1/explain", "/detect", "/translate_file", "/languages"),
    *("/v1/models", "/download_file/x", "/%00", "/..%2f..%2fetc", "/metrics", "/docs", "/"),
)
CHOICE = {"source": "de", "target": "en"}
BODIES: Mapping[str, Mapping[str, Any]] = {
    "/translate": {"q": "drei", **CHOICE},
    "/detect": {"q": "drei"},
    "/v1/translate": {"text": "drei", **CHOICE},
    "/v1/score": {"texts": ["drei"], "translations": ["three"], **CHOICE},
    "/v1/explain": {"text": "drei", **CHOICE},
}
"""A sound body for each path that takes JSON."""
VALUES: Sequence[Any] = (
    *(
        None,
        True,
        -1,
        0,
        10**30,
        1e308,
        "",
        "x" * 4_000,
        "\ud800",
        "\0",
        [],
        {},
        [[]],
        {"a": {}},
        ["drei"] * 200,
        "5001 ",
    ),
    *(
        "drei " * 1_000,
        "drei " * 1_001,
        ["drei", None],
        "auto",
        "xx",
        "html",
        [{"source": "drei", "target": "x"}] * 101,
    ),
    *([{"source": "x" * 201, "target": ["x"] * 99}], [{"source": "drei", "target": ["x", "y"]}] * 40, "<2fr> drei"),
)
NAMES = (
    *("q", "text", "texts", "translations", "translation", "source", "target", "model", "format", "alternatives"),
    *(
        "num_best",
        "beam_size",
        "alignments",
        "protect_numbers",
        "terms",
        "memory",
        "fuzzy",
        "stream",
        "search",
        "packed",
    ),
    *("api_key", "x" * 999, ""),
)


def run(campaign: Campaign) -> Iterator[Verdict]:
    """Send requests to servers, a batch to each, and end other servers while they answer."""
    model = str(campaign.stock.models / "plain")
    endings = max(1, campaign.count * ENDINGS // ATTACK.full)

    def case(numbers: Sequence[int]) -> Case:
        seeds = {number: campaign.choose(number).random() for number in numbers}
        name = f"requests {numbers[0]} to {numbers[-1]}"
        work = str(campaign.directory / f"requests-{numbers[0]}")
        return Case(numbers[0], name, "server:attack", {"work": work, "model": model, "seeds": seeds}, 3_000.0)

    def ending(number: int) -> Case:
        work, seed = str(campaign.directory / f"ending-{number}"), campaign.choose(number).random()
        return Case(
            number, "SIGTERM", "server:end_while_answering", {"work": work, "model": model, "seed": seed}, 300.0
        )

    numbers = list(campaign.numbers())
    requests = [number for number in numbers if number < campaign.count]
    cases = [case(requests[start : start + IN_A_BATCH]) for start in range(0, len(requests), IN_A_BATCH)]
    ended = range(campaign.count, campaign.count + endings) if campaign.only is None else numbers[len(requests) :]
    for verdict in campaign.children.judge([*cases, *map(ending, ended)]):
        number, _, rest = verdict.detail.partition(": ")
        name, _, detail = rest.partition(": ")
        yield replace(verdict, number=int(number), name=name, detail=detail) if number.isdigit() else verdict


def attack(work: str, model: str, seeds: Mapping[str, float]) -> list[dict[str, str]]:
    """Send a request for each seed to one server and examine its log; runs in a child."""
    with server_of(Path(work), model) as server:
        sent(server.port, ask("/v1/translate", {"text": "drei", "model": "de-en"}))
        before = server.memory()
        with ThreadPoolExecutor(CLIENTS) as clients:
            done = list(clients.map(lambda seed: _one(server.port, Random(seed)), seeds.values()))
        results = [
            {"outcome": outcome, "detail": f"{number}: {detail}"}
            for number, (outcome, detail) in zip(seeds, done, strict=True)
        ]
        grown, alive = server.memory() - before, server.process.poll() is None
        trouble = [*server.trouble()]
        if grown > SPARE_MEMORY:
            results.append({"outcome": Outcome.memory, "detail": f"the server grew by {grown >> 20} MB"})
        if not alive:
            trouble.append(f"the server ended with {server.process.returncode}")
        elif refused := end(server):
            trouble.append(refused)
    return [*results, *({"outcome": Outcome.wrong, "detail": one} for one in trouble)]


def end_while_answering(work: str, model: str, seed: float) -> dict[str, str]:
    """Send SIGTERM to a server that is answering requests; runs in a child."""
    choose = Random(seed)
    with server_of(Path(work), model) as server, ThreadPoolExecutor(CLIENTS) as clients:
        for number in range(2 * CLIENTS):
            text = {"text": "drei eins " * 300, "model": "de-en", "stream": number % 2 == 0}
            clients.submit(sent, server.port, ask("/v1/translate", text) if number % 3 else _file(choose))
        time.sleep(choose.random())
        trouble = [*filter(None, [end(server)]), *server.trouble()]
    return {"outcome": Outcome.wrong if trouble else Outcome.works, "detail": "; ".join(trouble)}


class Server:
    """A server in a process of its own."""

    def __init__(self, directory: Path, model: str, *options: str) -> None:
        directory.mkdir()
        self._log = directory / "log"
        limits = [part for name, value in LIMITS.items() for part in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "clearhead", "serve", f"de-en={model}", "--port", "0", "--threads", "1"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--device", "cpu", *limits, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        until = time.monotonic() + 600.0
        while not any(one.get("event") == "ready" for one in self.events()):
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no server: {self._text()[-500:]}")
            time.sleep(0.05)
        self.port = next(one["port"] for one in self.events() if one["event"] == "listening")

    def events(self) -> list[dict[str, Any]]:
        """Return what is logged."""
        return [json.loads(line) for line in self._text().splitlines() if line.startswith("{") and line.endswith("}")]

    def trouble(self) -> Iterator[str]:
        """Yield what the log has of errors, tracebacks, and requests over their time."""
        busy = max(1.0, max(os.getloadavg()) / (os.cpu_count() or 1))  # everything takes so much longer
        for event in self.events():
            if "error" in event or event["event"] == "stuck":
                yield f"logged: {event}"
            if event.get("seconds", 0) > (LONGEST + 1) * busy:
                yield f"took too long: {event}"
        if (place := self._text().find("Traceback")) >= 0:
            yield f"a traceback: {self._text()[place : place + 1_000]}"

    def memory(self) -> int:
        """Return the bytes of memory of its processes; a page that several have counts once."""
        found = 0
        for root in self._processes():
            with suppress(OSError):  # it has ended meanwhile
                found += int(re.findall(r"^Pss: +(\d+) kB", (root / "smaps_rollup").read_text(), re.M)[0]) * 1024
        return found

    def processor_seconds(self) -> float:
        """Return the processor time of its processes and of those that have ended."""
        found = 0
        for root in self._processes():
            with suppress(OSError):
                found += sum(map(int, (root / "stat").read_text().rpartition(")")[2].split()[11:15]))
        return found / os.sysconf("SC_CLK_TCK")

    def _processes(self) -> Iterator[Path]:
        """Yield the directory in /proc of the process and of each that it started."""
        waiting = [self.process.pid]
        while waiting:
            root = Path(f"/proc/{waiting.pop()}")
            yield root
            with suppress(OSError):  # it has ended meanwhile
                for one in root.glob("task/*/children"):
                    waiting += map(int, one.read_text().split())

    def _text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def server_of(directory: Path, model: str, *options: str) -> Iterator[Server]:
    """Start a server with more options, and end it."""
    server = Server(directory, model, *options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def end(server: Server) -> str:
    """Send SIGTERM; return what is wrong with how the server ends."""
    server.process.send_signal(signal.SIGTERM)
    try:
        code = server.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return f"SIGTERM does not end the server within {PATIENCE:.0f} s; its grace is {LIMITS['grace_seconds']} s"
    return f"SIGTERM ends the server with {code}" if code else ""


def _one(port: int, choose: Random) -> tuple[Outcome, str]:
    """Send one hostile request and judge the answer."""
    kind = choose.choice(list(_KINDS))
    request = _KINDS[kind](choose)
    behaviour = choose.choice(("wait", "wait", "wait", "wait", "half closed", "slow", "gone", "reset"))
    try:
        answer = sent(port, request, behaviour, choose)
    except TimeoutError:
        return Outcome.hung, f"{kind}, {behaviour}: no answer after {PATIENCE:.0f} s to {request[:300]!r}"
    statuses = [int(status) for status in re.findall(rb"^HTTP/1\.1 (\d{3})", answer, re.M)]
    fitting = (501, 503, 504) if b"transfer-encoding" in request.lower() else (503, 504)  # 501: RFC 9112, 6.1
    if wrong := [status for status in statuses if status >= 500 and status not in fitting]:
        return Outcome.wrong, f"{kind}, {behaviour}: status {wrong[0]} for {request[:300]!r}"
    is_refused = not statuses or statuses[-1] >= 400
    return (Outcome.refused if is_refused else Outcome.works), f"{kind}, {behaviour}: {statuses}"


def sent(port: int, request: bytes, behaviour: str = "wait", choose: Random | None = None) -> bytes:
    """Send bytes and return the whole answer; empty if the server only closes the connection.

    Raises:
        TimeoutError: If the server neither answers nor closes the connection.
    """
    answer = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection, suppress(ConnectionError):
        if behaviour == "slow" and choose is not None:
            cut = choose.randrange(len(request) + 1)
            for part in (request[:cut], request[cut : cut + 1]):
                connection.sendall(part)
                time.sleep(choose.choice((0.01, 0.3)))
            request = request[cut + 1 :]
        if behaviour in ("gone", "reset") and choose is not None:
            connection.sendall(request[: choose.randrange(len(request) + 1)])
            time.sleep(choose.choice((0, 0.02, 0.2)))
            if behaviour == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        connection.sendall(request)
        if behaviour == "half closed":
            with suppress(OSError):  # the server has refused it and closed the connection already
                connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65_536):  # until the server closes the connection, at last because it is idle
            answer += part
    return answer


def ask(path: str, body: object, *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ["content-type: application/json", "connection: close", f"content-length: {len(data)}", *headers]
    return head(f"POST {path} HTTP/1.1", *lines) + data


def head(first: str, *lines: str, host: str = "127.0.0.1") -> bytes:
    return "\r\n".join([first, *([f"host: {host}"] if host else []), *lines, "", ""]).encode("utf-8", "surrogatepass")


def _broken_body(choose: Random) -> bytes:
    sound = json.dumps(BODIES["/v1/translate"]).encode()
    place = choose.randrange(len(sound))
    body = choose.choice(
        (
            *(
                b"",
                b"[" * 100_000,
                b'{"a":' * 20_000,
                sound[:place],
                sound[:place] + choose.choice(PIECES) + sound[place:],
            ),
            *(
                b"\xff" * 99,
                b"[NaN]",
                b'{"q":' + b"9" * 9_999 + b"}",
                b'{"q":"a","q":"b"}',
                b"x" * 200_001,
                b" " * 200_000,
            ),
            json.dumps({str(number): number for number in range(5_000)}).encode(),
            b"&".join([b"q=%00%ff&q"] * choose.choice((1, 5_000))),
        )
    )
    kind = choose.choice(
        ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")
    )
    return ask(choose.choice(PATHS), body, f"content-type: {kind}")


def _fields(choose: Random) -> bytes:
    path, body = choose.choice(list(BODIES.items()))
    names = choose.choices((*body, *NAMES), k=choose.choice((1, 1, 1, 3)))
    return ask(path, {**body, **{name: choose.choice(VALUES) for name in names}})


def _text(choose: Random) -> bytes:
    path, body = choose.choice(list(BODIES.items()))
    text = structured_text(choose)(choose.choice((50, 500, 2_500, 4_900)))
    given = {name: [text] if isinstance(body[name], list) else text for name in body if name not in CHOICE}
    if path != "/v1/translate":
        return ask(path, {**body, **given})
    how: dict[str, Any] = {name: True for name in ("alignments", "stream") if choose.random() < 0.3}
    if choose.random() < 0.3:
        how["terms"] = [{"source": piece, "target": choose.choice((piece, "x y"))} for piece in CONSTRUCTS["markup"]]
    if not how:
        how["format"] = choose.choice(("text", "html"))
    return ask(path, {**body, **given, **how, "num_best": choose.choice((1, 1, 1, 5))})


def _headers(choose: Random) -> bytes:
    first = choose.choice(
        (
            *(
                "GET / HTTP/1.1",
                "POST /translate HTTP/1.1",
                "GET http://x/ HTTP/1.1",
                "FOO / HTTP/1.1",
                "GET / HTTP/3.9",
            ),
            *("GET  HTTP/1.1", "get / http/1.1", f"GET /{'a' * 99_999} HTTP/1.1", "GET /languages?x=%zz%00 HTTP/1.0"),
            *(
                "OPTIONS * HTTP/1.1",
                "CONNECT x:1 HTTP/1.1",
                "HEAD /docs HTTP/1.1",
                "PRI * HTTP/2.0",
                "\0",
                "TRACE / HTTP/1.1",
            ),
        )
    )
    lines = choose.sample(
        (
            *(
                "upgrade: websocket",
                "connection: upgrade",
                "upgrade: h2c",
                "host: evil.example",
                "host: 127.0.0.1",
                "host:",
            ),
            *(
                "content-length: 5",
                "content-length: -1",
                "content-length: 9" + "9" * 30,
                "content-length: 5, 6",
                "x: \0",
            ),
            *("transfer-encoding: chunked", "transfer-encoding: x", "expect: 100-continue", "expect: x", ": x", "x"),
            *(
                "sec-fetch-site: cross-site",
                "origin: null",
                "range: bytes=9-1",
                "accept-encoding: \xff",
                "x: " + "y" * 70_000,
            ),
            *("\r\n".join(["a: b"] * 5_000), " folded", "authorization: Bearer \xe9", "cookie: " + "a=b;" * 999),
        ),
        choose.choice((1, 2, 4)),
    )
    return head(
        first, *lines, host=choose.choice(("127.0.0.1", "127.0.0.1", "", "evil.example", "[::1", "127.0.0.1:x"))
    )


def _lengths(choose: Random) -> bytes:
    data = json.dumps(BODIES["/v1/translate"]).encode()
    if choose.random() < 0.5:
        length = len(data) + choose.choice((-5, 7, 999))
        return head("POST /v1/translate HTTP/1.1", "content-type: application/json", f"content-length: {length}") + data
    size = choose.choice((f"{len(data):x}", "-1", "f" * 17, "zz", "", "1;x=" + "y" * 9_999, f"{len(data) + 9:x}"))
    end = choose.choice(("0\r\n\r\n", "0\r\nx: y\r\n\r\n", "", "0", "5\r\nab"))
    lines = [
        "content-type: application/json",
        "transfer-encoding: chunked",
        *choose.choice(([], ["content-length: 3"])),
    ]
    return head("POST /v1/translate HTTP/1.1", *lines) + f"{size}\r\n".encode() + data + b"\r\n" + end.encode()


def _pipeline(choose: Random) -> bytes:
    get = head("GET /languages HTTP/1.1")
    post = ask("/v1/translate", {"text": "drei", "model": "de-en"}).replace(b"connection: close", b"x: y")
    return b"".join(choose.choice((get, post, b"\r\n", b"x\r\n\r\n" * (choose.random() < 0.1))) for _ in range(20))


def _file(choose: Random) -> bytes:
    extension = choose.choice((*SOUND, ".docx", ".pdf", ".mo", "", ".po/../x", ".\0", "." + "x" * 999))
    content = bytearray(SOUND.get(extension, structured_text(choose)(2_000)).encode() * choose.choice((1, 1, 50)))
    for _ in range(choose.choice((0, 1, 5))):
        place = choose.randrange(len(content) + 1)
        content[place : place + choose.choice((0, 9))] = choose.choice(PIECES)
    end = choose.choice(("--x--\r\n", "--x--\r\n", "--x--\r\n", "--x", ""))
    parts = "".join(
        f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{CHOICE[name]}\r\n'
        for name in ("source", "target")
    )
    head = f'--x\r\ncontent-disposition: form-data; name="file"; filename="a{extension}"\r\n\r\n'
    kind = choose.choice(("multipart/form-data; boundary=x",) * 4 + ("multipart/form-data", "text/plain"))
    body = (parts + head).encode() + bytes(content) + f"\r\n{end}".encode()
    return ask("/translate_file", body, f"content-type: {kind}").replace(b"content-type: application/json\r\n", b"", 1)


_KINDS = {
    "broken body": _broken_body,
    "fields": _fields,
    "text": _text,
    "headers": _headers,
    "lengths": _lengths,
    "pipeline": _pipeline,
    "file": _file,
}
"""Make a request, by its kind."""

ATTACK = Attack("server", "requests", full=2_000, few=30, run=run)
