"""A small server of a review for tests of its page: segments that were made up, kept in memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from clearhead.serving.review_page import page_response
from clearhead.translation.review import State

DONE = tuple(state for state in get_args(State) if state != "open")


def segment(number: int, source: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return a segment with usual values."""
    usual = {
        "place": f"line {number + 1}",
        "machine": text,
        "file": None,
        "origin": "machine",
        "state": "open",
        "flags": [],
        "quality": round(0.9 / (number % 7 + 1), 2),
        "score_per_token": -0.5,
        "matches": [],
        "terms": [],
        "placeholders": [],
        "context": None,
        "revision": 0,
    }
    return {"number": number, "source": source, "text": text, **usual, **fields}


GAPPED = segment(
    0,
    "Öffnen Sie %s im <g1>Menü</g1>.",
    "Open the <g1>menu.",
    flags=[{"kind": "placeholders", "meaning": "a code is missing", "severity": "serious", "detail": "%s"}],
    placeholders=["%s", "<g1>", "</g1>"],
    terms=[{"source": "Menü", "target": ["menu bar", "menu"], "found": True}],
    matches=[
        {
            "source": "Öffnen Sie %s im <g1>Fenster</g1>.",
            "target": "Open %s in the <g1>window</g1>.",
            "similarity": 0.9,
        },
        {"source": "Öffnen Sie %s.", "target": "Open %s.", "similarity": 0.55},
    ],
    context="src/main.c:12",
)


@dataclass
class FakeReview:
    """A review in memory, in the order of its segments."""

    segments: list[dict[str, Any]]
    languages: tuple[str, str | None] = ("de", "en")
    direction: tuple[str, str] = ("ltr", "ltr")
    name: str = "messages.po"
    journal: list[dict[str, Any]] = field(default_factory=list)
    """Segments as they were before each change."""
    asked: list[str] = field(default_factory=list)
    """Requests: method and path."""
    refusals: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Answers to the next changes, instead of making them."""
    alternatives: list[str] = field(default_factory=list)
    links: list[list[int]] = field(default_factory=list)
    problem: str | None = None

    @property
    def done(self) -> int:
        return sum(one["state"] in DONE for one in self.segments)

    def app(self) -> Starlette:
        """Return the application."""
        routes = [
            Route("/", self._page),
            Route("/segments", self._list),
            Route("/segments/{number:int}", self._one),
            Route("/segments/{number:int}", self._change, methods=["POST"]),
            Route("/segments/{number:int}/alternatives", self._alternatives),
            Route("/segments/{number:int}/inside", lambda _: HTMLResponse("<h1>Inside</h1>")),
            Route("/undo", self._undo, methods=["POST"]),
            Route("/check", self._check, methods=["POST"]),
            Route("/status", self._status),
        ]
        return Starlette(routes=routes)

    async def _page(self, _: Request) -> Response:
        fields = {"name": self.name, "languages": self.languages, "direction": self.direction}
        more = {"count": len(self.segments), "done": self.done, "output": f"/a/{self.name}"}
        return page_response({**fields, **more})

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        self.asked.append(f"GET /segments?{query}")
        wanted = {"open": ("open",), "done": DONE, "all": ("open", *DONE)}[query["show"]]
        text = query.get("find", "").casefold()
        found = [
            one
            for one in self.segments
            if one["state"] in wanted and (text in one["source"].casefold() or text in one["text"].casefold())
        ]
        before = [one for one in found if one["number"] <= int(query.get("after", -1))]
        start = int(query.get("start", len(before)))
        shown = found[start : start + int(query["count"])]
        return JSONResponse({"segments": shown, "start": start, "total": len(found), "done": self.done})

    async def _one(self, request: Request) -> Response:
        return JSONResponse(self.segments[request.path_params["number"]])

    async def _change(self, request: Request) -> Response:
        number, body = request.path_params["number"], await request.json()
        self.asked.append(f"POST /segments/{number}")
        if self.refusals:
            status, answer = self.refusals.pop(0)
            return JSONResponse(answer, status)
        before = self.segments[number]
        if body["revision"] != before["revision"]:
            return JSONResponse({"error": "this segment was changed in another window", "segment": before}, 409)
        self.journal.append(before)
        changed = {"text": body["text"], "state": body["state"], "revision": before["revision"] + 1}
        self.segments[number] = {**before, **changed}
        for alike in self.segments:
            if alike["source"] == before["source"] and alike["number"] != number and alike["state"] == "open":
                alike |= {"text": body["text"], "origin": "memory", "revision": alike["revision"] + 1}
        return JSONResponse(self.segments[number])

    async def _undo(self, _: Request) -> Response:
        self.asked.append("POST /undo")
        if not self.journal:
            return JSONResponse({"segment": None})
        before = self.journal.pop()
        number = before["number"]
        self.segments[number] = {**before, "revision": self.segments[number]["revision"] + 1}
        return JSONResponse({"segment": self.segments[number]})

    async def _check(self, request: Request) -> Response:
        body = await request.json()
        text, one = body["text"], self.segments[body["number"]]
        codes = [{"text": code, "found": code in text} for code in one["placeholders"]]
        lost = [code["text"] for code in codes if not code["found"]]
        meaning = {"kind": "placeholders", "severity": "serious", "meaning": "a placeholder of the source is missing"}
        flags = [{**meaning, "detail": ", ".join(lost)}] if lost else []
        terms = [{**term, "found": any(form in text for form in term["target"])} for term in one["terms"]]
        problem = "a control character" if "\v" in text else None
        return JSONResponse({"flags": flags, "terms": terms, "placeholders": codes, "problem": problem})

    async def _alternatives(self, request: Request) -> Response:
        self.asked.append(f"GET {request.url.path}")
        text = self.segments[request.path_params["number"]]["text"]
        return JSONResponse({"text": text, "alternatives": self.alternatives, "links": self.links})

    async def _status(self, _: Request) -> Response:
        return JSONResponse(
            {"done": self.done, "count": len(self.segments), "saved": self.problem is None, "problem": self.problem}
        )


@contextmanager
def served_review(review: FakeReview) -> Iterator[str]:
    """Serve a review for the block; the value is its address."""
    config = uvicorn.Config(review.app(), log_config=None, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()
