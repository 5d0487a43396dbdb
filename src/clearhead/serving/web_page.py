"""The web pages `/` (translation) and `/inside` (explanation view), and their static files."""

from __future__ import annotations

from hashlib import sha256

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from clearhead.inspection.head_statistics import STATISTICS
from clearhead.inspection.page import explain_view, view_scripts
from clearhead.pages import Html, data_block, fill, picture, style
from clearhead.serving.files import EXTENSIONS
from clearhead.serving.service import Service
from clearhead.text.quality_flags import KINDS

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy: nothing from other origins, nothing inline, and no script may turn text into markup."""

_WITHOUT_SCRIPT = """\
<noscript>
<p class="note">This page needs JavaScript. Programs ask the server as <a href="./docs">this page</a> says.</p>
</noscript>

"""


def page_router(service: Service) -> APIRouter:
    """Return the router of the web pages; the pages use the public API for models and translations."""
    router = APIRouter(include_in_schema=False)
    parts = {
        "translate.css": ("text/css", style("translate.css")),
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

    return router
