"""HTTP server process (uvicorn): socket, signals, model reloads, shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any

import uvicorn

from clearhead.errors import ClearheadError, ConfigError
from clearhead.serving.app import make_app
from clearhead.serving.connections import ConnectionConfig
from clearhead.serving.log import log_event
from clearhead.serving.service import Service

CHECK_SECONDS = 1.0
"""Seconds between two checks for replaced files."""
BACKLOG = 2_048
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names of this machine for its own programs."""
REFUSING_SECONDS = 1.0
"""Seconds that requests are still refused after all work has ended."""
_OTHER_FILES = 200
"""Open files besides connections and their uploads: models, terms, threads, refused connections."""
_SWITCH_SECONDS = 0.0005
"""Seconds after which a thread that computes lets another one run, such as the event loop.

A request changes threads some thirty times; with Python's usual 5 ms it would wait that often for one that is large."""


def bind(host: str, port: int, *, advice: str = "choose another with --host and --port") -> socket.socket:
    """Return a listening socket.

    Args:
        host: Name or address.
        port: Port number; 0 chooses any free one.
        advice: What to do if that is not possible.

    Raises:
        ConfigError: If it cannot listen there.
    """
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # if two servers want the port, the second fails here
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        if listener is not None:
            listener.close()
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on {host} port {port}: {why}; {advice}") from None
    return listener


def serve(
    service: Service,
    listener: socket.socket,
    *,
    cors_origins: Sequence[str] = (),
    hosts: Sequence[str] = (),
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads the models.

    The socket listens at once; until the models are loaded, requests are answered with that message.

    Args:
        service: The models and resources to serve.
        listener: A listening socket, as `bind` returns it.
        cors_origins: Origins of other web pages that may call the API; `*` allows all.
        hosts: Names under which the server is asked; `*` allows all. Empty allows the names of this machine alone if
            it listens there alone, and otherwise all.
        trusted_proxies: Addresses whose `X-Forwarded-For` header gives the client's address.

    Raises:
        ClearheadError: If a model cannot be loaded or verified.
    """
    allow_files(2 * service.config.max_connections + _OTHER_FILES)
    config = ConnectionConfig(
        make_app(service, cors_origins=cors_origins, hosts=served_hosts(hosts, listener)),
        service.config,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_graceful_shutdown=5,
        backlog=BACKLOG,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its messages contain addresses
    server = _Server(config)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        problem = asyncio.run(_serve(server, service, listener))
    finally:
        sys.setswitchinterval(usual)
    if not service.close():
        log_event(logging.ERROR, event="stuck")
        os._exit(1)  # Python would wait for the threads at its end
    if problem is not None:
        raise problem


def served_hosts(given: Sequence[str], listener: socket.socket) -> Sequence[str]:
    """Return the names under which a server is asked, from those given and the address that it listens on."""
    address = listener.getsockname()[0]
    if "*" in given or not (given or ip_address(address).is_loopback):
        return ()
    return [*given, *LOOPBACK_HOSTS, address]


def page_address(host: str, port: int) -> str:
    """Return the address of the web page on this machine.

    >>> page_address("127.0.0.1", 5000), page_address("::1", 5000), page_address("0.0.0.0", 5000)
    ('http://127.0.0.1:5000/', 'http://[::1]:5000/', 'http://localhost:5000/')
    """
    address = ip_address(host)
    name = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else host
    return f"http://{name}:{port}/"


def allow_files(most: int) -> None:
    """Raise the limit of open files of this process if it is lower; log if that is not allowed.

    Each connection takes one file, and its upload may take another.
    """
    with suppress(ImportError):  # Windows has no such limit
        import resource

        usual, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
        if usual == resource.RLIM_INFINITY or usual >= most:
            return
        limit = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, allowed))
        if limit < most:
            log_event(logging.WARNING, event="files", allowed=limit, wanted=most)


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers; this module installs its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield


async def _serve(server: _Server, service: Service, listener: socket.socket) -> ClearheadError | None:
    """Run the server; return the error that kept it from starting or made it stop, if any."""
    loop, ended, asked = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    restore = _on_signals(loop, ended, asked)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        host, port = listener.getsockname()[:2]
        log_event(logging.INFO, event="listening", host=host, port=port)
        loading = asyncio.ensure_future(asyncio.to_thread(service.load))
        stopping = asyncio.create_task(ended.wait())
        await asyncio.wait({loading, stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        problem = None
        if not ended.is_set() and not serving.done():
            try:
                await loading
            except ClearheadError as error:
                problem = error
            else:
                names = list(service.models.served)
                log_event(logging.INFO, event="ready", models=names, page=page_address(host, port))
                problem = await _watch(service, asked, stopping, serving)
        await _drain(service)
        await asyncio.gather(loading, return_exceptions=True)  # a shutdown lets it fail
        return problem
    finally:
        server.should_exit = True
        await serving
        restore()


def _on_signals(loop: asyncio.AbstractEventLoop, ended: asyncio.Event, asked: asyncio.Event) -> Callable[[], None]:
    """Set events on signals; return a function that restores the previous handlers."""
    wanted: dict[int, asyncio.Event] = {signal.SIGTERM: ended, signal.SIGINT: ended}
    if hasattr(signal, "SIGHUP"):
        wanted[signal.SIGHUP] = asked
    before = {}
    for number, event in wanted.items():
        before[number] = signal.getsignal(number)
        signal.signal(number, lambda *_, event=event: loop.call_soon_threadsafe(event.set))

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


async def _watch(
    service: Service, asked: asyncio.Event, stopping: asyncio.Task[Any], serving: asyncio.Task[None]
) -> ClearheadError | None:
    """Reload models on replacement or request, until shutdown or until searches are no longer possible.

    A reload may take minutes; meanwhile the searches are watched, and a shutdown does not wait for it.
    """
    maintenance: asyncio.Task[Any] | None = None
    while not (stopping.done() or serving.done()):
        awaited = maintenance or asyncio.create_task(asked.wait())
        await asyncio.wait({awaited, stopping, serving}, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if maintenance is None:
            awaited.cancel()
        if stopping.done():
            break
        try:
            await asyncio.to_thread(service.check_processes)
        except ClearheadError as problem:
            return problem
        if maintenance is None:
            is_asked = asked.is_set()
            asked.clear()
            maintenance = asyncio.create_task(asyncio.to_thread(service.maintain, force=is_asked))
        elif maintenance.done():
            await maintenance
            maintenance = None
    return None


async def _drain(service: Service) -> None:
    """Refuse new requests and wait for running ones; those that exceed `grace_seconds` are cancelled."""
    service.begin_shutdown()
    log_event(logging.INFO, event="ending", requests=service.admission.num_requests)
    until = time.monotonic() + service.config.grace_seconds
    while service.admission.num_requests and time.monotonic() < until:
        await asyncio.sleep(0.05)
    service.admission.cancel_all()
    # New requests still get an answer meanwhile; a closed socket would reset them.
    await asyncio.sleep(REFUSING_SECONDS)
