"""The server of a review: its page, the segments, changes, undo, checks, and what the model says of a segment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.inspection.explain import explain
from clearhead.serving.http_errors import HTTPError, bad_request
from clearhead.serving.middleware import require_allowed
from clearhead.serving.review_page import page_response
from clearhead.translation.alternatives import segment_alternatives, segment_links
from clearhead.translation.review import RefusedEditError, Review, StaleRevisionError
from clearhead.translation.review_files import ChangedOutsideError
from clearhead.translation.translator import Translator

MOST_SEGMENTS = 200
"""Segments in an answer."""
MOST_BYTES = 4_000_000
"""Size of a request's body."""
MOST_CHARACTERS = 200_000
"""Characters of a translation."""
NUM_ALTERNATIVES = 5
_MOST_DIGITS = 9
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}

_Number = Annotated[int, Field(ge=0, strict=True)]
_Text = Annotated[str, Field(max_length=MOST_CHARACTERS, strict=True)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


_B = TypeVar("_B", bound=_Body)


class _Edit(_Body):
    text: _Text
    state: Literal["accepted", "edited", "open"]
    revision: _Number


class _Check(_Body):
    number: _Number
    text: _Text


class AskModel(Protocol):
    """Asks the model, in a thread, and returns the answer."""

    async def __call__(
        self, request: Request, pair: tuple[str, str], answer: Callable[..., Response], *, explains: bool
    ) -> Response:
        """Return what `answer` does.

        Args:
            request: The request, whose body is read: the next event can only be the end of the connection.
            pair: The texts of a segment: source and translation.
            answer: Called with the translator, and with fields of `DecodeConfig` for it by name.
            explains: Whether it explains the translation.

        Raises:
            HTTPError: If the model cannot be asked now, or not about so much text.
            ClientDisconnect: If the client has left before its turn.
        """


class ReviewServer:
    """The handlers of a review's requests.

    Args:
        review: The review.
        ask_model: Asks the model for alternatives, links and explanations.
        page: Data of the page as in `page_response`, besides `count` and `done`.
        num_alternatives: Number of alternatives that are shown.
        shown: Returns a message as clients see it.
    """

    def __init__(
        self,
        review: Review,
        ask_model: AskModel,
        page: Mapping[str, object],
        *,
        num_alternatives: int = NUM_ALTERNATIVES,
        shown: Callable[[str], str] = str,
    ) -> None:
        self._review, self._ask_model, self._page = review, ask_model, page
        self._num_alternatives, self._shown = num_alternatives, shown

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/", self.page),
            Route("/status", self.status),
            Route("/segments", self.segments),
            Route("/segments/{number}", self.segment),
            Route("/segments/{number}", self.change, methods=["POST"]),
            Route("/segments/{number}/alternatives", self.alternatives),
            Route("/segments/{number}/inside", self.inside),
            Route("/undo", self.undo, methods=["POST"]),
            Route("/check", self.check, methods=["POST"]),
        ]

    def page(self, request: Request) -> Response:
        """Answer `GET /`."""
        return page_response({**self._page, "count": len(self._review), "done": self._review.num_done})

    def status(self, request: Request) -> Response:
        """Answer `GET /status`."""
        review = self._review
        saved = {"saved": review.is_saved, "problem": review.problem and self._shown(review.problem)}
        return _json({"done": review.num_done, "count": len(review), **saved})

    def segments(self, request: Request) -> Response:
        """Answer `GET /segments?show=open|done|all&find=TEXT&count=C`, from `start=K` or after a segment: `after=N`."""
        asked = request.query_params
        show = asked.get("show", "all")
        if show not in ("open", "done", "all"):
            raise bad_request("show must be open, done or all")
        review, count = self._review, min(_number(asked.get("count", str(MOST_SEGMENTS))), MOST_SEGMENTS)
        numbers = review.in_state(show, asked.get("find", ""))  # type: ignore[arg-type]
        start = _number(asked.get("start", "0"))
        if "after" in asked:
            last = review.places[self._known(asked["after"])]
            start = sum(review.places[number] <= last for number in numbers)
        segments = [review.object(number) for number in numbers[start : start + count]]
        return _json({"segments": segments, "start": start, "total": len(numbers), "done": review.num_done})

    def segment(self, request: Request) -> Response:
        """Answer `GET /segments/N`."""
        return _json(self._review.object(self._known(request.path_params["number"])))

    async def change(self, request: Request) -> Response:
        """Answer `POST /segments/N`."""
        number, edit = self._known(request.path_params["number"]), await _read(request, _Edit)

        def changed() -> Response:
            try:
                self._review.change(number, edit.text, edit.state, edit.revision)
            except StaleRevisionError as error:
                return _error(str(error), HTTPStatus.CONFLICT, segment=self._review.object(number))
            return _json(self._review.object(number))

        return await run_in_threadpool(self._answer, changed)

    async def undo(self, request: Request) -> Response:
        """Answer `POST /undo`."""
        await _read(request, _Body)

        def undone() -> Response:
            number = self._review.undo()
            return _json({"segment": None if number is None else self._review.object(number)})

        return await run_in_threadpool(self._answer, undone)

    async def check(self, request: Request) -> Response:
        """Answer `POST /check`."""
        asked = await _read(request, _Check)
        self._require_known(asked.number)
        found = await run_in_threadpool(self._review.check, asked.number, asked.text)
        return _json({**found, "problem": found["problem"] and self._shown(found["problem"])})

    async def alternatives(self, request: Request) -> Response:
        """Answer `GET /segments/N/alternatives`."""
        return await self._answer_of_model(request, self._alternatives)

    def _alternatives(self, source: str, text: str, translator: Translator, **settings: Any) -> Response:
        others = segment_alternatives(translator, source, self._num_alternatives, **settings)
        links = segment_links(translator, source, text, **settings)
        return _json({"text": text, "alternatives": others, "links": links})

    async def inside(self, request: Request) -> Response:
        """Answer `GET /segments/N/inside`."""
        return await self._answer_of_model(request, self._inside, explains=True)

    def _inside(self, source: str, text: str, translator: Translator, **settings: Any) -> Response:
        page = explain(translator, source, text, **settings).to_html()
        return HTMLResponse(page, headers={**_HEADERS, "content-security-policy": "frame-ancestors 'none'"})

    async def _answer_of_model(
        self, request: Request, answer: Callable[..., Response], *, explains: bool = False
    ) -> Response:
        """Answer what the model is asked of a segment."""
        number = self._known(request.path_params["number"])
        async for _ in request.stream():
            pass
        pair = self._review.translated[number].segment.text, self._review.text(number)

        def answered(translator: Translator, **settings: Any) -> Response:
            # Nothing is written here: an error of data is that of the text, such as one over the model's limit.
            asked = partial(answer, *pair, translator, **settings)
            return self._answer(asked, HTTPStatus.UNPROCESSABLE_ENTITY)

        return await self._ask_model(request, pair, answered, explains=explains)

    def _answer(self, call: Callable[[], Response], of_data: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE) -> Response:
        """Return an answer, or that of an error of ours; `of_data` is the status of errors of data."""
        try:
            return call()
        except ClearheadError as error:
            message = self._shown(str(error))
            match error:
                case ChangedOutsideError():
                    return _error(message, HTTPStatus.CONFLICT, changed=True)
                case RefusedEditError():
                    return _error(message, HTTPStatus.UNPROCESSABLE_ENTITY)
                case ConfigError():  # such as a model without cross-attention
                    return _error(message, HTTPStatus.BAD_REQUEST)
                case DataError():
                    return _error(message, of_data)
            raise

    def _known(self, text: str) -> int:
        number = _number(text)
        self._require_known(number)
        return number

    def _require_known(self, number: int) -> None:
        if number >= len(self._review):
            raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such segment")


def review_app(
    review: Review,
    translator: Translator,
    settings: Mapping[str, Any],
    page: Mapping[str, object],
    *,
    hosts: Sequence[str] = (),
) -> ASGIApp:
    """Return the application of a review.

    Args:
        review: The review.
        translator: The model that is asked for alternatives, links and explanations.
        settings: Fields of `DecodeConfig` for it.
        page: Data of the page, as in `ReviewServer`.
        hosts: Names under which it is asked, as `served_hosts` returns them; empty allows all.
    """
    handlers: Any = {HTTPError: _refused, HTTPException: _http_error, ClientDisconnect: _http_error}
    server = ReviewServer(review, _one_at_a_time(translator, settings), page)
    app = Starlette(routes=server.routes(), exception_handlers=handlers)
    names = frozenset(host.lower() for host in hosts)

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            require_allowed(scope, names)
        except HTTPError as refusal:
            await _error(refusal.message, refusal.status)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return checked


def _one_at_a_time(translator: Translator, settings: Mapping[str, Any]) -> AskModel:
    """Return what asks the model one question at a time: each uses all cores.

    The others wait without a thread of the pool, which saving needs.
    """
    turn = asyncio.Lock()

    async def ask(
        request: Request, pair: tuple[str, str], answer: Callable[..., Response], *, explains: bool
    ) -> Response:
        async with turn:
            if await request.is_disconnected():
                raise ClientDisconnect
            return await run_in_threadpool(answer, translator, **settings)

    return ask


async def _read(request: Request, kind: type[_B]) -> _B:
    """Read the JSON object of a request.

    Raises:
        HTTPError: If it is of another type, too large or invalid.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {MOST_BYTES:,} bytes")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))[:80] or "the body"
        raise bad_request(f"{where}: {first['msg']}") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise bad_request("a number is expected, such as 3")
    return int(text)


def _json(value: object) -> Response:
    return JSONResponse(value, headers=_HEADERS)


def _error(message: str, status: int, **more: object) -> Response:
    body = json.dumps({"error": message, **more}, ensure_ascii=False).encode(errors="replace")
    return Response(body, status, _HEADERS, "application/json")


def _refused(request: Request, refusal: HTTPError) -> Response:
    return _error(refusal.message, refusal.status)


def _http_error(request: Request, error: HTTPException | ClientDisconnect) -> Response:
    return _error(str(getattr(error, "detail", "")), getattr(error, "status_code", HTTPStatus.BAD_REQUEST))
