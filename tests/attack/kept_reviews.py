"""Attack: hostile requests to reviews that a server keeps, kills, two servers, no room; no answered change is lost."""

from __future__ import annotations

import json
import re
import resource
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx
from harness import Attack, Campaign, Case, Outcome, judged
from reviews import BILINGUAL, BODIES, FOREIGN, HEADERS, MAKERS, PATHS, SOURCES, TEXTS
from server import PATIENCE, Server, end, server_of

STEPS = 40
KEYS = ("0" * 32, "f" * 31, "F" * 32, "%2e%2e", "x" * 999, "\u0661" * 32, "0" * 32 + "%0a", "%00")
"""Keys that no review has."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Attack one directory of reviews in every case."""
    for number in campaign.numbers():
        arguments = {"work": str(campaign.directory / f"kept-{number}"), "model": str(campaign.stock.models / "plain")}
        seed = campaign.choose(number).random()
        yield Case(number, "kept reviews", "kept_reviews:attack", {**arguments, "seed": seed}, 600.0)


def attack(work: str, model: str, seed: float) -> dict[str, str]:
    """Send requests to servers that keep reviews, and end some by SIGKILL; runs in a child."""
    Path(work).mkdir()
    with ExitStack() as held:
        site = Site(Path(work), model, Random(seed), held)
        trouble = next(filter(None, (site.step() for _ in range(STEPS))), "") or site.lost()
        trouble = trouble or end(site.server) or next(site.server.trouble(), "")
    return {"outcome": Outcome.wrong if trouble else Outcome.works, "detail": trouble}


class Site:
    """A server with its reviews, and what it has promised of each."""

    def __init__(self, work: Path, model: str, choose: Random, held: ExitStack) -> None:
        self.choose, self.held, self.work, self.model = choose, held, work, model
        self.promised: dict[str, dict[int, tuple[str, str]]] = {}
        self.client = held.enter_context(httpx.Client(timeout=PATIENCE))
        self.server = self._started("first")
        for _ in range(2):
            self._begin()

    def _started(self, name: str) -> Server:
        limits = ("--set", "max_reviews=20", "--set", "max_review_bytes=150000")
        return self.held.enter_context(
            server_of(self.work / name, self.model, "--reviews", str(self.work / "kept"), *limits)
        )

    def _ask(self, method: str, path: str, server: Server | None = None, **what: Any) -> httpx.Response:
        return self.client.request(method, f"http://127.0.0.1:{(server or self.server).port}{path}", **what)

    def _begin(self) -> str:
        """Translate a file and begin its review; return what is wrong with the answers."""
        extension = self.choose.choice([*MAKERS])
        file = {"file": (f"in{extension}", MAKERS[extension](SOURCES))}
        answer = self._ask("POST", "/translate_file", files=file, data={"source": "de", "target": "en"})
        name = answer.json()["translatedFileUrl"].split("/")[-1]
        answer = self._ask("POST", "/reviews", json={"file": name})
        if answer.status_code == 403:  # too many
            return "" if len(self.promised) >= 5 else answer.text
        key = re.fullmatch(r"http://[^/]+/reviews/([0-9a-f]{32})/", answer.json()["reviewUrl"])
        if key is None:
            return f"no link: {answer.text[:200]}"
        self.promised[key[1]] = {}
        self.promised[key[1]] = self._kept(key[1])
        return "" if len(self.promised[key[1]]) >= len(SOURCES) - (extension in BILINGUAL) else "segments are missing"

    def _kept(self, key: str) -> dict[int, tuple[str, str]]:
        answer = self._ask("GET", f"/reviews/{key}/segments")
        if answer.status_code != 200:
            raise RuntimeError(f"{answer.status_code}: {answer.text[:300]}")
        return {one["number"]: (one["text"], one["state"]) for one in answer.json()["segments"]}

    def lost(self) -> str:
        """Return which answered changes are not there."""
        for key, promised in self.promised.items():
            if (kept := self._kept(key)) != promised:
                return f"lost {promised}: {kept}"
        return ""

    def step(self) -> str:
        """Do one thing; return what is wrong with what it did."""
        key = self.choose.choice([*self.promised])
        headers = {"content-type": "application/json", **self.choose.choice(HEADERS)}
        if headers.get("host") == "":  # no request of HTTP/1.1
            del headers["host"]
        match self.choose.choice(("edit",) * 4 + ("undo", "get", "body", "key", "full", "outside", "kill", "begin")):
            case "edit":
                return self._changing(key, headers, *self._edit(key))
            case "undo":
                return self._changing(key, headers, "undo", b"{}")
            case "body":
                where = self.choose.choice(("segments/0", "undo", "check", "status", "segments/0/inside"))
                return self._changing(key, headers, where, self.choose.choice(BODIES))
            case "get":
                where = self.choose.choice((*PATHS, "/download", "/segments/0/inside", "/segments/0/alternatives"))
                return self._wrong(self._ask("GET", f"/reviews/{key}{where}", headers=headers))
            case "key":
                method, path = self.choose.choice((("GET", "/"), ("POST", "/segments/0"), ("DELETE", "/")))
                own = self.choose.choice((*KEYS, f"{key}0", key[:-1]))
                answer = self._ask(method, f"/reviews/{own}{path}", headers=headers, content=b"{}")
                return f"{own} is answered with 200" if answer.status_code == 200 else self._wrong(answer)
            case "full":
                return self._full(key, headers)
            case "outside":
                return self._outside(key, headers)
            case "kill":
                return self._killed(key)
            case _:
                self._ask("POST", "/reviews", content=self.choose.choice(BODIES), headers=headers)
                return self._begin()

    def _edit(self, key: str) -> tuple[str, bytes]:
        number = self.choose.choice([*self.promised[key]])
        segments = self._ask("GET", f"/reviews/{key}/segments").json()["segments"]
        own = next(one for one in segments if one["number"] == number)
        text, state = self.choose.choice((*TEXTS, own["text"])), self.choose.choice(("accepted", "edited", "open"))
        revision = own["revision"] + (self.choose.random() < 0.1)
        return f"segments/{number}", json.dumps({"text": text, "state": state, "revision": revision}).encode()

    def _changing(self, key: str, headers: dict[str, str], where: str, body: bytes) -> str:
        """Send what may change a review, and remember what it promises then."""
        return self._changed(key, headers, self._ask("POST", f"/reviews/{key}/{where}", content=body, headers=headers))

    def _changed(self, key: str, headers: dict[str, str], answer: httpx.Response) -> str:
        """Compare a review with an answer that may have changed it, and remember what it promises."""
        if wrong := self._wrong(answer):
            return wrong
        before, after = self.promised[key], self._kept(key)
        if (answer.status_code >= 400 or not FOREIGN.isdisjoint(headers.values())) and after != before:
            return f"changed although refused with {answer.status_code}"
        own = answer.json() if answer.status_code == 200 else {}
        if own.keys() >= {"number", "text", "state"} and after[own["number"]] != (own["text"], own["state"]):
            return f"answered with {own}, and is {after[own['number']]}"
        self.promised[key] = after
        return ""

    def _wrong(self, answer: httpx.Response) -> str:
        where = f"{answer.request.method} {answer.request.url}"
        if str(self.work) in answer.text:
            return f"a path of the server is in the answer to {where}"
        is_wrong = answer.status_code >= 500 and answer.status_code not in (503, 504)
        return f"{answer.status_code} for {where}: {answer.text[:200]}" if is_wrong else ""

    def _full(self, key: str, headers: dict[str, str]) -> str:
        """Change a review while the server can write no file."""
        process, unlimited = self.server.process.pid, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        where, body = self._edit(key)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            answer = self._ask("POST", f"/reviews/{key}/{where}", content=body, headers=headers)
        finally:
            resource.prlimit(process, resource.RLIMIT_FSIZE, unlimited)
        return self._changed(key, headers, answer)

    def _outside(self, key: str, headers: dict[str, str]) -> str:
        """Let another program change the document or a file of the review meanwhile; put it back."""
        path = self.choose.choice([one for one in (self.work / "kept" / key).iterdir() if one.is_file()])
        if path.name.startswith(".") and path.name != ".start.json":
            return ""  # another program that damages a journal or a memory loses them
        content, is_document = path.read_bytes(), not path.name.startswith(".")
        path.write_bytes(self.choose.randbytes(9))
        answer = self._ask("POST", f"/reviews/{key}/undo", content=b"{}", headers=headers)
        trouble = self._wrong(answer)
        if is_document and answer.status_code == 200:
            trouble = "a change of a changed document is taken"
        path.write_bytes(content)
        with suppress(RuntimeError):
            self.promised[key] = self._kept(key)
        return trouble

    def _killed(self, key: str) -> str:
        """Let a second server answer after a kill, and while the first runs."""
        other = self._started(f"other-{self.choose.getrandbits(60)}")
        for path in ("/", "/segments", "/download"):
            if wrong := self._wrong(self._ask("GET", f"/reviews/{key}{path}", server=other)):
                return wrong
        self.server.process.kill()
        self.server.process.wait()
        trouble, self.server = next(self.server.trouble(), ""), other
        return trouble or self.lost()


ATTACK = Attack("kept reviews", "servers", full=20, few=1, run=judged(cases))
