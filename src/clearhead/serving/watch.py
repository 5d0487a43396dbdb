"""Pages served by a thread: any application, and a page that changes, such as the progress of a training run."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from clearhead.errors import ClearheadError
from clearhead.pages import Html, content_policy, fill, joined, script, style
from clearhead.pages.parts import paragraph
from clearhead.serving.middleware import MAX_HEADER_BYTES
from clearhead.serving.server import bind

_HOST = "127.0.0.1"
_LOOK_SECONDS = 1.0
"""Seconds between two looks at whether the page has changed."""
_NONE = object()
_CLOSING_SECONDS = 3
"""Seconds that a browser has to read the rest at the end."""


@contextmanager
def watched(port: int, title: str, page: Callable[[], Html], version: Callable[[], object]) -> Iterator[str]:
    """Serve a page on the loopback interface, and yield its address; browsers show each new version at once.

    Args:
        port: Port number; 0 chooses any free one.
        title: Title of the page.
        page: Returns the content as it is now; called in threads.
        version: Returns a value that differs when the content has changed; called every second for each browser.

    Raises:
        ConfigError: If it cannot listen on the port.
    """
    listener = bind(_HOST, port, advice="choose another port with --watch")
    ended = threading.Event()
    with served(_application(title, page, version, ended), listener):
        try:
            yield f"http://{_HOST}:{listener.getsockname()[1]}/"
        finally:
            ended.set()


@contextmanager
def served(app: ASGIApp, listener: socket.socket) -> Iterator[None]:
    """Serve an application in a thread until the end of the block, and close the listening socket.

    Args:
        app: The application.
        listener: A listening socket, as `bind` returns it.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )
    server = _Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server of a page")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class _Server(uvicorn.Server):
    """A server that ends although a browser does not read what it asked for."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
        await asyncio.sleep(0)  # until they are closed


def _application(
    title: str, page: Callable[[], Html], version: Callable[[], object], ended: threading.Event
) -> Starlette:
    script_text, style_text = script("watch/progress.js"), style("report.css")
    # The charts have style attributes, which a policy can only allow all together.
    policy = content_policy("connect-src 'self'", styles=["'unsafe-inline'"], scripts=[script_text])
    headers = {"content-security-policy": policy, "cache-control": "no-store", "x-content-type-options": "nosniff"}

    def show(_: Request) -> Response:
        try:
            content = page()
        except ClearheadError as error:
            content = paragraph(str(error))
        content = joined([content, fill("report_parts.html#script", text=script_text)])
        return HTMLResponse(fill("report.html", title=title, style=style_text, content=content), headers=headers)

    async def changes() -> AsyncIterator[str]:
        shown: object = _NONE  # the page was made before, and may have changed since
        while not ended.is_set():
            now = await asyncio.to_thread(version)
            yield ": alive\n\n" if now == shown else "data: changed\n\n"
            shown = now
            await asyncio.sleep(_LOOK_SECONDS)
        yield "event: ended\ndata:\n\n"

    def events(_: Request) -> Response:
        return StreamingResponse(changes(), media_type="text/event-stream", headers=headers)

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", _HOST], www_redirect=False)
    return Starlette(routes=[Route("/", show), Route("/events", events)], middleware=[hosts])
