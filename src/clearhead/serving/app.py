"""The ASGI application: all endpoints, the error handlers, and the outermost middleware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.pages import style
from clearhead.runtime.version import full_version
from clearhead.serving.api import native_router
from clearhead.serving.docs_page import description_page
from clearhead.serving.libretranslate_api import FILE_PATH, KEY_FIELD_PATHS, libre_router
from clearhead.serving.metrics import CONTENT_TYPE
from clearhead.serving.middleware import Endpoints, OutermostMiddleware
from clearhead.serving.service import Service
from clearhead.serving.web_page import page_router

_PAGE_POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def make_app(service: Service, *, cors_origins: Sequence[str] = (), hosts: Sequence[str] = ()) -> ASGIApp:
    """Return the ASGI application.

    Args:
        service: The models and resources to serve.
        cors_origins: Origins of other web pages that may call the API, such as `https://example.org`; `*` allows all.
        hosts: Names under which the server is asked; empty allows all.
    """
    app = FastAPI(title="clearhead", version=full_version(), docs_url=None, redoc_url=None)
    app.include_router(native_router(service))
    app.include_router(libre_router(service))
    app.include_router(page_router(service))

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return metrics in the text format of Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/docs", include_in_schema=False)
    async def description() -> Response:
        page = description_page(app.openapi())
        return HTMLResponse(page, headers={"content-security-policy": _PAGE_POLICY})

    @app.get("/docs/style.css", include_in_schema=False)
    async def style_sheet() -> Response:
        return Response(style(), media_type="text/css")

    @app.exception_handler(Exception)
    async def unanswered(request: Request, error: Exception) -> Response:
        raise error  # a refusal or a bug of ours: the outermost middleware answers and logs it

    @app.exception_handler(ClearheadError)
    async def failed(request: Request, error: ClearheadError) -> Response:
        is_theirs = isinstance(error, ConfigError | DataError)
        if not is_theirs:
            request.state.noted["error"] = type(error).__name__
        return JSONResponse({"error": str(error)}, 400 if is_theirs else 500)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        problems = (
            f"{'.'.join(map(str, one['loc'][1:]))[:80] or 'the body'}: {one['msg']}" for one in error.errors()[:5]
        )
        return JSONResponse({"error": "; ".join(problems)}, 400)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    app.openapi = _without_422(app)  # type: ignore[method-assign]
    paths = [path.split("{")[0] for path in app.openapi()["paths"]]
    endpoints = Endpoints(
        paths=frozenset([*paths, "/", "/inside", "/page/", "/docs", "/docs/style.css", "/openapi.json"]),
        probes=frozenset({"/livez", "/readyz", "/health", "/metrics"}),
        with_key_field=frozenset(KEY_FIELD_PATHS),
        with_files=frozenset({FILE_PATH}),
    )
    outermost = OutermostMiddleware(
        app,
        config=service.config,
        metrics=service.metrics,
        endpoints=endpoints,
        admission=service.admission,
        keys=service.keys,
        hosts=hosts,
        origins=cors_origins,
    )
    if not cors_origins:
        return outermost
    return CORSMiddleware(
        outermost,
        allow_origins=list(cors_origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After", "X-Request-Id"],
    )


def _without_422(app: FastAPI) -> Any:
    """Return the OpenAPI function without FastAPI's status 422, since invalid requests are answered with 400."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        for methods in document["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            document.get("components", {}).get("schemas", {}).pop(name, None)
        return document

    return openapi
