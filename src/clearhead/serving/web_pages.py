"""The web pages `/` (translation), `/inside` (explanation view) and `/docs` (API), and their static files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from clearhead.inspection.head_statistics import STATISTICS
from clearhead.inspection.page import explain_view, view_scripts
from clearhead.pages import Html, data_block, fill, joined, picture, style
from clearhead.pages.parts import table
from clearhead.serving.files import EXTENSIONS
from clearhead.serving.service import Service
from clearhead.text.quality_flags import KINDS

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy: nothing from other origins, nothing inline, and no script may turn text into markup."""

_POLICY_WITHOUT_SCRIPTS = (
    "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

_WITHOUT_SCRIPT = """\
<noscript>
<p class="note">This page needs JavaScript. Programs ask the server as <a href="./docs">this page</a> says.</p>
</noscript>

"""


def page_router(service: Service) -> APIRouter:
    """Return the router of the web pages; the pages use the public API for models and translations."""
    router = APIRouter(include_in_schema=False)
    parts = {
        "translate.css": ("text/css", style("controls.css", "translate.css")),
        "explain.css": ("text/css", style("explain.css")),
        **{f"{name}.js": ("text/javascript", text) for name, text in view_scripts().items()},
        "icon.svg": ("image/svg+xml", picture("icon.svg")),
    }
    config = service.config
    settings = {
        "max_texts": config.max_texts,
        "max_characters": config.max_characters,
        "max_alternatives": config.max_alternatives,
        "max_file_bytes": config.max_file_bytes,
        "takes_files": service.takes_files,
        "takes_reviews": service.reviews is not None,
        "key_required": service.keys.are_required,
        "warnings": {name: kind.meaning for name, kind in KINDS.items()},
    }
    view = fill(
        "translate_view.html",
        links=Html('<a class="quiet" href="./docs">API</a>\n'),
        before=Html(_WITHOUT_SCRIPT),
        extensions=",".join(EXTENSIONS),
    )
    translating = fill("translate.html", settings=data_block(settings), view=view)
    inside = fill(
        "inside.html",
        view=explain_view("Looking inside. This page needs JavaScript, which this browser does not run."),
        statistics=data_block(STATISTICS),
    )

    @router.get("/")
    async def translating_page() -> Response:
        return HTMLResponse(translating, headers={"content-security-policy": _POLICY})

    @router.get("/inside")
    async def inside_page() -> Response:
        return HTMLResponse(inside, headers={"content-security-policy": _POLICY})

    @router.get("/page/{name}")
    async def part(name: str, request: Request) -> Response:
        if name not in parts:
            raise HTTPException(404)
        kind, text = parts[name]
        headers = {"etag": f'"{sha256(text.encode()).hexdigest()[:32]}"', "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(text, media_type=kind, headers=headers)

    @router.get("/docs")
    async def description(request: Request) -> Response:
        headers = {"content-security-policy": _POLICY_WITHOUT_SCRIPTS}
        return HTMLResponse(description_page(request.app.openapi()), headers=headers)

    @router.get("/docs/style.css")
    async def style_sheet() -> Response:
        return Response(style(), media_type="text/css")

    return router


def description_page(document: Mapping[str, Any]) -> Html:
    """Return the page of the API reference, generated from the OpenAPI document, without external requests.

    Args:
        document: The OpenAPI document.
    """
    schemas = document.get("components", {}).get("schemas", {})
    endpoints = [
        fill(
            "api_parts.html#endpoint",
            method=method.upper(),
            path=path,
            summary=operation.get("description", ""),
            request=_request(operation, schemas),
            answers=joined(
                fill("api_parts.html#answer", status=status, description=answer.get("description", ""))
                for status, answer in sorted(operation["responses"].items())
            ),
            answer=_table(_schema_of(operation["responses"].get("200", {}), schemas), schemas),
        )
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return fill("api.html", version=document["info"]["version"], endpoints=joined(endpoints))


def _request(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Html:
    body = operation.get("requestBody")
    if body is None:
        return Html()
    kinds = ", ".join(body["content"])
    return fill("api_parts.html#request", kinds=kinds, fields=_table(_schema_of(body, schemas), schemas))


def _schema_of(part: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    content: Mapping[str, Any] = next(iter(part.get("content", {}).values()), {})
    return _resolved(content.get("schema", {}), schemas)


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object schema that a schema refers to; of a list, that of its items; of several, the first."""
    while "anyOf" in schema or schema.get("type") == "array":
        schema = schema["anyOf"][0] if "anyOf" in schema else schema["items"]
    name = schema.get("$ref", "").rpartition("/")[2]
    return schemas.get(name, schema)


def _table(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Html:
    rows = [
        (
            fill("api_parts.html#name", name=name),
            _kind(field) + (", required" if name in schema.get("required", ()) else ""),
            "" if "default" not in field else json.dumps(field["default"]),
            field.get("description", ""),
        )
        for name, field in schema.get("properties", {}).items()
    ]
    return table(("text",) * 4, rows, heads=("Field", "Type", "Default", "Meaning")) if rows else Html()


def _kind(field: Mapping[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in field:
        return field["$ref"].rpartition("/")[2].lstrip("_")
    if "enum" in field:
        return " or ".join(json.dumps(value) for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_kind(kind) for kind in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {_kind(field['items'])}"
    return str(field.get("type", "object"))
