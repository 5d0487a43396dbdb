"""Requests on a connection: they do not depend on the packets in which they arrive, and are answered in order."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from random import Random

import h11
import pytest
from uvicorn.server import ServerState

from clearhead.config import ServeConfig
from clearhead.serving.connections import Connection, ConnectionConfig

BODIES = (
    b"",
    b"q=5+May",
    b"\r\nUpgrade: h2c\r\n\r\n",
    b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "犬\r\nupgrade:".encode(),
)
UPGRADES = (b"Upgrade: h2c\r\n", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", b"upgrade: websocket\r\n")
INVALID = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    b"GET / HTTP/9\r\nHost: a\r\n\r\n",
)


class Sent(asyncio.Transport):
    """A client's end of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = bytearray()
        self._is_closing = False

    def write(self, data: bytes) -> None:
        self.answers += data

    def write_eof(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def echo(scope, receive, send):
    """Answer with everything that was asked."""
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    body += message.get("body", b"")
    asked = [scope["method"], scope["path"], scope["query_string"].decode()]
    headers = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    data = json.dumps([asked, headers, body.decode()]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(data))]})
    await send({"type": "http.response.body", "body": data})


class Server:
    """Makes connections that nobody else uses."""

    def __init__(self) -> None:
        self._config = ConnectionConfig(echo, ServeConfig(), h11_max_incomplete_event_size=1_000)

    async def answers(self, packets: Sequence[bytes]) -> bytes:
        """Return all bytes of the answers to some packets."""
        transport, state = Sent(), ServerState()
        connection = Connection(self._config, state, {})
        connection.connection_made(transport)
        for packet in packets:
            connection.data_received(packet)
            while any(not task.done() for task in state.tasks) and connection.conn.their_state is not h11.SEND_BODY:
                await asyncio.sleep(0)
            for _ in range(2):
                await asyncio.sleep(0)
        connection.connection_lost(None)
        while state.tasks:
            await asyncio.sleep(0)
        return bytes(transport.answers)


def request(choose: Random) -> bytes:
    """Return a short request, with and without a body in either form, some with `Upgrade`."""
    body, upgrade = choose.choice(BODIES), choose.choice((b"", *UPGRADES))
    if not body:
        return b"GET /%d?a=%%20 HTTP/1.1\r\nHost: a\r\n%s\r\n" % (choose.randrange(99), upgrade)
    head = b"POST /%d HTTP/1.1\r\nHost: a\r\n%s" % (choose.randrange(99), upgrade)
    if choose.random() < 0.5:
        return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)
    parts = (body[:3], body[3:])
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return b"%sTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % (head, chunks)


def body_of(stream: bytes) -> str:
    """Return the body of a request of `request`."""
    head, _, rest = stream.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return rest.decode()
    body = b""
    while not rest.startswith(b"0\r\n"):
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body.decode()


def asked(answers: bytes) -> list[tuple[str, str]]:
    """Return method and body of each request that was answered."""
    found = []
    while answers:
        head, _, answers = answers.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        length = int(head.rpartition(b"content-length: ")[2])
        [method, _, _], _, body = json.loads(answers[:length])
        found.append((method, body))
        answers = answers[length:]
    return found


def test_a_split_at_any_byte_changes_no_answer():
    choose, server = Random(1), Server()
    kinds = {re.sub(rb"/\d+", b"", one): one for one in (request(choose) for _ in range(400))}
    assert len(kinds) == 36  # all that there are, of other numbers

    async def check():
        for stream in kinds.values():
            whole = await server.answers([stream])
            [found] = asked(whole)
            assert found == (stream.split()[0].decode(), body_of(stream))
            for place in range(1, len(stream)):
                assert await server.answers([stream[:place], stream[place:]]) == whole, (stream, place)

    asyncio.run(check())


def test_a_split_at_any_byte_changes_no_answer_of_a_pipeline():
    choose, server = Random(2), Server()

    async def check():
        for _ in range(8):
            requests = [request(choose) for _ in range(3)]
            stream = b"".join(requests)
            whole = await server.answers([stream])
            assert asked(whole) == [(one.split()[0].decode(), body_of(one)) for one in requests]
            assert await server.answers([bytes([byte]) for byte in stream]) == whole
            for place in range(1, len(stream)):
                assert await server.answers([stream[:place], stream[place:]]) == whole, (stream, place)

    asyncio.run(check())


@pytest.mark.parametrize("invalid", INVALID)
def test_a_split_at_any_byte_changes_no_refusal(invalid):
    server = Server()

    async def check():
        stream = request(Random(3)) + invalid
        whole = await server.answers([stream])
        assert whole.count(b"HTTP/1.1 ") == 2
        for place in range(1, len(stream)):
            assert await server.answers([stream[:place], stream[place:]]) == whole, place

    asyncio.run(check())
