"""Parsing and validation of requests: fields, text limits, terms, and the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.requests import Request

from clearhead.config import ServeConfig
from clearhead.errors import DataError
from clearhead.files import parse_json
from clearhead.serving.http_errors import bad_request
from clearhead.serving.keys import Keys
from clearhead.serving.schemas import GivenTerm
from clearhead.tokenizers.vocabulary import refuse_surrogates
from clearhead.translation.terminology import Terms, term_of

MOST_FIELDS = 1_000


async def read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request, from its JSON object or from its query and its form; the query takes precedence.

    Raises:
        HTTPError: If they cannot be parsed.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            values = parse_json((await request.body()).decode("utf-8"))
        except ValueError:
            raise bad_request("Invalid JSON format") from None
        if not isinstance(values, dict):
            raise bad_request("Invalid JSON format")
        return values
    if kind not in ("", "application/x-www-form-urlencoded", "multipart/form-data"):
        raise bad_request("send JSON, or a form")
    fields: dict[str, Any] = {}
    try:
        if kind == "multipart/form-data":
            form = await request.form(max_files=1, max_fields=MOST_FIELDS)
            given = [(name, value) for name, value in form.multi_items() if isinstance(value, str | UploadFile)]
        else:
            text = (await request.body()).decode("utf-8")
            given = list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS))
        query = request.url.query
        given = [*parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS), *given]
    except Exception as error:  # third-party parsers may raise any exception
        if isinstance(error, OSError | MemoryError):
            raise
        raise bad_request("the form cannot be read; send JSON, or a form in UTF-8") from None
    for name, value in given:
        fields.setdefault(name, value)
    return fields


def require_few(texts: Sequence[str], config: ServeConfig) -> None:
    """Raise `HTTPError` for more texts or characters than one request may have.

    Raises:
        HTTPError: If a limit is exceeded; the message is worded as in LibreTranslate.
    """
    for size, limit in ((len(texts), config.max_texts), (sum(map(len, texts)), config.max_characters)):
        if size > limit:
            raise bad_request(f"Invalid request: request ({size}) exceeds text limit ({limit})")


def given_terms(given: Sequence[GivenTerm], config: ServeConfig) -> Terms | None:
    """Return the terms given in a request; None for an empty list.

    Raises:
        HTTPError: If there are too many, or a term is too long, is not one line of text, or has no translation.
    """
    terms = []
    targets = [[one.target] if isinstance(one.target, str) else one.target for one in given]
    if (size := sum(map(len, targets))) > config.max_terms:
        raise bad_request(f"{size:,} terms, and a request may bring {config.max_terms:,}")
    for number, (one, forms) in enumerate(zip(given, targets, strict=True)):
        for text in (one.source, *forms):
            if len(text) > config.max_term_characters:
                problem = (
                    f"{len(text):,} characters in one text, and at most {config.max_term_characters:,} are allowed"
                )
                raise bad_request(f"terms.{number}: {problem}")
            if "\t" in text or len(text.splitlines()) > 1:
                raise bad_request(f"terms.{number}: a tab or an end of a line in a text")
        try:
            refuse_surrogates([one.source, *forms])
            terms.append(term_of(one.source, forms))
        except DataError as error:
            raise bad_request(f"terms.{number}: {error}") from None
    return Terms(terms) if terms else None


def client_of(request: Request, keys: Keys, fields: Mapping[str, Any] | None = None) -> str:
    """Return the client of a request, for fair scheduling and limits: the owner of its key, or its address.

    The key is in the header `Authorization: Bearer KEY`, or in the field `api_key`.

    Raises:
        HTTPError: If a key is required and it is missing or unknown, or its rate limit is exceeded.
    """
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    key = given.strip() if scheme.lower() == "bearer" else None
    if not key and fields is not None and isinstance(fields.get("api_key"), str):
        key = fields["api_key"]
    owner = keys.owner(key)
    if owner is not None:
        return f"key {owner}"
    return f"address {request.client.host if request.client else ''}"


async def wait_until_gone(request: Request) -> None:
    """Return when the client has disconnected; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
