"""Requests, as both APIs handle them: fields, text limits, terms, the client, and work in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from clearhead.config import ServeConfig
from clearhead.errors import DataError
from clearhead.files import parse_json
from clearhead.serving.batched_search import Job
from clearhead.serving.forms import MAX_FIELDS, MULTIPART, URLENCODED, parse_multipart, unreadable_form
from clearhead.serving.http_errors import bad_request
from clearhead.serving.keys import Keys
from clearhead.serving.schemas import GivenTerm
from clearhead.serving.service import Service
from clearhead.tokenizers.vocabulary import refuse_surrogates
from clearhead.translation.terminology import Terms, term_of
from clearhead.translation.translator import Translator

T = TypeVar("T")

_INLINE_BYTES = 16_384
"""Size of a body up to which it is parsed at once; larger ones are parsed in a thread, one at a time."""
_PARSER = ThreadPoolExecutor(1, thread_name_prefix="clearhead body")


async def _service_of(request: Request) -> Service:
    return request.app.state.service


ServiceDep = Annotated[Service, Depends(_service_of)]
"""The service, as a parameter of an endpoint."""


async def read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request, from its JSON object or from its query and its form; the query takes precedence.

    Raises:
        HTTPError: If they cannot be parsed.
    """
    content_type = request.headers.get("content-type", "")
    body = b"".join([part async for part in request.stream()])
    parse = partial(_parsed, content_type, request.url.query, body)
    if len(body) <= _INLINE_BYTES:
        return parse()
    del body
    return await asyncio.get_running_loop().run_in_executor(_PARSER, parse)


def _parsed(content_type: str, query: str, body: bytes) -> dict[str, Any]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            values = parse_json(body.decode())
        except ValueError:
            raise bad_request("Invalid JSON format") from None
        if not isinstance(values, dict):
            raise bad_request("Invalid JSON format")
        return values
    if kind != MULTIPART and kind not in URLENCODED:
        raise bad_request("send JSON, or a form")
    given: list[tuple[str, Any]] = _query_fields(query)
    given += parse_multipart(content_type, body) if kind == MULTIPART else _query_fields(body)
    fields: dict[str, Any] = {}
    for name, value in given:
        fields.setdefault(name, value)
    return fields


def _query_fields(query: str | bytes) -> list[tuple[str, str]]:
    try:
        text = query if isinstance(query, str) else query.decode()
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise unreadable_form() from None


def require_within_limits(texts: Sequence[str], config: ServeConfig) -> None:
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
    targets = [[term.target] if isinstance(term.target, str) else term.target for term in given]
    if (size := sum(map(len, targets))) > config.max_terms:
        raise bad_request(f"{size:,} terms, and a request may bring {config.max_terms:,}")
    for number, (term, forms) in enumerate(zip(given, targets, strict=True)):
        for text in (term.source, *forms):
            if len(text) > config.max_term_characters:
                problem = (
                    f"{len(text):,} characters in one text, and at most {config.max_term_characters:,} are allowed"
                )
                raise bad_request(f"terms.{number}: {problem}")
            if "\t" in text or len(text.splitlines()) > 1:
                raise bad_request(f"terms.{number}: a tab or an end of a line in a text")
        try:
            refuse_surrogates([term.source, *forms])
            terms.append(term_of(term.source, forms))
        except DataError as error:
            raise bad_request(f"terms.{number}: {error}") from None
    return Terms(terms) if terms else None


def client_of(request: Request, keys: Keys, fields: Mapping[str, Any] | None = None) -> str:
    """Return the client of a request, for fair scheduling and limits: the owner of its key, or its address.

    The key is in the header `Authorization: Bearer KEY`, which has been checked before the body was read, or in the
    field `api_key`.

    Raises:
        HTTPError: If a key is required and it is missing or unknown, or its rate limit is exceeded.
    """
    if (known := request.state.client) is not None:
        return str(known)
    return keys.client((fields or {}).get("api_key"))


def spend_tokens(
    job: Job,
    translator: Translator,
    texts: Sequence[str],
    translations: Sequence[str],
    settings: dict[str, Any],
    most: int | None = None,
) -> None:
    """Subtract the tokens of texts and their translations, which are not searched for, from the budget of a request.

    Args:
        job: The request.
        translator: The model.
        texts: The texts.
        translations: As many.
        settings: Fields of `DecodeConfig`.
        most: Most tokens of a text that can be explained; None if it need not be.

    Raises:
        HTTPError: If there are more.
    """
    parts = translator.pair_encoder.split_sources(texts, settings.get("target_lang"))
    sides = translator.pair_encoder.encode(parts, translations, translator.decode_config(settings))
    sizes = [len(tokens) for side in sides for tokens in side]
    if most is not None and (longest := max(sizes)) > most:
        raise bad_request(f"a side has {longest} tokens, and at most {most} are explained; split it")
    job.spend(sum(sizes))


async def wait_for_disconnect(request: Request) -> None:
    """Return when the client has disconnected; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def run_admitted(
    request: Request, service: Service, client: str, work: Callable[[Job], T], limits: tuple[float, int] | None = None
) -> T:
    """Admit a request, run its work in a thread, and return the result.

    Args:
        request: The request.
        service: The service.
        client: Its client, from `client_of`.
        work: What to run for the admitted request.
        limits: Its time in seconds and its tokens; `request_seconds` and `max_request_tokens` if not given.

    Raises:
        ClientDisconnected: As `Admission.run`.
        HTTPError: As `Admission.admitted` and `Admission.run`.
    """
    seconds, max_tokens = limits or (service.config.request_seconds, service.config.max_request_tokens)
    with service.admission.admitted(client, seconds, max_tokens) as job:
        return await service.admission.run(job, partial(work, job), partial(wait_for_disconnect, request))
