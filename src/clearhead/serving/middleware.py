"""Outermost middleware: request id, allowed hosts and pages, keys, body limits, security headers, metrics, access log.

The application behind it sees complete bodies within the limits, and every error gets an answer. The log names no text,
no key and no address.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import secrets
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.serving.admission import Admission
from clearhead.serving.forms import MULTIPART, URLENCODED, parse_multipart
from clearhead.serving.http_errors import ClientDisconnected, HTTPError, bad_request, place_of, unavailable
from clearhead.serving.log import log_event
from clearhead.serving.service import Service

_CHARACTER_BYTES = 12
"""Most bytes of a character of text in a body, as two JSON escapes or four percent escapes."""
_KEYLESS_BYTES = 20_000
"""Bytes that a body without a known key may have besides its text."""
_KEYLESS_SHARE = 4
"""Part of `max_held_bytes` up to which bodies without a known key are read."""
_OTHER_VALUES = 1_000
"""Most values in a JSON body besides those in which a text may have a comma."""
MAX_HEADER_BYTES = 32_768
"""Size limit of a request's line and headers."""
HEADERS_TOO_LARGE = f"the headers have more than {MAX_HEADER_BYTES:,} bytes"
CLIENT_DISCONNECTED = 499
"""Status in metrics and log of a request whose client disconnected before the answer, as in nginx."""
_HEADER_MARKS = len(": \r\n")

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The paths of the application, with sets of paths that the middleware treats differently."""

    paths: frozenset[str]
    """All paths, each with its own metrics; other paths share one. A path with `/` at its end includes all below it."""
    probes: frozenset[str] = frozenset()
    """Paths that are asked every few seconds, and that the log leaves out."""
    with_key_field: frozenset[str] = frozenset()
    """Paths whose requests may have their API key in the field `api_key` of the body."""
    with_files: frozenset[str] = frozenset()
    """Paths whose forms may be as large as files."""

    def metric_label(self, path: str) -> str:
        """Return the path of a request as the metrics and the log have it."""
        if path in self.paths:
            return path
        return next((one for one in self.paths if one.endswith("/") and one != "/" and path.startswith(one)), "other")


class OutermostMiddleware:
    """The outermost ASGI middleware.

    Args:
        app: The application behind it.
        service: Its limits, metrics and keys; its admission control is asked before a POST request reaches the
            application, so that refusals are cheap.
        endpoints: The known paths.
        hosts: Names in the header `Host` that are served; empty serves all.
        origins: Origins of other web pages that may send requests; `*` allows all.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        endpoints: Endpoints,
        *,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)
        self._config, self._metrics = service.config, service.metrics
        self._admission, self._keys = service.admission, service.keys
        self._endpoints = endpoints
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, request_id = time.monotonic(), secrets.token_hex(8)
        answer = _ResponseSender(send, self._admission, request_id)
        method = scope["method"]
        scope.setdefault("state", {})["log_fields"] = log_fields = {}
        try:
            scope = _in_origin_form(scope)
            require_allowed(
                scope,
                self._hosts,
                self._origins,
                advice=("its operator can allow this one with --hosts", "the operator can allow it with --cors"),
            )
            scope["state"]["client"] = self._client(scope)
            body = await self._body(scope, receive, answer)
            self._metrics.stages.labels("body").observe(time.monotonic() - begin)
            if method == "POST":
                self._admission.require_room()
            # The server omits the body of the answer to HEAD.
            asked = {**scope, "method": "GET"} if method == "HEAD" else scope
            await self._app(asked, _ReplayedBody(body, receive), answer)
        except HTTPError as refusal:
            await _refusal_response(refusal)(scope, receive, answer)
        except ClientDisconnected:
            answer.status = CLIENT_DISCONNECTED
        except Exception as error:  # a bug of ours; its message may contain a text, so only its type is logged
            log_fields["error"] = f"{type(error).__name__} at {place_of(error)}"
            if answer.status:  # it has begun
                raise
            await _refusal_response(_server_error(error, request_id))(scope, receive, answer)
        finally:
            self._held_bytes -= answer.body_bytes
            seconds = time.monotonic() - begin
            endpoint = self._endpoints.metric_label(scope["path"])
            self._metrics.requests.labels(endpoint, str(answer.status)).inc()
            self._metrics.seconds.labels(endpoint).observe(seconds)
            fields = {
                "event": "request",
                "id": request_id,
                "method": method if method in ("GET", "POST", "OPTIONS", "HEAD") else "other",
                "endpoint": endpoint,
                "status": answer.status,
                "seconds": round(seconds, 4),
                **log_fields,
            }
            if "model" in log_fields:
                self._metrics.answered_by(log_fields["model"], answer.status, seconds)
            if "error" in log_fields or endpoint not in self._endpoints.probes:
                log_event(logging.ERROR if "error" in log_fields else logging.INFO, **fields)

    def _client(self, scope: Scope) -> str | None:
        """Return the client of a request by its headers: the owner of its key, or its address where none is needed.

        None means that no key is known yet: it may be in the body, or the request needs none.

        Raises:
            HTTPError: If a key is required in the headers and is missing, or it is unknown or used too often.
        """
        if not self._keys.are_required:
            return f"address {scope['client'][0] if scope.get('client') else ''}"
        path = scope["path"]
        if scope["method"] != "POST" or path not in self._endpoints.paths:
            return None
        scheme, _, given = next(iter(_values_of(scope, b"authorization")), "").partition(" ")
        key = given.strip() if scheme.lower() == "bearer" else ""
        return None if not key and path in self._endpoints.with_key_field else self._keys.client(key)

    async def _body(self, scope: Scope, receive: Receive, answer: _ResponseSender) -> bytes:
        """Read the request body; its bytes count towards `max_held_bytes` until the request is answered.

        Without a known key, or as a form without parts, it may be as long as the longest text in the longest spelling;
        a form with parts needs a key within that to go on. Clients without a known key also cannot fill the room of
        those who have one.

        Raises:
            HTTPError: If it is too large, does not arrive in time, or too many bytes are held already.
            ClientDisconnected: If the client disconnects before its end.
        """
        config, state = self._config, scope["state"]
        content_type = next(iter(_values_of(scope, b"content-type")), "")
        kind = content_type.partition(";")[0].strip().lower()
        is_form = kind == MULTIPART
        most = (
            config.max_file_bytes if is_form and scope["path"] in self._endpoints.with_files else config.max_body_bytes
        )
        keyless = min(most, _CHARACTER_BYTES * config.max_characters + _KEYLESS_BYTES)
        if scope["path"] in self._endpoints.with_key_field and kind in URLENCODED:
            most = keyless  # parsing 1 MB of percent signs takes 0.1 s
        length = next(iter(_values_of(scope, b"content-length")), "0")
        if length.isdecimal() and int(length[:20]) > (keyless if state["client"] is None and not is_form else most):
            raise _too_large(keyless if state["client"] is None else most, has_key=state["client"] is not None)
        parts = []
        try:
            async with asyncio.timeout(config.body_seconds):
                while not answer.is_body_read:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise ClientDisconnected
                    parts.append(message.get("body", b""))
                    answer.body_bytes += len(parts[-1])
                    self._held_bytes += len(parts[-1])
                    if is_form and state["client"] is None and keyless < answer.body_bytes <= most:
                        state["client"] = self._client_in_form(content_type, b"".join(parts))
                    has_key = state["client"] is not None
                    if answer.body_bytes > (limit := most if has_key else keyless):
                        raise _too_large(limit, has_key=has_key)
                    if parts[-1] and self._held_bytes > config.max_held_bytes // (1 if has_key else _KEYLESS_SHARE):
                        raise unavailable("the server has too much to read; ask again")
                    answer.is_body_read = not message.get("more_body", False)
        except TimeoutError:
            raise HTTPError(
                HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {config.body_seconds:g} seconds"
            ) from None
        body = b"".join(parts)
        texts = config.max_characters + 2 * config.max_terms * config.max_term_characters
        if not is_form and body.count(b",") > texts + _OTHER_VALUES:  # parsing a million values takes 0.1 s
            raise bad_request("the body has more values than a request may have texts, terms and characters")
        return body

    def _client_in_form(self, content_type: str, begin: bytes) -> str | None:
        """Return the client of the key that the beginning of a form has; None if it has none.

        Raises:
            HTTPError: If the form is invalid, or its key is unknown or used too often.
        """
        fields = parse_multipart(content_type, begin, is_whole=False)
        return next((self._keys.client(value) for name, value in fields if name == "api_key"), None)


def require_allowed(
    scope: Scope, names: Set[str], pages: Set[str] = frozenset(), *, advice: tuple[str, str] = ("", "")
) -> None:
    """Refuse requests under a name that is not this server's, and those of web pages that a user happens to open.

    Without the names, a page could reach a local server by a name of its own that leads to this machine (DNS
    rebinding). Browsers say in `Sec-Fetch-Site` whether a page of another site sends a request; where they reach a
    server over HTTP under a name other than localhost, they say only the page's `Origin`.

    Args:
        scope: The request.
        names: Names in the header `Host` that are served; empty serves all.
        pages: Origins of other web pages that may send requests; `*` allows all.
        advice: What the operator can do about a refused name, and about a refused page.

    Raises:
        HTTPError: If the request is not allowed, its headers are too large, or it has two lengths.
    """
    hosts = _values_of(scope, b"host")
    if len(hosts) != 1:
        raise bad_request("send one Host header")
    if names and _name_of(hosts[0]) not in names:
        raise bad_request("; ".join(filter(None, ["this server has another name", advice[0]])))
    sites, origins = _values_of(scope, b"sec-fetch-site"), _values_of(scope, b"origin")
    is_foreign = any(site in ("cross-site", "same-site") for site in sites)
    if not sites:
        is_foreign = any(not _is_origin_of(hosts[0], origin) for origin in origins)
    if scope["method"] == "POST" and is_foreign and not pages & {"*", *origins}:
        raise HTTPError(HTTPStatus.FORBIDDEN, "; ".join(filter(None, ["pages of other sites may not ask", advice[1]])))
    if _values_of(scope, b"transfer-encoding") and _values_of(scope, b"content-length"):
        raise bad_request("send Content-Length or Transfer-Encoding")  # a proxy may have believed the other
    size = len(scope["raw_path"]) + len(scope["query_string"])
    if size + sum(len(name) + len(value) + _HEADER_MARKS for name, value in scope["headers"]) > MAX_HEADER_BYTES:
        raise HTTPError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, HEADERS_TOO_LARGE)


def _too_large(limit: int, *, has_key: bool) -> HTTPError:
    advice = (
        "send it in parts"
        if has_key
        else "send the API key in the header Authorization: Bearer KEY, or in a form's field api_key before the file"
    )
    message = f"the request has more than {limit:,} bytes; {advice}"
    return HTTPError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def _in_origin_form(scope: Scope) -> Scope:
    """Return a request whose target is a whole URL, as for a proxy, as one for its path (RFC 9112, section 3.2.2).

    Raises:
        HTTPError: If the URL is invalid.
    """
    if scope["path"].startswith("/"):
        return scope
    try:
        url = urlsplit(scope["raw_path"].decode("ascii"))
    except ValueError:
        raise bad_request("the URL is invalid") from None
    if url.scheme != "http":
        return scope  # such as `OPTIONS *`
    headers = [(b"host", url.netloc.encode()), *(header for header in scope["headers"] if header[0] != b"host")]
    return {**scope, "path": unquote(url.path) or "/", "raw_path": url.path.encode(), "headers": headers}


def _values_of(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for header, value in scope["headers"] if header == name]


def _name_of(host: str) -> str | None:
    """Return the lower-case name of a `Host` header, without its port; None if it is invalid."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_origin_of(host: str, origin: str) -> bool:
    """Return whether a page's origin is the server's `Host`; a proxy may leave the port out of it.

    >>> [_is_origin_of("a:5000", origin) for origin in ("http://a:5000", "https://A:5000", "http://a:80", "null")]
    [True, True, False, False]
    >>> [_is_origin_of("a", origin) for origin in ("http://a", "https://a:8443", "http://b.a")]
    [True, True, False]
    """
    page, own = origin.partition("://")[2].lower(), host.lower()
    return page == own or (own == _name_of(own) == _name_of(page))


class _ReplayedBody:
    """ASGI receive channel that replays a body already read, then passes on later messages (the disconnect)."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _ResponseSender:
    """ASGI send channel that adds the common headers and records the status."""

    def __init__(self, send: Send, admission: Admission, request_id: str) -> None:
        self._send = send
        self._admission = admission
        self._request_id = request_id
        self.status = 0
        self.is_body_read = False
        self.body_bytes = 0
        """Bytes read so far of the request's body."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = message.setdefault("headers", [])
            names = {name for name, _ in given}
            given = [*given, *(header for header in [*_HEADERS, _POLICY] if header[0] not in names)]
            given.append((b"x-request-id", self._request_id.encode()))
            # The unread rest of a body would be parsed as the next request.
            if self._admission.is_ending or not self.is_body_read:
                given.append((b"connection", b"close"))
            message = {**message, "headers": given}
        await self._send(message)


def _refusal_response(refusal: HTTPError) -> Response:
    """Return the answer to a refused request."""
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    body = json.dumps({"error": refusal.message}, ensure_ascii=False).encode(errors="replace")
    return Response(body, int(refusal.status), headers, "application/json")


def _server_error(error: Exception, request_id: str) -> HTTPError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return unavailable("the server's disk is full; ask again later", retry_after=60)
    return HTTPError(HTTPStatus.INTERNAL_SERVER_ERROR, f"the server made a mistake (request {request_id})")
