"""The ASGI application: all endpoints, the error handlers, and the outermost middleware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.runtime.version import full_version
from clearhead.serving import api, libretranslate_api, review_api
from clearhead.serving.metrics import CONTENT_TYPE
from clearhead.serving.middleware import Endpoints, OutermostMiddleware
from clearhead.serving.requests import ServiceDep
from clearhead.serving.review_api import REVIEWS, ReviewPages
from clearhead.serving.service import Service
from clearhead.serving.web_pages import page_router

_router = APIRouter()


@_router.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
async def metrics(service: ServiceDep) -> Response:
    """Return metrics in the text format of Prometheus."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


async def _raise(request: Request, error: Exception) -> Response:
    raise error  # a refusal or a bug of ours: the outermost middleware answers and logs it


async def _failed(request: Request, error: ClearheadError) -> Response:
    is_theirs = isinstance(error, ConfigError | DataError)
    if not is_theirs:
        request.state.log_fields["error"] = type(error).__name__
    return JSONResponse({"error": str(error)}, 400 if is_theirs else 500)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    problems = (f"{'.'.join(map(str, one['loc'][1:]))[:80] or 'the body'}: {one['msg']}" for one in error.errors()[:5])
    return JSONResponse({"error": "; ".join(problems)}, 400)


async def _refused(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


_ERROR_HANDLERS: dict[Any, Any] = {
    Exception: _raise,
    ClearheadError: _failed,
    RequestValidationError: _invalid,
    HTTPException: _refused,
}


def make_app(service: Service, *, cors_origins: Sequence[str] = (), hosts: Sequence[str] = ()) -> ASGIApp:
    """Return the ASGI application.

    Args:
        service: The models and resources to serve.
        cors_origins: Origins of other web pages that may call the API, such as `https://example.org`; `*` allows all.
        hosts: Names under which the server is asked; empty allows all.
    """
    app = FastAPI(
        title="clearhead", version=full_version(), docs_url=None, redoc_url=None, exception_handlers=_ERROR_HANDLERS
    )
    app.state.service = service
    for router in (api.router, libretranslate_api.router, page_router(service), _router):
        app.include_router(router)
    reviews = [f"{REVIEWS}/"] if service.reviews is not None else []
    if service.reviews is not None:
        app.include_router(review_api.router)
        app.mount(f"{REVIEWS}/{{key}}", ReviewPages(service, service.reviews), name="review")
    app.openapi = _without_422(app)  # type: ignore[method-assign]
    paths = [path.split("{")[0] for path in app.openapi()["paths"]]
    endpoints = Endpoints(
        paths=frozenset([*paths, "/", "/inside", *reviews, "/page/", "/docs", "/docs/style.css", "/openapi.json"]),
        probes=frozenset({"/livez", "/readyz", "/health", "/metrics"}),
        with_key_field=libretranslate_api.KEY_FIELD_PATHS,
        with_files=frozenset({libretranslate_api.FILE_PATH}),
    )
    outermost = OutermostMiddleware(app, service, endpoints, hosts=hosts, origins=cors_origins)
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
