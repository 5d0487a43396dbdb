"""Servers over the models of bench/outputs.py, and requests to them."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SERVERS: Mapping[str, str] = {
    "main": "de-en=models/words many=models/tagged marked=models/marked small=models/int8 --terms de-en=terms/hard.tsv "
    "--terms octo=terms/terms.tsv --memory marked=pairs/few.tsv --cors https://example.org",
    "keys": "de-en=models/words --keys keys.jsonl",
    "limited": "de-en=models/words gated=models/gated --set max_characters=60 --set max_texts=3 "
    "--set max_alternatives=2 --set max_terms=2 --set max_term_characters=12 --set max_request_tokens=400 "
    "--set max_explain_tokens=12 --set max_body_bytes=200 --set max_file_bytes=2000 --set max_file_characters=80",
}
"""Arguments of `clearhead serve`, by the name of the server."""
VARYING_HEADERS = ("content-length", "date", "x-request-id")
STOP_SECONDS = 30


class Server:
    """A running server."""

    def __init__(self, materials: Path, arguments: str) -> None:
        self.materials = materials
        self.log = (materials / "server.log").open("ab")
        command = [sys.executable, "-m", "clearhead", "serve", *shlex.split(arguments)]
        command += ["--port", "0", "--threads", "1", "--set", "request_seconds=120"]
        self.process = subprocess.Popen(
            command, cwd=materials, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        first = self.process.stderr.readline().decode()
        found = re.search(r"http://[\w.:\[\]]+", first)
        if found is None:
            raise SystemExit(f"the server did not start: {first}{self.process.stderr.read().decode()}")
        self.host = urlsplit(found[0]).netloc
        # Nothing may fill the pipe while nobody reads it.
        self.reader = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=self.log)
        while self.answer("GET", "/readyz", b"", {})["status"] != 200:
            time.sleep(0.1)

    def answer(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Send a request; return the status, the headers that do not vary, and the body."""
        connection = http.client.HTTPConnection(self.host, timeout=120)
        connection.request(method, path, body or None, dict(headers))
        response = connection.getresponse()
        content = response.read()
        connection.close()
        kept = {name.lower(): value for name, value in response.getheaders()}
        for name in VARYING_HEADERS:
            kept.pop(name, None)
        return {"status": response.status, "headers": kept, "body": content}

    def raw_answer(self, sent: bytes) -> dict[str, Any]:
        """Send bytes; return what comes back until the connection is closed."""
        host, _, port = self.host.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(sent)
            received = b"".join(iter(lambda: connection.recv(65_536), b""))
        return {"body": re.sub(rb"(?im)^(date|x-request-id|content-length): .*\r\n", b"", received)}

    def stop(self) -> None:
        """End the server."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_SECONDS)
        self.reader.wait(STOP_SECONDS)
        self.log.close()


class Servers:
    """The servers that were asked so far."""

    def __init__(self, materials: Path) -> None:
        self.materials = materials
        self.running: dict[str, Server] = {}

    def ask(self, line: str) -> list[dict[str, Any]]:
        """Send the requests of a line, joined by ` ; `, and return the answers."""
        return [answer for one in line.split(" ; ") for answer in self._ask_one(one)]

    def _ask_one(self, line: str) -> Iterator[dict[str, Any]]:
        line, *given = line.split(" | ")
        headers = dict(one.split(": ", 1) for one in given)
        if owner := headers.pop("key", None):
            headers["authorization"] = f"Bearer {(self.materials / 'keys' / owner).read_text().strip()}"
        method, _, rest = line.partition(" ")
        method, _, name = method.partition("@")
        server = self._running(name or "main")
        if method == "RAW":
            yield server.raw_answer(rest.encode().decode("unicode_escape").encode("latin-1"))
            return
        if method == "UPLOAD":
            yield from self._upload(server, rest, headers)
            return
        path, _, body = rest.partition(" ")
        if body:
            kind = "application/json" if body[0] in "{[" else "application/x-www-form-urlencoded"
            headers = {"content-type": kind, **headers}
        yield server.answer(method, path, body.encode(), headers)

    def _upload(self, server: Server, line: str, headers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Send a file with form fields, then ask for its translation and for the report on it."""
        name, *fields = shlex.split(line)
        parts = [
            f'Content-Disposition: form-data; name="{f.split("=")[0]}"\r\n\r\n{f.split("=", 1)[1]}' for f in fields
        ]
        head = f'Content-Disposition: form-data; name="file"; filename="{Path(name).name}"\r\n\r\n'
        content = [part.encode() for part in parts] + [head.encode() + (self.materials / name).read_bytes()]
        body = b"".join(b"--limit\r\n" + part + b"\r\n" for part in content) + b"--limit--\r\n"
        kind = {"content-type": "multipart/form-data; boundary=limit"}
        answer = server.answer("POST", "/translate_file", body, kind | dict(headers))
        yield answer
        if answer["status"] == 200:
            addresses = json.loads(answer["body"])
            for field in ("translatedFileUrl", "reportUrl"):
                yield server.answer("GET", urlsplit(addresses[field]).path, b"", {})

    def _running(self, name: str) -> Server:
        if name not in self.running:
            self.running[name] = Server(self.materials, SERVERS[name])
        return self.running[name]


@contextmanager
def serving(materials: Path) -> Iterator[Servers]:
    """Yield servers, which are started when they are asked; afterwards they end."""
    servers = Servers(materials)
    try:
        yield servers
    finally:
        for server in servers.running.values():
            server.stop()
