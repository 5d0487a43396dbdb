"""Attack: requests in any packets, on a server that is still importing, and large bodies without a key."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random

from harness import SPARE_MEMORY, Attack, Campaign, Case, Outcome, judged
from server import CLIENTS, PATIENCE, ask, sent, server_of

TEXTS = ("drei", "null eins", "犬が\r\nupgrade: h2c\r\n\r\n", "\r\n\r\nPOST /v1/translate HTTP/1.1\r\nhost: a\r\n\r\n")
UPGRADES = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "upgrade: websocket", "x: y")
PLACES = 60
"""Splits of one stream, of all its bytes in turn."""
LARGE = 30
"""Requests with a large body and no key."""
SECONDS_EACH = 1.0
"""Most processor time for one of them."""
MODEL = "de-en"
REFUSED = (400, 401, 403, 413, 503)


def cases(campaign: Campaign) -> Iterator[Case]:
    """Start a server for every case: by turns for splits, the first explanation, and bodies without a key."""
    model = str(campaign.stock.models / "plain")
    kinds = ("split", "first_explanation", "without_a_key")
    for number in campaign.numbers():
        kind = kinds[number % len(kinds)]
        arguments = {"work": str(campaign.directory / f"case-{number}"), "model": model}
        arguments["seed"] = campaign.choose(number).random()
        yield Case(number, kind.replace("_", " "), f"connections:{kind}", arguments, seconds=600.0)


def split(work: str, model: str, seed: float) -> dict[str, str]:
    """Send pipelined requests whole and split at many bytes, and compare the answers; runs in a child."""
    choose = Random(seed)
    with server_of(Path(work), model) as server, ThreadPoolExecutor(CLIENTS) as clients:
        asked = [choose.choice(TEXTS) for _ in range(choose.randint(1, 3))]
        last = len(asked) - 1
        requests = [_request(text, choose, is_last=place == last) for place, text in enumerate(asked)]
        alone = [sent(server.port, ask("/v1/translate", {"text": text, "model": MODEL})) for text in asked]
        expected = [one for answer in alone for one in _translations(answer)]
        stream, start = b"".join(requests), choose.randrange(99)
        places = [*range(start % 7, len(stream), max(1, len(stream) // PLACES)), *_near_line_ends(stream)]
        found = list(clients.map(lambda place: _in_packets(server.port, stream, (place,)), places))
        found += [_in_packets(server.port, stream, choose.sample(range(len(stream)), 9)) for _ in range(3)]
        trouble = [f"{answers} for {stream!r}" for answers in found if answers != expected]
        trouble += server.trouble()
    return _judged(trouble)


def first_explanation(work: str, model: str, seed: float) -> dict[str, str]:
    """Translate while the first explanation imports PyTorch; runs in a child."""
    with server_of(Path(work), model) as server, ThreadPoolExecutor(CLIENTS) as clients:
        explanation = clients.submit(sent, server.port, ask("/v1/explain", {"text": "drei", "model": MODEL}))
        statuses: list[int] = []
        while not explanation.done():
            answers = clients.map(
                lambda text: sent(server.port, ask("/v1/translate", {"text": text, "model": MODEL})),
                [f"drei {len(statuses)} {number}" for number in range(CLIENTS - 1)],
            )
            statuses += map(_status, answers)
        statuses.append(_status(explanation.result()))
        trouble = [*server.trouble(), *(f"status {one}" for one in statuses if one not in (200, 503, 504))]
    return _judged(trouble)


def without_a_key(work: str, model: str, seed: float) -> dict[str, str]:
    """Send large bodies without a key to a server that has keys; count its work; runs in a child."""
    choose, root = Random(seed), Path(work)
    keys = root.with_name(f"{root.name}-keys.jsonl")
    made = [sys.executable, "-m", "clearhead", "api-key", "anna", "--keys", str(keys)]
    subprocess.run(made, check=True, capture_output=True)
    with server_of(root, model, "--keys", str(keys)) as server, ThreadPoolExecutor(CLIENTS) as clients:
        before, memory = server.processor_seconds(), server.memory()
        statuses = [
            _status(answer)
            for answer in clients.map(lambda body: sent(server.port, body), map(_large, [choose] * LARGE))
        ]
        spent, grown = server.processor_seconds() - before, server.memory() - memory
        trouble = [*server.trouble(), *(f"status {one}" for one in statuses if one not in (*REFUSED, 0))]
        if spent > LARGE * SECONDS_EACH:
            trouble.append(f"{LARGE} bodies without a key took {spent:.1f} s of processor time")
        if grown > SPARE_MEMORY:
            trouble.append(f"{LARGE} bodies without a key took {grown >> 20} MB")
    return _judged(trouble)


def _judged(trouble: Sequence[str]) -> dict[str, str]:
    return {"outcome": Outcome.wrong if trouble else Outcome.works, "detail": "; ".join(trouble)[:1_000]}


def _request(text: str, choose: Random, *, is_last: bool) -> bytes:
    """Return a request to translate a text, some with `Upgrade`; the connection stays open if others follow."""
    made = ask("/v1/translate", {"text": text, "model": MODEL}, *choose.sample(UPGRADES, choose.randint(1, 3)))
    return made if is_last else made.replace(b"connection: close\r\n", b"", 1)


def _near_line_ends(stream: bytes) -> list[int]:
    """Return the places within the line ends of headers, and behind them."""
    return [place + more for place in range(len(stream)) if stream[place : place + 2] == b"\r\n" for more in (1, 2)]


def _in_packets(port: int, stream: bytes, places: Sequence[int]) -> list[str]:
    """Send a stream in packets that end at some places; return the translations, in order."""
    ends = [*sorted(places), len(stream)]
    answer = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection, suppress(ConnectionError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start, end in pairwise([0, *ends]):
            connection.sendall(stream[start:end])
            time.sleep(0.01)  # the server reads what has arrived
        while part := connection.recv(65_536):
            answer += part
    return _translations(answer)


def _translations(answers: bytes) -> list[str]:
    """Return what each answer of a connection says: a translation, or its status."""
    found = []
    while answers:
        first, _, rest = answers.partition(b"\r\n\r\n")
        size = int((re.findall(rb"(?i)content-length: (\d+)", first) or [b"0"])[0])
        body, answers = rest[:size], rest[size:]
        is_answered = _status(first) == 200
        found.append(json.loads(body)["translations"][0]["text"] if is_answered else str(_status(first)))
    return found


def _status(answer: bytes) -> int:
    """Return the status of an answer; 0 if the connection was only closed."""
    return int((re.findall(rb"^HTTP/1\.1 (\d{3})", answer) or [b"0"])[0])


def _large(choose: Random) -> bytes:
    """Return a request with a body as large as files may be, in one of several forms, without a right key."""
    size, wrong = 9_000_000, choose.choice(([], ["authorization: Bearer x"]))
    if choose.random() < 0.5:
        field = '--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n'
        return ask(
            "/translate_file",
            (field * (size // len(field))).encode(),
            "content-type: multipart/form-data; boundary=x",
            *wrong,
        ).replace(b"content-type: application/json\r\n", b"", 1)
    path = choose.choice(("/translate", "/v1/translate", "/translate_file"))
    return ask(path, b"[" + b"1," * (size // 2) + b"1]", *wrong)


ATTACK = Attack("connections", "servers", full=12, few=1, run=judged(cases))
