"""The page of a review: one HTML file with its style and script, which asks the server that it came from."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache

from starlette.responses import HTMLResponse

from clearhead.inspection.page import TEXT_RULES, text_rules_module
from clearhead.pages import Html, content_policy, data_block, fill, picture, script, style
from clearhead.text.languages import is_right_to_left


def page_data(name: str, languages: tuple[str | None, str | None], output: str) -> dict[str, object]:
    """Return the data of the page of a review, as far as it does not change.

    Args:
        name: Name of the document.
        languages: Languages of source and translation, as far as known.
        output: The document that is written, which distinguishes the review from others of the server.
    """
    directions = ["rtl" if language and is_right_to_left(language) else "ltr" for language in languages]
    return {"name": name, "languages": languages, "direction": directions, "output": output}


def page_response(review: Mapping[str, object]) -> HTMLResponse:
    """Return the page, with the headers under which it loads nothing else, and makes no markup of text.

    Args:
        review: Data of the page, from `page_data`, with `count` of the segments, how many are `done`, and
            `is_download` if the page offers the document.
    """
    parts = _parts()
    policy = content_policy(
        "connect-src 'self'",
        "img-src data:",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
        styles=[parts["style"]],
        scripts=[parts["theme"], parts["script"]],
    )
    page = fill("review.html", name=review["name"], review=data_block(review), **parts)
    headers = {"content-security-policy": policy, "cache-control": "no-store", "x-content-type-options": "nosniff"}
    return HTMLResponse(page, headers=headers)


@cache
def _parts() -> dict[str, Html]:
    return {
        "style": style("controls.css", "review.css"),
        "theme": script("translate/theme.js"),
        "script": script("review/main.js", made={TEXT_RULES: text_rules_module()}),
        "icon": Html(b64encode(picture("icon.svg").encode()).decode()),
    }
